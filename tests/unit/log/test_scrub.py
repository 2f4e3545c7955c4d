from multiprocessing import get_context
from pathlib import Path

import pytest

from penstock.ids import EntryIndex, Offset, Term
from penstock.log import Damage, LocalDisk, LogSettings, PartitionLog, scrub_segment
from penstock.testing import SimDisk

from .entries import DIRECTORY, append, append_state, batch_of, new_log

LOG = DIRECTORY / f"{0:020}.log"
STATE = DIRECTORY / f"{0:020}.state"
INDEX = DIRECTORY / f"{0:020}.index"


def sealed_log() -> tuple[SimDisk, PartitionLog]:
    disk, log = new_log(segment_rows_max=4)
    append(log, b"one", term=3)
    append_state(log, b"state", term=3)
    append(log, b"two", b"three", term=4)
    append_state(log, b"more", term=4)
    append(log, b"active", term=4)
    return disk, log


def damage_in(log: PartitionLog) -> list[Damage]:
    return list(scrub_segment(log.segments[0], lambda _: None))


def test_a_whole_segment_has_no_damage() -> None:
    _, log = sealed_log()

    assert [found for segment in log.segments for found in scrub_segment(segment, print)] == []


def test_every_flipped_byte_of_the_records_is_found_where_it_is() -> None:
    disk, log = sealed_log()
    rows = [(number, log.row_at(number)) for number in (0, 2)]

    for position in range(len(disk.content(LOG))):
        disk.flip_bit(LOG, position, bit=position % 8)
        (found,) = damage_in(log)
        (index, row) = next(pair for pair in rows if pair[1].log_end > position)
        assert (found.index, found.offset, found.is_log) == (index, row.first_offset, True)
        assert (found.start, found.end) == (row.log_position, row.log_end)
        disk.flip_bit(LOG, position, bit=position % 8)

    assert damage_in(log) == []


@pytest.mark.parametrize("path", [STATE, INDEX])
def test_every_flipped_byte_of_state_and_rows_is_found(path: Path) -> None:
    disk, log = sealed_log()
    start = 64 if path == INDEX else 0

    for position in range(start, len(disk.content(path))):
        disk.flip_bit(path, position, bit=position % 8)
        (found,) = damage_in(log)
        assert found.path == str(path)
        assert found.start <= position < found.end
        assert not found.is_log
        disk.flip_bit(path, position, bit=position % 8)


def test_a_file_that_ends_early_is_damage() -> None:
    disk, log = sealed_log()
    disk.put(LOG, disk.content(LOG)[:-3])

    (found,) = damage_in(log)

    assert found.reason == "the file ends 3 bytes early"


def test_entries_that_are_not_written_yet_are_not_read() -> None:
    _, log = new_log()
    append(log, b"a")
    log.append_records(batch_of(b"b"), term=1, now_ms=0)

    assert damage_in(log) == []


def test_the_pace_follows_the_bytes_that_are_read() -> None:
    _, log = sealed_log()
    sizes: list[int] = []

    list(scrub_segment(log.segments[0], sizes.append))

    assert sizes == [log.row_at(number).size for number in range(4)]


def test_a_process_outlives_the_cut_of_a_segment_that_it_checks(tmp_path: Path) -> None:
    # Only a memory map of a real file ends the process, so it is one of its own.
    process = get_context("spawn").Process(target=cut_while_it_is_checked, args=(tmp_path,))

    process.start()
    process.join()

    assert process.exitcode == 0


def cut_while_it_is_checked(directory: Path) -> None:
    log = PartitionLog(LocalDisk(), directory, LogSettings(segment_rows_max=1_000))
    log.begin_at(index=EntryIndex(1), offset=Offset(0), term=Term(0))
    for _ in range(2):
        for _ in range(1_000):
            log.append_state(b"state", term=Term(1), now_ms=0)
        flush = log.take_flush()
        assert flush is not None
        flush.run()
        log.finish(flush)
    sealed = log.segments[0]

    def cut(_: int) -> None:
        if sealed in log.segments:
            log.truncate(3)

    found = list(scrub_segment(sealed, cut))

    assert len(found) > 900
    assert sealed not in log.segments
