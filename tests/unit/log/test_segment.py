import pytest

from penstock.errors import Corruption
from penstock.log import PartitionLog
from penstock.testing import MachineStopped, SimDisk

from .entries import (
    DIRECTORY,
    append,
    append_state,
    batch_of,
    decode,
    flush,
    new_log,
    split_stored,
)


def offsets_read(log: PartitionLog, offset: int, end_offset: int, bytes_max: int) -> list[int]:
    """Return the first offset of each batch that one read gives."""
    found = log.segments[0].range_from(offset=offset, end_offset=end_offset, bytes_max=bytes_max)
    if found is None:
        return []
    return [batch.header.base_offset for batch in split_stored(found.read())]


@pytest.fixture
def log() -> PartitionLog:
    """Batches at offsets 0, 2, 3 and 6, with state entries around them."""
    _, log = new_log()
    append_state(log, b"s")
    append(log, b"a", b"b")
    append(log, b"c")
    append_state(log, b"s")
    append_state(log, b"s")
    append(log, b"d", b"e", b"f")
    append(log, b"g")
    append_state(log, b"s")
    return log


@pytest.mark.parametrize(
    ("offset", "end_offset", "found"),
    [
        (0, 7, [0, 2, 3, 6]),
        (1, 7, [0, 2, 3, 6]),
        (2, 7, [2, 3, 6]),
        (4, 7, [3, 6]),
        (6, 7, [6]),
        (7, 7, []),
        (9, 20, []),
        (0, 6, [0, 2, 3]),
        (0, 5, [0, 2]),
        (0, 1, []),
        (0, 0, []),
        (3, 3, []),
    ],
)
def test_a_range_holds_whole_batches_from_the_one_with_the_offset(
    log: PartitionLog, offset: int, end_offset: int, found: list[int]
) -> None:
    assert offsets_read(log, offset, end_offset, 1 << 20) == found


def test_a_range_ends_at_the_last_boundary_within_the_limit(log: PartitionLog) -> None:
    ends = [row.log_end for row, _, _ in log.rows(0) if row.records]
    starts = [0, 2, 3, 6]

    for limit in range(ends[-1] + 2):
        whole = sum(end <= limit for end in ends)
        assert offsets_read(log, 0, 7, limit) == starts[: max(1, whole)]


def test_a_batch_larger_than_the_limit_is_given_alone(log: PartitionLog) -> None:
    assert offsets_read(log, 3, 7, 1) == [3]
    assert offsets_read(log, 6, 7, 0) == [6]


def test_unwritten_entries_are_not_given(log: PartitionLog) -> None:
    log.append_records(batch_of(b"h"), term=1, now_ms=0)

    assert offsets_read(log, 6, 8, 1 << 20) == [6]
    assert offsets_read(log, 7, 8, 1 << 20) == []
    flush(log)
    assert offsets_read(log, 7, 8, 1 << 20) == [7]


def test_damage_is_never_part_of_a_range(log: PartitionLog) -> None:
    row = log.row_at(5)
    log.segments[0].damage.append((row.log_position, row.log_end))

    assert offsets_read(log, 0, 7, 1 << 20) == [0, 2]
    with pytest.raises(Corruption, match="damaged between bytes"):
        offsets_read(log, 4, 7, 1 << 20)
    assert offsets_read(log, 6, 7, 1 << 20) == [6]


def test_a_range_of_a_removed_file_can_still_be_sent() -> None:
    _, log = new_log()
    append(log, b"a")
    part = log.read(0, end_offset=1, bytes_max=1 << 20)
    assert part is not None

    log.segments[0].remove_files()

    assert [record.value for record in decode(split_stored(part.read())[0])] == [b"a"]


def test_sizes_count_all_three_files() -> None:
    disk, log = new_log()
    append(log, b"a")
    append_state(log, b"s")

    files = [name for name in disk.names(DIRECTORY) if name != "checkpoint"]

    assert log.size_bytes == sum(len(disk.content(DIRECTORY / name)) for name in files)


@pytest.mark.parametrize("steps", range(5))
def test_removal_takes_the_records_first(steps: int) -> None:
    disk, log = new_log()
    append(log, b"a")
    disk.stop_before(steps)

    with pytest.raises(MachineStopped):
        log.segments[0].remove_files()

    disk.kill()
    suffixes = {name[20:] for name in disk.names(DIRECTORY)}
    assert (steps == 0) == (".log" in suffixes)
    if steps < 4:
        assert ".index" in suffixes


def test_a_disk_without_descriptors_says_so() -> None:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)

    assert disk.create(DIRECTORY / "f").fileno() == -1
