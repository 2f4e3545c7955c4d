"""Receipts: the proof that a message is out with the one who shows it.

A receipt names the partition, the delivery and the offset, as three hexadecimal numbers. Delivery
numbers are never given twice, so a receipt of an older lease can be told from that of a newer one.
"""

from typing import NamedTuple

from penstock.errors import InvalidReceipt

_TEXT_MAX = 60
_NUMBER_MAX = 2**63 - 1


class Receipt(NamedTuple):
    """One message of one delivery."""

    partition: int
    delivery: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition:x}.{self.delivery:x}.{self.offset:x}"


def parse_receipt(text: str) -> Receipt:
    """Read a receipt, or raise `InvalidReceipt`."""
    try:
        partition, delivery, offset = text.split(".")
        receipt = Receipt(int(partition, 16), int(delivery, 16), int(offset, 16))
    except ValueError:
        raise InvalidReceipt(f"{text[:_TEXT_MAX]!r} is not a receipt") from None
    if min(receipt) < 0 or max(receipt) > _NUMBER_MAX:
        raise InvalidReceipt(f"{text[:_TEXT_MAX]!r} is not a receipt")
    return receipt
