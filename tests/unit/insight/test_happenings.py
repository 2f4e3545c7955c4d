"""What a journal means for messages: only what took effect is told."""

from itertools import count
from typing import Any

from penstock.client import JournalEntry
from penstock.insight import Follower, Happening


def follow(*events: dict[str, Any]) -> list[tuple[str, int, int, str]]:
    """Return kind, start, end and reason of what happened, in the order of the events."""
    indexes = count(1)
    entries = [JournalEntry(index=next(indexes), group="g", **event) for event in events]
    return [(each.kind, each.start, each.end, each.reason) for each in Follower().follow(entries)]


def leased(delivery: int, start: int, end: int, *, at: int = 0, until: int = 100) -> dict[str, Any]:
    return {"kind": "leased", "at": at, "until": until, "runs": ((delivery, start, end),)}


def acked(delivery: int, start: int, end: int, *, at: int = 10) -> dict[str, Any]:
    return {"kind": "acked", "at": at, "runs": ((delivery, start, end),)}


def returned(delivery: int, offset: int, reason: str) -> dict[str, Any]:
    return {"kind": "returned", "at": 20, "failures": ((delivery, offset, reason),)}


def test_messages_are_delivered_and_acked_in_runs() -> None:
    assert follow(leased(1, 0, 10), acked(1, 0, 4), acked(1, 4, 10)) == [
        ("delivered", 0, 10, ""),
        ("acked", 0, 4, ""),
        ("acked", 4, 10, ""),
    ]


def test_an_ack_settles_nothing_that_is_not_out() -> None:
    events = [
        leased(1, 0, 4),
        acked(1, 0, 2),
        acked(1, 0, 4),
        {"kind": "expired", "at": 100, "deliveries": (1,)},
        acked(1, 0, 4, at=110),
    ]

    assert [each for each in follow(*events) if each[0] == "acked"] == [
        ("acked", 0, 2, ""),
        ("acked", 2, 4, ""),
    ]


def test_a_lease_that_ends_is_an_expiry_and_an_extended_one_is_not() -> None:
    events = [
        leased(1, 0, 3),
        {"kind": "extended", "at": 50, "until": 200, "runs": ((1, 1, 2),)},
        {"kind": "expired", "at": 100, "deliveries": (1,)},
        acked(1, 1, 2, at=150),
    ]

    assert follow(*events)[1:] == [
        ("expired", 0, 1, "lease ended"),
        ("expired", 2, 3, "lease ended"),
        ("acked", 1, 2, ""),
    ]


def test_what_failed_is_delivered_again_and_dies_with_its_last_reason() -> None:
    events = [
        leased(1, 0, 3),
        returned(1, 1, "first"),
        leased(2, 1, 2),
        {"kind": "rejected", "at": 30, "failures": ((2, 1, "last"),)},
        {"kind": "dead_lettered", "at": 40, "runs": ((-1, 1, 2),)},
        leased(3, 1, 4),
    ]

    assert follow(*events)[1:] == [
        ("returned", 1, 2, "first"),
        ("redelivered", 1, 2, ""),
        ("rejected", 1, 2, "last"),
        ("dead_lettered", 1, 2, "last"),
        ("delivered", 1, 4, ""),
    ]


def test_runs_are_split_where_some_were_delivered_before() -> None:
    events = [leased(1, 5, 6), returned(1, 5, "no"), leased(2, 4, 7)]

    assert follow(*events)[2:] == [
        ("delivered", 4, 5, ""),
        ("redelivered", 5, 6, ""),
        ("delivered", 6, 7, ""),
    ]


def test_a_delivery_from_before_the_journal_is_believed() -> None:
    assert follow(acked(7, 0, 3), leased(9, 3, 4), acked(8, 1, 2)) == [
        ("acked", 0, 3, ""),
        ("delivered", 3, 4, ""),
        ("acked", 1, 2, ""),
    ]


def test_a_group_that_begins_anew_forgets_what_was_out() -> None:
    events = [leased(1, 0, 2), {"kind": "reset", "at": 5, "floor": 1}, leased(2, 1, 2)]

    assert follow(*events)[1:] == [("created", 1, 1, ""), ("delivered", 1, 2, "")]


def test_messages_that_were_dropped_unread_are_told() -> None:
    entry = JournalEntry(index=1, kind="leased", group="g", at=3, dropped=((0, 2),))

    assert list(Follower().follow([entry])) == [Happening("g", "dropped", 0, 2, 3)]
