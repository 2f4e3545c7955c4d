"""What is asked of archive and log, and what a snapshot of a compacted topic shows."""

import json

import pyarrow as pa
import pytest
import typer

from penstock.cli.history import HistoryRequest, messages_of, newest_per_key
from penstock.client import Message


def message(offset: int, key: bytes | None, value: bytes | None, partition: int = 0) -> Message:
    return Message(
        topic="t",
        partition=partition,
        offset=offset,
        timestamp_ms=offset,
        key=key,
        value=value,
        headers=(),
    )


def request(**given: object) -> HistoryRequest:
    usual = {"topic": "t", "isolation": "read_committed", "storage": {}}
    return HistoryRequest(**{**usual, **given})  # type: ignore[arg-type]


def test_the_newest_value_of_each_key_is_shown_and_deleted_keys_are_not() -> None:
    history = [
        message(0, b"a", b"1"),
        message(1, b"b", b"2"),
        message(2, None, b"3"),
        message(3, b"a", b"4"),
        message(4, b"b", None),
        message(5, None, None),
        message(0, b"c", b"6", partition=1),
    ]

    shown = [(each.partition, each.offset) for each in newest_per_key(history)]

    assert shown == [(0, 2), (0, 3), (0, 5), (1, 0)]


def test_a_window_and_a_snapshot_become_options_of_the_source() -> None:
    wanted = request(from_ms=5, to_ms=9, archive_path="/a")
    window = wanted.options("here:9092", is_in_order=True)
    snapshot = request(snapshot_ms=7).options("here:9092", is_in_order=True)

    assert window["startingTimestamp"] == "5"
    assert window["endingTimestamp"] == "9"
    assert window["archivePath"] == "/a"
    assert (window["subscribe"], window["includeDeleted"]) == ("t", "true")
    assert snapshot["endingTimestamp"] == "7"
    assert "startingTimestamp" not in snapshot


def test_a_window_of_times_in_any_order_has_no_last_offset() -> None:
    window = request(from_ms=5, to_ms=9)

    assert "endingTimestamp" not in window.options("here:9092", is_in_order=False)
    admitted = [each for each in range(12) if window.admits(message(each, None, b""))]
    assert admitted == [5, 6, 7, 8]


def test_a_snapshot_has_all_messages_before_it_although_later_ones_came_between() -> None:
    snapshot = request(snapshot_ms=9)

    assert "endingTimestamp" not in snapshot.options("here:9092", is_in_order=False)
    assert snapshot.admits(message(8, None, b""))
    assert not snapshot.admits(message(9, None, b""))


def test_messages_may_be_dated_after_the_year_9999() -> None:
    microseconds = 1_700_000_000_000_000
    columns = {
        "key": pa.array([None], pa.binary()),
        "value": pa.array([b"v"]),
        "topic": ["t"],
        "partition": [0],
        "offset": [4],
        "timestamp": pa.array([1000 * microseconds], pa.timestamp("us", "UTC")),
        "headers": pa.nulls(1),
    }

    (found,) = messages_of([pa.record_batch(columns)])

    assert (found.offset, found.timestamp_ms) == (4, microseconds)


def test_an_offset_needs_the_partitions_that_it_is_for() -> None:
    options = request(partitions=(0, 2), offset="5").options("here:9092", is_in_order=True)

    assert json.loads(options["startingOffsets"]) == {"t": {"0": 5, "2": 5}}
    assert json.loads(options["assign"]) == {"t": [0, 2]}
    assert "startingOffsets" not in request(offset="beginning").options(
        "here:9092", is_in_order=True
    )
    for wrong in (
        request(offset="5"),
        request(offset="-3", partitions=(0,)),
        request(offset="end"),
    ):
        with pytest.raises(typer.BadParameter, match="a number together with --partition"):
            wrong.options("here:9092", is_in_order=True)
