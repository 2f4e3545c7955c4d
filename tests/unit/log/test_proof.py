"""Bytes that may have rotted since they were written are not sent before they were compared."""

from collections.abc import Iterator

import pytest

from penstock.errors import Corruption
from penstock.log import PartitionLog
from penstock.testing import SimDisk
from tests.unit.log.entries import (
    DIRECTORY,
    append,
    append_state,
    checkpoint,
    new_log,
    open_log,
    split_stored,
)

LOG = DIRECTORY / f"{0:020}.log"
READ_BYTES = 64 << 20


def filled_log() -> tuple[SimDisk, PartitionLog]:
    """A log with batches at offsets 0, 1 and 3, and other entries between them."""
    disk, log = new_log()
    append(log, b"one")
    append_state(log, b"state")
    append(log, b"two", b"three", term=2)
    append_state(log, b"more", term=2)
    append(log, b"four", term=2)
    # A start reads only what was written since.
    checkpoint(log)
    return disk, log


def served(log: PartitionLog, offset: int = 0) -> Iterator[int]:
    """Yield the first offsets of the batches that a reader is sent, one answer after another."""
    while (found := log.read(offset, end_offset=log.next_offset, bytes_max=READ_BYTES)) is not None:
        for batch in split_stored(found.read()):
            yield batch.header.base_offset
            offset = batch.header.next_offset


def test_no_byte_that_was_flipped_since_a_restart_is_served() -> None:
    disk, log = filled_log()
    ends = {row.log_end: row.first_offset for row in map(log.row_at, (0, 2, 4))}

    for position in range(len(disk.content(LOG))):
        disk.flip_bit(LOG, position, bit=position % 8)
        again = open_log(disk.copy())
        hit = next(offset for end, offset in ends.items() if end > position)
        offsets: list[int] = []
        with pytest.raises(Corruption, match=f"offset {hit} "):
            offsets.extend(served(again))
        assert offsets == [each for each in (0, 1, 3) if each < hit]
        disk.flip_bit(LOG, position, bit=position % 8)

    assert list(served(open_log(disk))) == [0, 1, 3]


def test_what_lies_behind_damage_is_served() -> None:
    disk, log = filled_log()
    disk.flip_bit(LOG, log.row_at(2).log_position + 70)

    again = open_log(disk)

    assert list(served(again, 3)) == [3]


def test_a_segment_that_is_sealed_is_compared_before_it_is_served() -> None:
    disk, log = new_log(segment_rows_max=2)
    for value in (b"one", b"two", b"three"):
        append(log, value)
    disk.flip_bit(LOG, log.row_at(1).log_position + 70)

    found = log.read(0, end_offset=3, bytes_max=READ_BYTES)

    assert found is not None
    assert [each.header.base_offset for each in split_stored(found.read())] == [0]
    for _ in range(2):
        with pytest.raises(Corruption):
            log.read(1, end_offset=3, bytes_max=READ_BYTES)


def test_a_large_range_is_compared_portion_by_portion() -> None:
    disk, log = new_log()
    size_bytes = 300_000
    for _ in range(8):
        append(log, bytes(size_bytes))
    append(log, bytes(5 * size_bytes))
    checkpoint(log)
    log = open_log(disk)

    sizes = []
    offset = 0
    while offset < 9:
        found = log.read(offset, end_offset=9, bytes_max=READ_BYTES)
        assert found is not None
        sizes.append(found.size_bytes // size_bytes)
        offset = split_stored(found.read())[-1].header.next_offset

    assert sizes == [3, 3, 2, 5]
    whole = log.read(0, end_offset=9, bytes_max=READ_BYTES)
    assert whole is not None
    assert whole.size_bytes > 13 * size_bytes


def test_small_batches_are_compared_a_thousand_at_a_time() -> None:
    disk, log = new_log()
    for _ in range(2_500):
        append(log, b"")
    checkpoint(log)
    log = open_log(disk)

    found = log.read(0, end_offset=2_500, bytes_max=READ_BYTES)

    assert found is not None
    assert len(split_stored(found.read())) == 1_000
    assert list(served(log)) == list(range(2_500))


def test_a_file_that_was_cut_while_nobody_looked_is_not_served_to_its_end() -> None:
    disk, log = new_log(segment_rows_max=2)
    for value in (b"one", b"two", b"three"):
        append(log, value)
    disk.open(LOG).truncate(log.row_at(1).log_end - 1)

    with pytest.raises(Corruption, match="the file ends 1 bytes early"):
        list(served(log))
