"""An archive holds what was committed, once, and says how far it is."""

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.errors import Conflict, InvalidRequest, NotFound, Unavailable
from penstock.ids import TopicPartition
from penstock.spark.archive_table import ArchivedTopicId, ArchiveLocation, ArchiveTable
from tests.unit.spark.archives import DAY_MS, NOON_MS, ORDERS, new_table, record_batch, write_files

PLACE = TopicPartition("orders", 0)


def test_files_and_positions_are_committed_together(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    files = write_files(table, record_batch(range(10)))
    assert (table.files(ORDERS), table.position(ORDERS, 0)) == ([], None)

    table.add(ORDERS, files, {0: 12})

    again = ArchiveTable.open(table.location)
    assert again.files(ORDERS) == files
    assert again.position(ORDERS, 0) == 12
    assert again.position(ORDERS, 1) is None
    assert again.position(ArchivedTopicId("orders", "another"), 0) is None
    assert again.table_id == table.table_id


def test_of_two_jobs_that_archive_the_same_records_one_fails(tmp_path: Path) -> None:
    first = new_table(tmp_path)
    second = ArchiveTable.open(first.location)
    first.add(ORDERS, write_files(first, record_batch(range(10))), {0: 10})

    with pytest.raises(Conflict, match="topic orders: another job has changed the archive"):
        second.add(ORDERS, write_files(second, record_batch(range(10))), {0: 10})

    other = ArchivedTopicId("others", "77")
    second.add(other, [], {0: 3})
    assert sum(each.records for each in ArchiveTable.open(first.location).files(ORDERS)) == 10


def test_a_file_holds_one_day_and_times_that_are_no_dates_have_their_own(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    times = [NOON_MS, NOON_MS + DAY_MS, NOON_MS, -1, 2**53]

    files = write_files(table, record_batch(range(5), times_ms=times))
    table.add(ORDERS, files, {0: 5})

    found = {each.date: each for each in table.files(ORDERS)}
    assert set(found) == {"2025-11-16", "2025-11-17", "1969-12-31", None}
    assert found["2025-11-16"].offsets == (0, 2)
    assert found["2025-11-16"].times_us == (1000 * NOON_MS, 1000 * NOON_MS)
    assert found[None].times_us is None


def test_a_table_that_was_made_anew_has_another_id(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    shutil.rmtree(tmp_path / "archive")

    assert new_table(tmp_path).table_id != table.table_id


def test_files_without_a_commit_are_found_by_nobody(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    write_files(table, record_batch(range(10)))
    table.add(ORDERS, kept := write_files(table, record_batch(range(10))), {0: 10})

    assert ArchiveTable.open(table.location).files(ORDERS) == kept
    assert table.vacuum() == 0, "files may belong to a commit that is still to come"


@pytest.mark.parametrize("opened", [ArchiveTable.open, ArchiveTable.create])
def test_paths_that_hold_no_archive_are_told_in_one_line(tmp_path: Path, opened: object) -> None:
    assert callable(opened)
    other = tmp_path / "other"
    DeltaTable.create(str(other), record_batch([1]).select(["key"]).schema)
    file = tmp_path / "file"
    file.write_text("no directory")

    for location, pattern in (
        (ArchiveLocation(str(other)), "has the columns key; it is not an archive"),
        (ArchiveLocation(str(file / "below")), "there is no archive at|cannot be reached: .*file"),
        (ArchiveLocation("nowhere://x/y"), "there is no archive at|cannot be reached: Unknown"),
        (ArchiveLocation(str(tmp_path)), "there is no archive at|is not empty and not a Delta"),
    ):
        with pytest.raises((InvalidRequest, NotFound, Unavailable), match=pattern) as caught:
            opened(location)
        assert "\n" not in str(caught.value)


def test_of_topics_with_one_name_the_newest_comes_last(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for topic_id in ("b", "a"):
        topic = ArchivedTopicId("orders", topic_id)
        table.add(topic, write_files(table, record_batch([0])), {0: 1})

    assert [each.topic_id for each in table.topics()] == ["b", "a"]
