"""Where reading starts and stops."""

import pytest

from penstock.cli.bounds import Bounds, grows_in_time, start_offset
from penstock.client import Message, OffsetRange, TopicSetting
from penstock.errors import OffsetOutOfRange
from penstock.ids import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
HELD = OffsetRange(start=10, end=20)


def message(partition: TopicPartition, offset: int, timestamp_ms: int | None = 0) -> Message:
    return Message(
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        key=None,
        value=b"",
        headers=(),
    )


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("beginning", 10), ("end", 20), ("15", 15), ("10", 10), ("20", 20), ("-3", 17), ("-99", 10)],
)
def test_a_start_is_found_in_what_the_partition_holds(wanted: str, expected: int) -> None:
    assert start_offset(wanted, P0, HELD) == expected


@pytest.mark.parametrize("wanted", ["9", "21"])
def test_an_offset_that_is_not_held_is_refused_with_the_limits(wanted: str) -> None:
    with pytest.raises(OffsetOutOfRange, match=f"offset is {wanted}, t-0 holds 10 up to 20"):
        start_offset(wanted, P0, HELD)


def test_without_bounds_reading_never_ends() -> None:
    bounds = Bounds()
    bounds.admits(message(P0, 1))
    bounds.reached_end(P0)

    assert not bounds.is_done({P0}, now_ms=0)


def test_the_count_is_taken_over_all_partitions() -> None:
    bounds = Bounds(count_max=2)

    assert bounds.admits(message(P0, 1))
    assert not bounds.is_done({P0, P1}, now_ms=0)
    assert bounds.admits(message(P1, 1))
    assert bounds.is_done({P0, P1}, now_ms=0)
    assert not bounds.admits(message(P1, 2))


def test_reading_to_the_end_waits_for_every_assigned_partition() -> None:
    bounds = Bounds(exit_at_end=True)
    bounds.reached_end(P0)

    assert not bounds.is_done({P0, P1}, now_ms=0)
    bounds.reached_end(P1)
    assert bounds.is_done({P0, P1}, now_ms=0)


def test_a_message_after_the_end_reopens_its_partition() -> None:
    bounds = Bounds(exit_at_end=True)
    bounds.reached_end(P0)
    bounds.admits(message(P0, 5))

    assert not bounds.is_done({P0}, now_ms=0)


def test_a_partition_is_finished_with_the_last_message_before_its_end() -> None:
    bounds = Bounds(ends={P0: 7}, to_ms=100)

    assert bounds.admits(message(P0, 6))
    assert bounds.is_done({P0}, now_ms=0)
    assert not bounds.admits(message(P0, 7))


def test_an_end_that_compaction_removed_is_recognised_by_what_follows() -> None:
    bounds = Bounds(ends={P0: 7}, to_ms=100)
    bounds.admits(message(P0, 3))

    assert not bounds.is_done({P0}, now_ms=0)
    assert not bounds.admits(message(P0, 9))
    assert bounds.is_done({P0}, now_ms=0)


def test_without_a_known_end_the_first_late_message_finishes_its_partition_only() -> None:
    bounds = Bounds(to_ms=100)

    assert bounds.admits(message(P0, 1, timestamp_ms=99))
    assert not bounds.admits(message(P0, 2, timestamp_ms=100))
    assert not bounds.is_done({P0, P1}, now_ms=50)
    assert not bounds.admits(message(P1, 1, timestamp_ms=500))
    assert bounds.is_done({P0, P1}, now_ms=50)


def test_messages_of_a_window_are_told_by_their_times_in_any_order() -> None:
    bounds = Bounds(ends={P0: 5}, from_ms=95, to_ms=115, skips_late=True)
    times_ms = [100, 120, 110, 90, 130]

    admitted = [
        bounds.admits(message(P0, offset, time_ms)) for offset, time_ms in enumerate(times_ms)
    ]

    assert admitted == [True, False, True, False, False]
    assert bounds.is_done({P0}, now_ms=200)


def test_messages_outside_of_the_window_do_not_count() -> None:
    bounds = Bounds(count_max=1, from_ms=50)

    assert not bounds.admits(message(P0, 0, timestamp_ms=49))
    assert not bounds.admits(message(P0, 1, timestamp_ms=None))
    assert not bounds.is_done({P0}, now_ms=0)
    assert bounds.admits(message(P0, 2, timestamp_ms=50))
    assert bounds.is_done({P0}, now_ms=0)


def test_where_late_messages_are_skipped_ends_are_needed_once_the_time_has_passed() -> None:
    bounds = Bounds(to_ms=100, skips_late=True)
    bounds.admits(message(P0, 0, timestamp_ms=500))

    assert not bounds.lacks_ends(now_ms=99)
    assert not bounds.is_done({P0}, now_ms=99)
    assert bounds.lacks_ends(now_ms=100)
    bounds.ends = {P0: 2}
    assert not bounds.lacks_ends(now_ms=100)
    assert not bounds.admits(message(P0, 2, timestamp_ms=50))
    assert bounds.is_done({P0}, now_ms=100)


@pytest.mark.parametrize(("kind", "expected"), [("CreateTime", False), ("LogAppendTime", True)])
def test_times_are_in_order_only_where_the_topic_gives_them(kind: str, expected: bool) -> None:
    setting = TopicSetting(name="message.timestamp.type", value=kind, is_default=False)

    assert grows_in_time([setting]) is expected


def test_once_the_time_has_passed_the_end_of_the_topic_is_the_end() -> None:
    bounds = Bounds(to_ms=100)
    bounds.reached_end(P0)

    assert not bounds.is_done({P0}, now_ms=99)
    assert bounds.is_done({P0}, now_ms=100)


def test_partitions_without_anything_of_interest_do_not_hold_up_the_end() -> None:
    bounds = Bounds(ends={P0: 5}, to_ms=100)
    bounds.skip({P0})

    assert bounds.is_done({P0}, now_ms=0)


def test_nothing_assigned_ends_a_reading_only_where_an_end_was_asked_for() -> None:
    assert Bounds(exit_at_end=True).is_done(set(), now_ms=0)
    assert not Bounds().is_done(set(), now_ms=0)
