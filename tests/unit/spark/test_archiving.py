"""What a micro-batch adds to an archive, decided from manifests alone."""

import pytest

from penstock.errors import Conflict
from penstock.spark.archive_source import Manifest, decode_manifest, encode_manifests
from penstock.spark.archive_table import ArchiveFile
from penstock.spark.archiving import Epoch, plan_epoch


def file(name: str) -> ArchiveFile:
    return ArchiveFile(name, 1, "2025-11-16", 5, (0, 0), (0, 9), (1000, 2000))


A, B = file("a"), file("b")


def test_files_of_joining_ranges_take_a_partition_to_their_end() -> None:
    found = [Manifest(0, 10, 20, A), Manifest(0, 0, 10, B), Manifest(1, 5, 6, None)]

    assert plan_epoch("t", found, {0: None, 1: 5}) == Epoch([A, B], {0: 20, 1: 6})


def test_a_range_with_several_files_counts_once() -> None:
    found = [Manifest(0, 0, 10, A), Manifest(0, 0, 10, B)]

    assert plan_epoch("t", found, {}) == Epoch([A, B], {0: 10})


def test_what_an_earlier_attempt_has_committed_is_not_committed_again() -> None:
    found = [Manifest(0, 0, 10, A), Manifest(1, 0, 10, B)]

    assert plan_epoch("t", found, {0: 10, 1: None}) == Epoch([B], {1: 10})
    assert plan_epoch("t", found, {0: 10, 1: 12}) == Epoch([], {})


def test_offsets_that_were_deleted_before_they_were_archived_are_passed_over() -> None:
    assert plan_epoch("t", [Manifest(0, 15, 20, A)], {0: 10}) == Epoch([A], {0: 20})


@pytest.mark.parametrize(
    "ranges", [[(5, 15)], [(10, 12), (13, 15)], [(10, 13), (12, 15)]], ids=repr
)
def test_ranges_that_do_not_go_on_where_the_archive_ends_are_refused(
    ranges: list[tuple[int, int]],
) -> None:
    found = [Manifest(0, start, end, A) for start, end in ranges]

    with pytest.raises(Conflict, match="topic t partition 0 is archived up to 10"):
        plan_epoch("t", found, {0: 10})


def test_manifests_pass_through_spark() -> None:
    undated = ArchiveFile("c", 1, None, 5, (0, 0), (0, 9), None)
    found = [Manifest(0, 0, 10, A), Manifest(0, 0, 10, undated), Manifest(3, 10, 20, None)]

    rows = encode_manifests(found).to_pylist()

    assert [decode_manifest(row) for row in rows] == found
