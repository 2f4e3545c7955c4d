import pytest

from penstock.delivery import Receipt, parse_receipt
from penstock.errors import InvalidReceipt


def test_a_receipt_survives_as_text() -> None:
    receipt = Receipt(partition=3, delivery=5 << 40 | 17, offset=2**40)

    assert parse_receipt(str(receipt)) == receipt


@pytest.mark.parametrize(
    "text", ["", "1.2", "1.2.3.4", "x.y.z", "-1.2.3", "1.2.fffffffffffffffff", "1..3", "a" * 500]
)
def test_other_texts_are_refused_and_shown(text: str) -> None:
    with pytest.raises(InvalidReceipt, match="is not a receipt"):
        parse_receipt(text)
