"""What a partition remembers of its producers, and for how long."""

from penstock.cluster.topic_machine import (
    Archived,
    TopicMachine,
    encode_archived,
    encode_start_moved,
)
from penstock.ids import EntryIndex, Offset
from penstock.log import StateEntry
from penstock.record import BatchHeader, Record, encode_batch, read_header

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def header(producer_id: int, *, at_ms: int, sequence: int = 0) -> BatchHeader:
    record = Record(0, at_ms, None, b"v")
    return read_header(
        encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    )


def machine(*headers: BatchHeader) -> TopicMachine:
    made = TopicMachine(producer_expiry_ms=HOUR_MS)
    for offset, each in enumerate(headers):
        made.apply_records(each, Offset(offset), b"")
    return made


def restored(snapshot: bytes) -> TopicMachine:
    made = TopicMachine(producer_expiry_ms=HOUR_MS)
    made.restore(snapshot, EntryIndex(0))
    return made


def test_a_snapshot_holds_all_that_the_entries_said() -> None:
    original = machine(header(1, at_ms=NOW_MS), header(2, at_ms=NOW_MS))
    original.apply_state(StateEntry(2, 1, 2, encode_start_moved(Offset(1))))

    again = restored(original.snapshot())

    assert again.start_offset == 1
    assert again.producers == original.producers
    assert again.snapshot() == original.snapshot()


def test_the_start_never_moves_back() -> None:
    made = machine()

    for offset, expected in ((5, 5), (3, 5), (8, 8)):
        assert made.apply_state(StateEntry(0, 1, 0, encode_start_moved(Offset(offset)))) == expected


def test_an_archive_never_goes_back_unless_it_is_another_one() -> None:
    made = machine()
    reports = (
        (Archived("/a", "first", 5, 0), 5),
        (Archived("/a", "first", 3, 0), 5),
        (Archived("/a", "second", 2, 0), 2),
        (Archived("/b", "third", 1, 0), 1),
    )

    for event, expected in reports:
        assert made.apply_state(StateEntry(0, 1, 0, encode_archived(event))) == expected

    again = restored(made.snapshot())
    assert again.archived_offset("/b") == 1
    assert again.archived_offset("/a") == 0
    assert again.snapshot() == made.snapshot()


def test_a_producer_that_has_been_silent_for_long_is_forgotten() -> None:
    made = machine(header(1, at_ms=NOW_MS), header(2, at_ms=NOW_MS + HOUR_MS + 1))

    assert list(restored(made.snapshot()).producers) == [2]


def test_a_producer_of_old_records_is_not_taken_for_a_silent_one() -> None:
    made = machine(header(1, at_ms=NOW_MS), header(2, at_ms=NOW_MS - 100 * HOUR_MS))

    assert list(restored(made.snapshot()).producers) == [1, 2]


def test_producers_age_the_same_with_and_without_a_restart() -> None:
    later = header(-1, at_ms=NOW_MS + HOUR_MS + 1)
    running = machine(header(1, at_ms=NOW_MS))
    running.apply_records(later, Offset(1), b"")
    restarted = machine(header(1, at_ms=NOW_MS))
    restarted.apply_records(later, Offset(1), b"")
    restarted = restored(restarted.snapshot())

    assert running.snapshot() == restarted.snapshot()
    assert running.producers == restarted.producers == {}
