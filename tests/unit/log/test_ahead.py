import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

import pytest

from penstock.errors import StorageFailed
from penstock.ids import Term
from penstock.log import (
    Flush,
    LocalDisk,
    LogSettings,
    PartitionLog,
    dump_file,
    scrub_segment,
    verify_directory,
)
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

PAGE = 4096
LOG = DIRECTORY / f"{0:020}.log"
STATE = DIRECTORY / f"{0:020}.state"
INDEX = DIRECTORY / f"{0:020}.index"


def log_with_zeros(**settings: object) -> tuple[SimDisk, PartitionLog]:
    """A log whose files have zeros behind their entries, and are durable."""
    disk, log = new_log(**settings)
    append(log, b"r" * 5_000)
    append_state(log, b"s" * 5_000)
    return disk, log


def pending(log: PartitionLog, *parts: bytes | str) -> Flush:
    for part in parts:
        if isinstance(part, bytes):
            log.append_records(batch_of(part), term=Term(1), now_ms=0)
        else:
            log.append_state(part.encode(), term=Term(1), now_ms=0)
    taken = log.take_flush()
    assert taken is not None
    return taken


def tail(disk: SimDisk, log: PartitionLog) -> bytes:
    return disk.content(LOG)[log.segments[-1].log_bytes :]


def test_small_flushes_find_zeros_to_overwrite_and_write_more_when_they_come_to_the_end() -> None:
    disk, log = new_log()
    sizes = []
    for _ in range(60):
        append(log, b"r" * 1_000)
        sizes.append(len(disk.content(LOG)))
        assert not tail(disk, log).strip(b"\0")

    assert sizes == sorted(sizes)
    assert len(set(sizes[5:])) <= 5
    assert len(values(log)) == 60


def test_a_file_below_a_page_has_no_zeros() -> None:
    disk, log = new_log()
    append(log, b"small")
    append_state(log, b"small")

    assert tail(disk, log) == b""
    assert len(disk.content(STATE)) == log.segments[-1].state_bytes


def test_large_flushes_and_unsynced_ones_write_no_zeros() -> None:
    disk, log = new_log()
    append(log, b"r" * 100_000)
    assert tail(disk, log) == b""

    disk, log = new_log(sync_records=False)
    append(log, b"r" * 5_000)
    assert tail(disk, log) == b""


def test_zeros_end_with_the_segment() -> None:
    disk, log = new_log(segment_bytes=7_000)

    append(log, b"r" * 5_000)

    assert len(disk.content(LOG)) == 7_000


def test_a_disk_without_room_for_zeros_takes_the_entries() -> None:
    disk, log = new_log()
    append(log, b"r" * 3_900)
    disk.tears_when_full = True
    disk.capacity_bytes = disk.used_bytes() + 2_000
    append(log, b"r" * 1_000)
    told = contents(log)
    assert 0 < len(tail(disk, log)) < 1_000
    disk.capacity_bytes = None

    disk.crash(Random(1), "subset")

    assert contents(open_log(disk)) == told


def test_a_sealed_segment_ends_with_its_entries() -> None:
    disk, log = log_with_zeros(segment_rows_max=2)
    assert tail(disk, log)
    sealed = log.segments[0]

    append(log, b"next")

    assert len(disk.content(LOG)) == sealed.log_bytes
    assert len(disk.content(STATE)) == sealed.state_bytes
    disk.crash(Random(0))
    assert len(contents(open_log(disk))) == 3


def test_a_crash_at_any_step_of_sealing_loses_nothing() -> None:
    steps = 0
    while True:
        disk, log = log_with_zeros(segment_rows_max=2)
        told = contents(log)
        flush = pending(log, b"next" * 2_000)
        disk.stop_before(steps)
        try:
            flush.run()
        except MachineStopped:
            for seed in range(10):
                copy = disk.copy()
                copy.crash(Random(seed), "subset")
                assert contents(open_log(copy))[:2] == told
        else:
            assert steps > 8
            return
        steps += 1


@pytest.mark.parametrize("syncs", [0, 1])
@pytest.mark.parametrize("is_checkpointed", [True, False])
def test_a_segment_is_sealed_although_the_sync_of_its_cut_failed_in_an_earlier_life(
    syncs: int, is_checkpointed: bool
) -> None:
    disk, log = log_with_zeros(segment_rows_max=2)
    if is_checkpointed:
        checkpoint(log)
    told = contents(log)
    flush = pending(log, b"next")
    disk.fail_sync(syncs)
    with pytest.raises(StorageFailed):
        flush.run()
    # The page cache outlives the process and shows a cut that is not on the disk.
    disk.kill()
    again = open_log(disk, segment_rows_max=2)

    append(again, b"next")
    disk.crash(Random(0))

    assert contents(open_log(disk))[:2] == told


def test_a_closed_log_ends_with_its_entries_also_when_a_power_cut_takes_the_cut_back() -> None:
    for seed in range(20):
        disk, log = log_with_zeros()
        told = contents(log)
        log.close()
        assert len(disk.content(LOG)) == log.segments[-1].log_bytes
        assert len(disk.content(STATE)) == log.segments[-1].state_bytes

        disk.crash(Random(seed), "subset")

        found = open_log(disk)
        assert (contents(found), found.cut_bytes, found.doubt) == (told, 0, (0, 0))


def test_a_start_after_a_kill_finds_zeros_and_leaves_them() -> None:
    disk, log = log_with_zeros()
    checkpoint(log)
    told = contents(log)
    disk.kill()
    disk.trace = []

    found = open_log(disk)

    assert disk.trace == ["sync_directory 0"]
    assert (contents(found), found.cut_bytes, found.doubt) == (told, 0, (0, 0))
    assert tail(disk, found)
    append(found, b"more" * 2_000)
    append_state(found, b"more" * 2_000)
    now = contents(found)
    disk.crash(Random(0))
    assert contents(open_log(disk)) == now


@pytest.mark.parametrize("path", [LOG, STATE])
def test_rot_in_the_zeros_is_cut_and_harms_nothing(path: Path) -> None:
    disk, log = log_with_zeros()
    checkpoint(log)
    told = contents(log)
    disk.flip_bit(path, len(disk.content(path)) - 100)
    disk.kill()

    found = open_log(disk)

    assert (contents(found), found.doubt) == (told, (0, 0))
    assert found.cut_bytes > 0
    assert tail(disk, found) == b""


def test_entries_that_were_given_up_do_not_come_back_under_zeros() -> None:
    for seed in range(30):
        disk, log = log_with_zeros()
        append(log, b"gone" * 2_000)
        append(log, b"gone" * 2_000)
        log.truncate(2)
        append(log, b"kept" * 300)
        told = contents(log)

        disk.crash(Random(seed), "subset")

        assert contents(open_log(disk)) == told


def test_a_flush_that_is_taken_back_leaves_no_zeros() -> None:
    disk, log = log_with_zeros()
    told = contents(log)
    flush = pending(log, b"b" * 17_000, "t" * 17_000)
    disk.capacity_bytes = disk.used_bytes() + 100
    with pytest.raises(OSError, match="full"):
        flush.run()
    disk.capacity_bytes = None

    log.abandon(flush)

    assert (contents(log), tail(disk, log)) == (told, b"")
    append(log, b"c" * 6_000)
    assert tail(disk, log)


FLUSHES: list[tuple[bytes | str, ...]] = [
    (b"a" * 9_000,),
    (b"a" * 3_000, b"b" * 3_000),
    (b"a" * 3_000, "s" * 3_000),
    ("s" * 9_000, "t"),
    # These end beyond the zeros, so that more are written.
    (b"a" * 20_000,),
    ("s" * 20_000,),
]


@pytest.mark.parametrize("parts", FLUSHES, ids=range(len(FLUSHES)))
@pytest.mark.parametrize("keeps_size", [True, False])
def test_any_subset_of_unsynced_pages_leaves_a_prefix_with_all_that_was_told(
    parts: tuple[bytes | str, ...], keeps_size: bool
) -> None:
    disk, log = log_with_zeros()
    told = contents(log)
    before = {path: disk.content(path) for path in (LOG, STATE, INDEX)}
    flush = pending(log, *parts)
    flush.run()
    after = {path: disk.content(path) for path in before}
    log.finish(flush)
    everything = contents(log)
    ends = set()

    for images in power_cuts(before, after, keeps_size=keeps_size):
        copy = disk.copy()
        for path, image in images.items():
            copy.put(path, image)
        found = open_log(copy)
        entries = contents(found)
        assert entries[: len(told)] == told
        assert entries == everything[: len(entries)]
        assert not [d for s in found.segments for d in scrub_segment(s, lambda _: None)]
        ends.add(len(entries))
        # What follows is as durable as ever, whatever the cut has left behind the end.
        append(found, b"next")
        now = contents(found)
        copy.crash(Random(len(ends)), "subset")
        assert contents(open_log(copy)) == now

    assert {len(told), len(everything)} <= ends


def power_cuts(
    before: dict[Path, bytes], after: dict[Path, bytes], *, keeps_size: bool
) -> Iterator[dict[Path, bytes]]:
    """Yield the files with every subset of the pages that a flush has changed."""
    changed = [(path, page) for path in before for page in changed_pages(before[path], after[path])]
    # The pages of zeros behind the last entry make no difference one by one.
    assert len(changed) <= 8
    for kept in product((False, True), repeat=len(changed)):
        images = {path: bytearray(content) for path, content in before.items()}
        for path, image in images.items():
            if keeps_size:
                image.extend(bytes(len(after[path]) - len(image)))
        for (path, page), is_kept in zip(changed, kept, strict=True):
            if is_kept:
                start = page * PAGE
                image = images[path]
                image.extend(bytes(max(0, start - len(image))))
                image[start : start + PAGE] = after[path][start : start + PAGE]
        yield {path: bytes(image) for path, image in images.items()}


def changed_pages(before: bytes, after: bytes) -> list[int]:
    padded = before.ljust(len(after), b"\0")
    pages = range((len(after) + PAGE - 1) // PAGE)
    return [p for p in pages if padded[p * PAGE :][:PAGE] != after[p * PAGE :][:PAGE]]


def test_zeros_are_shown_as_such_and_are_no_problem(tmp_path: Path) -> None:
    log = PartitionLog(LocalDisk(), tmp_path, LogSettings())
    append(log, b"r" * 5_000)
    append_state(log, b"s" * 5_000)

    report = verify_directory(tmp_path)

    assert (report.problems, report.partitions[0].tail_bytes) == ([], 0)
    assert report.partitions[0].size_bytes == log.size_bytes
    for name, end in ((LOG, log.segments[0].log_bytes), (STATE, log.segments[0].state_bytes)):
        *_, last = dump_file(tmp_path / name.name)
        size = (tmp_path / name.name).stat().st_size - end
        assert last == {"type": "zeros", "position": end, "size": size}
        assert json.dumps(last)
