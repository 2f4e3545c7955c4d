import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from penstock.errors import Corruption, StorageFailed
from penstock.ids import Term
from penstock.log import LogSettings, PartitionLog, scrub_segment
from penstock.testing import MachineStopped, SimDisk

from .entries import (
    DIRECTORY,
    append,
    append_state,
    batch_of,
    checkpoint,
    contents,
    new_log,
    open_log,
    values,
)

LOG = DIRECTORY / f"{0:020}.log"
STATE = DIRECTORY / f"{0:020}.state"
INDEX = DIRECTORY / f"{0:020}.index"


def small_log() -> tuple[SimDisk, PartitionLog]:
    """Seven entries, each of its own flush, of both kinds and two terms."""
    disk, log = new_log()
    append(log, b"one")
    append_state(log, b"first")
    append(log, b"two", b"three")
    append_state(log, b"second", term=2)
    append_state(log, b"third", term=2)
    append(log, b"four", term=2)
    append(log, b"five", term=2)
    return disk, log


FILES = {path: small_log()[0].content(path) for path in (LOG, STATE, INDEX)}


@pytest.mark.parametrize("cut", range(len(FILES[LOG]) + 1))
def test_cutting_the_records_keeps_whole_entries_when_no_row_speaks_for_the_rest(cut: int) -> None:
    disk, log = small_log()
    told = contents(log)
    ends = [row.log_end for row, _, _ in log.rows(0)]
    disk.put(LOG, FILES[LOG][:cut])
    disk.put(INDEX, FILES[INDEX][:64])
    disk.kill()

    found = open_log(disk)

    # State entries that follow the last whole record are in their place, so they are kept.
    assert contents(found) == told[: sum(end <= cut for end in ends)]
    last_end = ends[len(contents(found)) - 1] if contents(found) else 0
    assert found.cut_bytes >= len(FILES[LOG][last_end:cut].rstrip(b"\0"))
    assert disk.open(LOG).size() == found.segments[-1].log_bytes


@pytest.mark.parametrize("cut", range(len(FILES[STATE]) + 1))
def test_cutting_the_state_keeps_whole_entries_when_no_row_speaks_for_the_rest(cut: int) -> None:
    disk, log = small_log()
    told = contents(log)
    whole = sum(row.state_end <= cut for row, _, _ in log.rows(0))
    # A record whose state entries are missing cannot come from a crash: it is written after them.
    disk.put(STATE, FILES[STATE][:cut])
    disk.put(LOG, FILES[LOG][: max([row.log_end for row, _, _ in log.rows(0)][:whole], default=0)])
    disk.put(INDEX, FILES[INDEX][:64])
    disk.kill()

    assert contents(open_log(disk)) == told[:whole]


@pytest.mark.parametrize("cut", range(64, len(FILES[INDEX]) + 1))
def test_cutting_the_rows_loses_nothing(cut: int) -> None:
    disk, log = small_log()
    told = contents(log)
    disk.put(INDEX, FILES[INDEX][:cut])
    disk.kill()

    found = open_log(disk)

    assert contents(found) == told
    assert disk.open(INDEX).size() == len(FILES[INDEX])


@pytest.mark.parametrize("cut", range(64))
def test_a_torn_header_of_a_segment_with_entries_is_damage(cut: int) -> None:
    disk, _ = small_log()
    disk.put(INDEX, FILES[INDEX][:cut])
    disk.kill()

    with pytest.raises(Corruption, match="not empty"):
        open_log(disk)


@pytest.mark.parametrize("path", [LOG, STATE])
def test_a_file_cut_below_an_acknowledged_entry_is_damage_while_its_rows_are_there(
    path: Path,
) -> None:
    _, log = small_log()
    last = log.row_at(log.next_index - 1)
    end = last.log_position if path == LOG else last.state_end
    for cut in range(end):
        disk = small_log()[0]
        disk.put(path, FILES[path][:cut])
        disk.kill()
        with pytest.raises(Corruption, match=r"acknowledged|damaged"):
            open_log(disk)


@pytest.mark.parametrize("path", [LOG, STATE, INDEX])
def test_a_file_cut_below_the_checkpoint_is_damage(path: Path) -> None:
    for cut in range(64 if path == INDEX else 0, len(FILES[path])):
        disk, log = small_log()
        checkpoint(log)
        disk.put(path, FILES[path][:cut])
        disk.kill()
        with pytest.raises(Corruption):
            open_log(disk)


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("path", [LOG, STATE, INDEX])
def test_a_flipped_byte_is_never_served_and_never_cuts_what_was_acknowledged(
    path: Path, has_checkpoint: bool
) -> None:
    for position in range(len(FILES[path])):
        disk, log = small_log()
        told = contents(log)
        if has_checkpoint:
            checkpoint(log)
        disk.flip_bit(path, position, bit=position % 8)
        disk.kill()
        try:
            found = open_log(disk)
            damage = [d for segment in found.segments for d in scrub_segment(segment, _no_pause)]
        except Corruption:
            continue
        if damage:
            continue
        entries = contents(found)
        if has_checkpoint or entries == told:
            assert entries == told
            assert found.doubt == (0, 0)
        else:
            # Nothing tells rot in the last flush from a write that the crash tore.
            assert entries == told[:-1]
            assert found.doubt == (told[-1].term, told[-1].index)


@pytest.mark.parametrize("suffix", [".log", ".state", ".index"])
def test_a_truncated_file_of_a_sealed_segment_is_damage(suffix: str) -> None:
    disk, log = new_log(segment_rows_max=2)
    for number in range(3):
        append(log, b"r%d" % number)
        append_state(log, b"s%d" % number)
    path = DIRECTORY / f"{2:020}{suffix}"
    whole = disk.content(path)

    for cut in range(len(whole)):
        disk.put(path, whole[:cut])
        disk.kill()
        with pytest.raises(Corruption):
            open_log(disk)

    disk.put(path, whole)
    disk.kill()
    assert open_log(disk).next_index == 6


def test_a_segment_missing_in_the_middle_is_damage_and_its_files_are_left_alone() -> None:
    disk, log = new_log(segment_rows_max=1)
    for value in (b"a", b"b", b"c"):
        append(log, value)
    disk.remove(DIRECTORY / f"{1:020}.log")
    names = disk.names(DIRECTORY)

    with pytest.raises(Corruption, match=re.escape(f"{1:020}.log is missing")):
        open_log(disk)

    assert disk.names(DIRECTORY) == names


@pytest.mark.parametrize("removed", [1, 2, 3])
@pytest.mark.parametrize("rows_max", [1, 100])
def test_the_last_segment_missing_is_damage_and_its_files_are_left_alone(
    removed: int, rows_max: int
) -> None:
    disk, log = new_log(segment_rows_max=rows_max)
    for value in (b"a", b"b", b"c"):
        append(log, value)
    checkpoint(log)
    last = log.segments[-1].first_index
    for suffix in (".log", ".state", ".index")[:removed]:
        disk.remove(DIRECTORY / f"{last:020}{suffix}")
    names = disk.names(DIRECTORY)
    disk.kill()

    with pytest.raises(Corruption, match=re.escape(f"{last:020}.log is missing")):
        open_log(disk)

    assert disk.names(DIRECTORY) == names


@pytest.mark.parametrize("steps", range(12))
def test_a_cut_of_whole_segments_that_a_crash_stops_is_no_damage(steps: int) -> None:
    disk, log = new_log(segment_rows_max=1)
    for value in (b"a", b"b", b"c"):
        append(log, value)
    checkpoint(log)
    disk.stop_before(steps)
    with suppress(MachineStopped):
        log.truncate(0)
    disk.kill()

    found = open_log(disk, segment_rows_max=1)

    assert values(found) in ([], [b"a"], [b"a", b"b"], [b"a", b"b", b"c"])


@pytest.mark.parametrize("removed", [1, 2, 3])
def test_a_removal_that_a_crash_cut_short_is_finished(removed: int) -> None:
    disk, log = new_log(segment_rows_max=1)
    for value in (b"a", b"b", b"c"):
        append(log, value)
    for suffix in (".log", ".state", ".index")[:removed]:
        disk.remove(DIRECTORY / f"{0:020}{suffix}")

    found = open_log(disk)

    assert values(found) == [b"b", b"c"]
    assert (found.first_index, found.first_offset) == (1, 1)
    assert not [name for name in disk.names(DIRECTORY) if name.startswith(f"{0:020}")]


@pytest.mark.parametrize("steps", range(6))
def test_a_creation_that_a_crash_cut_short_leaves_no_trace_or_an_empty_segment(steps: int) -> None:
    disk, log = new_log(segment_rows_max=1)
    append(log, b"a")
    log.append_records(batch_of(b"b"), term=Term(1), now_ms=0)
    taken = log.take_flush()
    assert taken is not None
    # The three syncs that seal the segment before come first.
    disk.stop_before(3 + steps)
    with pytest.raises(MachineStopped):
        taken.run()
    disk.kill()

    found = open_log(disk, segment_rows_max=1)

    assert values(found) == [b"a"]
    append(found, b"c")
    assert (values(found), found.next_index) == ([b"a", b"c"], 2)


def test_records_of_another_place_or_an_older_term_end_the_scan() -> None:
    disk, log = new_log()
    append(log, b"a", term=3)
    data = disk.content(LOG)
    for wrong in (data, _stamped(data, offset=1, term=2)):
        disk.put(LOG, data + wrong)
        disk.kill()
        assert values(open_log(disk)) == [b"a"]
    disk.put(LOG, data + _stamped(data, offset=1, term=3))
    disk.kill()
    assert values(open_log(disk)) == [b"a", b"a"]


def test_a_record_is_not_given_the_index_of_a_state_entry_that_is_missing() -> None:
    disk, log = new_log()
    append(log, b"a")
    append_state(log, b"s")
    append(log, b"b")
    disk.put(STATE, b"")
    disk.kill()

    # The row of `b` proves that the state entry was durable.
    with pytest.raises(Corruption, match="entry 1"):
        open_log(disk)


def test_a_clean_start_writes_nothing() -> None:
    disk, log = small_log()
    log.close()
    disk.trace = []

    open_log(disk)

    assert disk.trace == ["sync_directory 0"]


def test_what_a_killed_process_wrote_is_durable_after_the_next_start() -> None:
    disk, log = new_log(sync_records=False)
    append(log, b"a")
    append(log, b"b")
    disk.kill()

    open_log(disk)

    _after_power_cut(disk, lambda found: values(found) == [b"a", b"b"])


@pytest.mark.parametrize("seed", range(10))
def test_what_a_failed_sync_left_in_the_page_cache_is_durable_after_the_next_start(
    seed: int,
) -> None:
    disk, log = new_log()
    append(log, b"one")
    disk.fail_sync()
    with pytest.raises(StorageFailed):
        append(log, b"two")
    disk.kill()
    found = contents(open_log(disk))

    disk.crash(Random(seed))

    assert contents(open_log(disk)) == found


def test_a_cut_that_a_killed_process_began_is_finished_without_renumbering() -> None:
    for step in range(9):
        for seed in range(30):
            disk, log = new_log()
            append_state(log, b"one")
            append(log, b"a")
            append_state(log, b"two")
            append(log, b"b")
            told = contents(log)
            # The rows are cut durably, the records only in the page cache.
            disk.stop_before(5)
            with pytest.raises(MachineStopped):
                log.truncate(0)
            assert disk.content(LOG) == b""
            disk.kill()
            disk.stop_before(step)
            with pytest.raises(MachineStopped):
                open_log(disk)
            disk.crash(Random(seed), "subset")

            found = contents(open_log(disk))
            assert found == told[: len(found)]


def test_the_last_term_and_offset_survive_the_removal_of_all_older_segments() -> None:
    disk, log = new_log(segment_ms=10)
    append(log, b"a", term=7)
    assert log.seal_if_due(now_ms=100)
    old = log.below(1, deletable_index=1)
    log.forget(old)
    for segment in old:
        segment.remove_files()

    found = open_log(disk)

    assert (found.first_index, found.next_index) == (1, 1)
    assert (found.first_offset, found.next_offset) == (1, 1)
    assert (found.last_term, found.term_at(0)) == (7, 7)


def _no_pause(size_bytes: int) -> None:
    pass


def _stamped(data: bytes, *, offset: int, term: int) -> bytes:
    return offset.to_bytes(8, "big") + data[8:12] + term.to_bytes(4, "big") + data[16:]


def _after_power_cut(disk: SimDisk, is_right: Callable[[PartitionLog], bool]) -> None:
    for seed in range(30):
        copy = disk.copy()
        copy.crash(Random(seed), "subset")
        assert is_right(PartitionLog(copy, DIRECTORY, LogSettings()))
