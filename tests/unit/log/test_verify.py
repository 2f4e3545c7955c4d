from pathlib import Path

import pytest

from penstock.errors import NotFound
from penstock.log import LocalDisk, LogSettings, PartitionLog, verify_directory

from .entries import append, append_state


def partition_in(path: Path) -> PartitionLog:
    log = PartitionLog(LocalDisk(), path, LogSettings(segment_rows_max=2))
    append(log, b"a", b"b")
    append_state(log, b"s")
    append(log, b"c")
    log.close()
    return log


def test_whole_partitions_are_counted(tmp_path: Path) -> None:
    log = partition_in(tmp_path / "orders" / "0")
    partition_in(tmp_path / "orders" / "1")

    report = verify_directory(tmp_path)

    assert report.problems == []
    assert [found.directory.name for found in report.partitions] == ["0", "1"]
    found = report.partitions[0]
    assert (found.segments, found.entries, found.records) == (2, 3, 3)
    assert (found.first_offset, found.next_offset, found.tail_bytes) == (0, 3, 0)
    assert found.size_bytes == log.size_bytes


def test_one_partition_can_be_verified_alone(tmp_path: Path) -> None:
    partition_in(tmp_path / "orders" / "0")

    assert len(verify_directory(tmp_path / "orders" / "0").partitions) == 1


def test_nothing_is_changed(tmp_path: Path) -> None:
    partition_in(tmp_path)
    with (tmp_path / f"{2:020}.log").open("ab") as file:
        file.write(b"torn")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    report = verify_directory(tmp_path)

    assert report.partitions[0].tail_bytes == 4
    assert report.problems == []
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "position", "problem"),
    [
        (f"{0:020}.log", 65, "checksum of the batch"),
        (f"{0:020}.log", 9, "bytes 0 to"),
        (f"{0:020}.state", 32, "state entry is not whole"),
        (f"{0:020}.index", 70, "checksum of the row"),
        (f"{0:020}.index", 0, "header of an index"),
    ],
)
def test_a_flipped_byte_is_named(tmp_path: Path, name: str, position: int, problem: str) -> None:
    partition_in(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[position] ^= 1
    (tmp_path / name).write_bytes(data)

    problems = verify_directory(tmp_path).problems

    assert len(problems) == 1
    assert problem in problems[0]
    assert name in problems[0]


@pytest.mark.parametrize("suffix", [".log", ".state"])
def test_a_missing_file_is_a_problem_and_the_other_segments_are_still_read(
    tmp_path: Path, suffix: str
) -> None:
    partition_in(tmp_path)
    (tmp_path / f"{0:020}{suffix}").unlink()

    report = verify_directory(tmp_path)

    assert len(report.problems) == 1
    assert f"{0:020}{suffix}" in report.problems[0]
    assert report.partitions[0].entries == 1


def test_a_missing_segment_in_the_middle_is_a_problem(tmp_path: Path) -> None:
    log = PartitionLog(LocalDisk(), tmp_path, LogSettings(segment_rows_max=1))
    for value in (b"a", b"b", b"c"):
        append(log, value)
    log.segments[1].remove_files()

    (problem,) = verify_directory(tmp_path).problems

    assert "begins with entry 2" in problem


def test_a_place_without_partitions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no partition"):
        verify_directory(tmp_path)
    with pytest.raises(NotFound, match="not a directory"):
        verify_directory(tmp_path / "none")
