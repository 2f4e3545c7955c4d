"""Answers to receipts, as the client reads them."""

import msgspec
import pytest

from penstock.client.deliveries import LeasedMessage, SettleIncomplete, settle_calls
from penstock.errors import LeaseExpired, NotLeader


def leased(receipt: str) -> LeasedMessage:
    return LeasedMessage(
        topic="orders",
        group="billing",
        partition=0,
        offset=0,
        id="0-0",
        receipt=receipt,
        attempt=1,
        timestamp_ms=0,
        lease_until_ms=0,
        priority=4,
        key=None,
        value=b"",
        headers=(),
    )


def answer(*failed: tuple[str, str, bool]) -> bytes:
    return msgspec.json.encode(
        {
            "accepted": 0,
            "failed": [
                {"receipt": receipt, "error": {"type": kind, "message": "no", "retryable": passes}}
                for receipt, kind, passes in failed
            ],
        }
    )


@pytest.mark.parametrize("verb", ["ack", "extend"])
def test_receipts_that_may_be_accepted_later_are_sent_again(verb: str) -> None:
    (call,) = settle_calls(verb, [leased("a"), leased("b")])

    with pytest.raises(SettleIncomplete) as caught:
        call.read(answer(("a", "NotLeader", True), ("b", "LeaseExpired", False)))

    assert caught.value.retryable
    kinds = [type(each.error) for each in caught.value.refusals]
    assert kinds == [NotLeader, LeaseExpired]


def test_receipts_that_are_refused_for_good_are_returned() -> None:
    (call,) = settle_calls("ack", [leased("a"), leased("b")])

    (refusal,) = call.read(answer(("b", "LeaseExpired", False)))

    assert refusal.message.receipt == "b"


@pytest.mark.parametrize("verb", ["nack", "reject"])
def test_verbs_that_would_refuse_what_they_have_done_are_not_repeated(verb: str) -> None:
    (call,) = settle_calls(verb, [leased("a")])

    (refusal,) = call.read(answer(("a", "NotLeader", True)))

    assert isinstance(refusal.error, NotLeader)
