"""What is remembered of receives that may be asked for again, and for how long."""

from uuid import UUID

import pytest

from penstock.broker import Message
from penstock.protocols.sqs import receive_attempts
from penstock.protocols.sqs.receive_attempts import (
    ATTEMPT_MS_MAX,
    Attempt,
    ReceiveAttempts,
    read_request,
)

QUEUE = UUID(int=1)
LEASE_MS = 30_000


def attempt(number: int) -> Attempt:
    return Attempt(QUEUE, f"id-{number}", b"{}")


def message(receipt: str, value: bytes = b"x") -> Message:
    return Message("q.fifo", 0, 0, "0-0", receipt, 1, 0, LEASE_MS, 0, 4, b"group", value, ())


def test_an_attempt_is_known_until_its_leases_end() -> None:
    attempts = ReceiveAttempts()
    attempts.keep(attempt(1), [message("a")], now_ms=0, lease_ms=LEASE_MS)

    assert [each.receipt for each in attempts.find(attempt(1), now_ms=LEASE_MS - 1)] == ["a"]
    assert not attempts.find(attempt(2), now_ms=0)
    assert not attempts.find(attempt(1), now_ms=LEASE_MS)


def test_an_attempt_is_repeated_for_five_minutes_from_the_first() -> None:
    attempts = ReceiveAttempts()
    attempts.keep(attempt(1), [message("a")], now_ms=0, lease_ms=2 * ATTEMPT_MS_MAX)
    attempts.renewed(attempt(1), now_ms=ATTEMPT_MS_MAX - 1, lease_ms=LEASE_MS)

    assert attempts.find(attempt(1), now_ms=ATTEMPT_MS_MAX - 1)
    assert not attempts.find(attempt(1), now_ms=ATTEMPT_MS_MAX)


def test_one_message_that_is_deleted_or_changed_ends_the_attempt() -> None:
    attempts = ReceiveAttempts()
    attempts.keep(attempt(1), [message("a"), message("b")], now_ms=0, lease_ms=LEASE_MS)
    attempts.keep(attempt(2), [message("c")], now_ms=0, lease_ms=LEASE_MS)

    attempts.forget(UUID(int=2), ["a"])
    assert attempts.find(attempt(1), now_ms=0)
    attempts.forget(QUEUE, ["b", "unknown"])

    assert not attempts.find(attempt(1), now_ms=0)
    assert attempts.find(attempt(2), now_ms=0)


def test_the_oldest_attempts_are_forgotten_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receive_attempts, "ATTEMPTS_MAX", 2)
    monkeypatch.setattr(receive_attempts, "ATTEMPTS_BYTES_MAX", 40)
    attempts = ReceiveAttempts()

    for number in range(3):
        attempts.keep(attempt(number), [message(f"{number}")], now_ms=0, lease_ms=LEASE_MS)
    assert [bool(attempts.find(attempt(number), now_ms=0)) for number in range(3)] == [0, 1, 1]
    attempts.keep(attempt(3), [message("3", b"x" * 30)], now_ms=0, lease_ms=LEASE_MS)
    assert [bool(attempts.find(attempt(number), now_ms=0)) for number in range(4)] == [0, 0, 0, 1]
    attempts.keep(attempt(4), [message("4", b"x" * 41)], now_ms=0, lease_ms=LEASE_MS)
    assert [bool(attempts.find(attempt(number), now_ms=0)) for number in (3, 4)] == [1, 0]


def test_attempts_that_are_over_are_dropped() -> None:
    attempts = ReceiveAttempts()
    for number in range(100):
        now_ms = number * LEASE_MS
        attempts.keep(attempt(number), [message(f"{number}")], now_ms=now_ms, lease_ms=LEASE_MS)

    assert len(attempts._kept) == len(attempts._by_receipt) == 1


def test_a_request_is_the_same_whatever_its_order_and_the_address_of_its_queue() -> None:
    first = {"QueueUrl": "http://a/q", "MaxNumberOfMessages": 2, "WaitTimeSeconds": 1}
    second = {"WaitTimeSeconds": 1, "QueueUrl": "http://b/q", "MaxNumberOfMessages": 2}

    assert read_request(first) == read_request(second)
    assert read_request(first) != read_request(first | {"MaxNumberOfMessages": 3})
