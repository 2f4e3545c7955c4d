"""Which files of an archive are worth putting together."""

from penstock.spark.archive_compaction import FILES_MIN, SMALL_BYTES, choose_files
from penstock.spark.archive_files import FILE_BYTES
from penstock.spark.archive_table import ArchiveFile


def file(
    number: int, size_bytes: int, *, date: str = "2026-01-01", partition: int = 0
) -> ArchiveFile:
    offsets = (number * 10, number * 10 + 9)
    return ArchiveFile(
        f"file-{number}", size_bytes, date, 10, (partition, partition), offsets, None
    )


def chosen_numbers(files: list[ArchiveFile]) -> list[list[int]]:
    return [[each.offsets[0] // 10 for each in chosen] for chosen in choose_files(files)]


def test_small_files_of_one_day_and_partition_are_put_together_in_order() -> None:
    small = [file(number, 1000) for number in reversed(range(FILES_MIN))]
    other_day = file(FILES_MIN, 1000, date="2026-01-02")
    other_partition = file(FILES_MIN + 1, 1000, partition=1)

    assert chosen_numbers([*small, other_day, other_partition]) == [list(range(FILES_MIN))]


def test_few_files_are_left_alone_however_small() -> None:
    assert chosen_numbers([file(number, 1000) for number in range(FILES_MIN - 1)]) == []


def test_files_of_a_fair_size_are_not_written_again() -> None:
    fair_bytes = FILE_BYTES // (FILES_MIN - 2)

    assert chosen_numbers([file(number, fair_bytes) for number in range(40)]) == []


def test_large_files_are_left_alone_between_small_ones() -> None:
    files = [file(number, 1000) for number in range(FILES_MIN)]
    files[3] = file(3, SMALL_BYTES)

    assert chosen_numbers(files) == []
    assert chosen_numbers([*files, file(FILES_MIN, 1000)]) == [[0, 1, 2, 4, 5, 6, 7, 8]]


def test_what_is_put_together_makes_about_one_large_file() -> None:
    size_bytes = FILE_BYTES // 20
    chosen = chosen_numbers([file(number, size_bytes) for number in range(45)])

    assert chosen == [list(range(20)), list(range(20, 40))]
