from random import Random

import pytest

from penstock.errors import StorageFailed
from penstock.ids import Term
from penstock.log import Flush, LogSettings, PartitionLog

from .entries import (
    DIRECTORY,
    append,
    append_state,
    batch_of,
    checkpoint,
    contents,
    flush,
    new_log,
    open_log,
    values,
)


def pending(log: PartitionLog, *parts: bytes | str) -> Flush:
    """Append a record for bytes and a state entry for text; return the flush."""
    for part in parts:
        if isinstance(part, bytes):
            log.append_records(batch_of(part), term=Term(1), now_ms=0)
        else:
            log.append_state(part.encode(), term=Term(1), now_ms=0)
    taken = log.take_flush()
    assert taken is not None
    return taken


def test_records_are_written_before_state_and_rows_and_synced_after_all() -> None:
    disk, log = new_log()
    append(log, b"x")
    disk.trace = []

    taken = pending(log, b"a", b"b", "s")
    taken.run()

    assert disk.trace == ["write", "write", "write", "sync", "sync"]
    assert taken.is_synced
    assert taken.has_state


def test_records_alone_need_one_sync_and_state_alone_too() -> None:
    disk, log = new_log()
    append(log, b"x")

    disk.trace = []
    pending_records = pending(log, b"a")
    pending_records.run()
    log.finish(pending_records)
    assert disk.trace == ["write", "write", "sync"]

    disk.trace = []
    pending(log, "s").run()
    assert disk.trace == ["write", "write", "sync"]


def test_with_durability_os_records_are_not_synced() -> None:
    disk, log = new_log(sync_records=False)
    append(log, b"x")
    disk.trace = []

    taken = pending(log, b"a")
    taken.run()

    assert "sync" not in disk.trace
    assert not taken.is_synced


def test_with_durability_os_a_state_entry_makes_the_records_before_it_durable() -> None:
    for seed in range(40):
        disk, log = new_log(sync_records=False)
        append(log, b"a" * 600)
        append(log, b"b")
        append_state(log, b"s")
        told = contents(log)
        append(log, b"c" * 600)
        append(log, b"d")
        everything = contents(log)

        disk.crash(Random(seed), "subset")

        found = contents(open_log(disk))
        assert found[:3] == told
        assert found == everything[: len(found)]


def test_a_state_entry_syncs_older_records_also_after_the_topic_changed_to_synced() -> None:
    for seed in range(20):
        disk, log = new_log(sync_records=False)
        append(log, b"a")
        log.settings = LogSettings()
        append_state(log, b"s")

        disk.crash(Random(seed))

        assert values(open_log(disk)) == [b"a"]


def test_with_durability_os_a_power_cut_leaves_a_prefix() -> None:
    ends = set()
    for seed in range(60):
        disk, log = new_log(sync_records=False, segment_rows_max=4)
        for number in range(7):
            append(log, b"%d" % number * 300)
            if number == 1:
                checkpoint(log)
        told = contents(log)

        disk.crash(Random(seed), "subset")

        found = contents(open_log(disk, segment_rows_max=4))
        assert found == told[: len(found)]
        # A segment is synced whole before the next one begins.
        assert len(found) >= 4
        ends.add(len(found))

    assert ends == {4, 5, 6, 7}


@pytest.mark.parametrize("syncs", range(2))
def test_a_failed_sync_is_told_and_the_entries_are_not_called_written(syncs: int) -> None:
    disk, log = new_log()
    append(log, b"a")
    taken = pending(log, b"b", "s")
    disk.fail_sync(syncs)

    with pytest.raises(StorageFailed, match="sync"):
        taken.run()

    assert log.written_index == 1
    assert log.read(1, end_offset=2, bytes_max=100) is None
    # A second flush cannot be begun as if nothing had happened.
    with pytest.raises(AssertionError, match="still running"):
        log.append_records(batch_of(b"c"), term=Term(1), now_ms=0)
    disk.crash(Random(0))
    assert values(open_log(disk))[:1] == [b"a"]


@pytest.mark.parametrize("syncs", range(5))
def test_a_failed_sync_while_a_segment_is_created_is_told(syncs: int) -> None:
    disk, log = new_log(segment_rows_max=1)
    append(log, b"a")
    taken = pending(log, b"b")
    disk.fail_sync(syncs)

    with pytest.raises(StorageFailed):
        taken.run()

    disk.crash(Random(syncs))
    assert values(open_log(disk))[:1] == [b"a"]


@pytest.mark.parametrize("syncs", range(2))
def test_a_failed_sync_of_a_checkpoint_is_told_and_nothing_is_noted(syncs: int) -> None:
    disk, log = new_log(sync_records=False)
    append(log, b"a")
    run = log.take_checkpoint()
    assert run is not None
    disk.fail_sync(syncs)

    with pytest.raises(StorageFailed):
        run.run()

    assert disk.content(DIRECTORY / "checkpoint") == b""


@pytest.mark.parametrize("tears", [False, True])
@pytest.mark.parametrize("creates", [False, True])
def test_a_full_disk_is_survived_by_taking_the_flush_back(tears: bool, creates: bool) -> None:
    for room in range(0, 700, 13):
        disk, log = new_log(segment_rows_max=2 if creates else 1_000)
        append(log, b"a")
        append_state(log, b"s")
        told = contents(log)
        disk.tears_when_full = tears
        disk.capacity_bytes = log.size_bytes + room
        taken = pending(log, b"b" * 100, b"c" * 100, "t" * 100)
        try:
            taken.run()
        except OSError:
            disk.capacity_bytes = None
            log.abandon(taken)
        else:
            disk.capacity_bytes = None
            log.finish(taken)
            continue

        assert contents(log) == told
        assert (log.next_index, log.next_offset) == (2, 1)
        append_state(log, b"u")
        append(log, b"d", b"e")
        now = contents(log)
        assert now[:2] == told
        for seed in range(3):
            copy = disk.copy()
            copy.crash(Random(room * 3 + seed), "subset")
            assert contents(open_log(copy)) == now


def test_an_abandoned_state_entry_does_not_take_the_place_of_a_record() -> None:
    for seed in range(60):
        disk, log = new_log()
        append(log, b"a")
        taken = pending(log, b"b", "s")
        # There is room for the payloads, not for their rows.
        disk.capacity_bytes = log.size_bytes - 2 * 56 + 10
        with pytest.raises(OSError, match="full"):
            taken.run()
        disk.capacity_bytes = None
        log.abandon(taken)
        append(log, b"c")
        append(log, b"d")
        told = contents(log)

        disk.crash(Random(seed), "subset")

        assert contents(open_log(disk)) == told


def test_records_after_state_entries_of_the_same_flush_are_refused() -> None:
    _, log = new_log()
    log.append_state(b"s", term=Term(1), now_ms=0)

    with pytest.raises(AssertionError, match="records go before"):
        log.append_records(batch_of(b"a"), term=Term(1), now_ms=0)


def test_there_is_no_flush_when_nothing_was_appended() -> None:
    _, log = new_log()

    assert log.take_flush() is None
    append(log, b"a")
    assert log.take_flush() is None
    log.append_state(b"s", term=Term(1), now_ms=0)
    flush(log)
    assert log.written_index == 2
