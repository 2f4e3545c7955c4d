"""Where a node keeps what, over crashes at every step."""

import uuid
from pathlib import Path
from random import Random

import pytest

from penstock.cluster import DirectoryLock
from penstock.cluster.directories import Directories
from penstock.errors import DataDirectoryInUse
from penstock.testing import MachineStopped, SimDisk
from tests.unit.cluster.workplaces import DATA

OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)


def claimed(disk: SimDisk, topic_id: uuid.UUID) -> Directories:
    directories = Directories(DATA, disk)
    directories.claim_topic("orders", topic_id)
    return directories


def put_records(disk: SimDisk, directories: Directories) -> Path:
    directory = directories.partition("orders", 0)
    disk.make_directory(directory)
    file = disk.create(directory / "records")
    file.write_at(0, [b"old"])
    file.sync()
    disk.sync_directory(directory)
    return directory / "records"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("way", ["crash", "kill"])
def test_a_topic_can_be_claimed_after_a_crash_at_any_step_of_claiming_it(
    seed: int, way: str
) -> None:
    for stop in range(20):
        disk = SimDisk()
        Directories(DATA, disk)
        disk.stop_before(stop)
        try:
            claimed(disk, NEW)
        except MachineStopped:
            if way == "crash":
                disk.crash(Random(seed))
            else:
                disk.kill()
        else:
            assert stop > 3
            return

        directories = Directories(DATA, disk)
        directories.discard_deleted(lambda _: False)
        directories.report_unknown(lambda found: found == NEW)
        directories.claim_topic("orders", NEW)
        assert directories._id_in(DATA / "topics" / "orders") == NEW
    pytest.fail("claiming a topic takes too many steps")


@pytest.mark.parametrize("seed", range(5))
def test_a_new_topic_never_finds_records_of_an_older_one_of_its_name(seed: int) -> None:
    for stop in range(30):
        disk = SimDisk()
        records = put_records(disk, claimed(disk, OLD))
        disk.stop_before(stop)
        try:
            claimed(disk, NEW)
        except MachineStopped:
            disk.crash(Random(seed))
            claimed(disk, NEW)
        else:
            assert stop > 3
            return

        assert not disk.exists(records)
    pytest.fail("claiming a topic takes too many steps")


def test_a_directory_that_nobody_can_explain_is_kept() -> None:
    disk = SimDisk()
    directories = claimed(disk, OLD)
    records = put_records(disk, directories)

    directories.discard_deleted(lambda _: False)
    directories.report_unknown(lambda _: False)
    directories.empty_deleted()
    assert disk.exists(records)

    directories.discard_deleted(lambda found: found == OLD)
    directories.empty_deleted()
    assert not disk.exists(records)
    assert disk.names(DATA / "deleted") == []


def test_damaged_replicas_do_not_take_each_others_place_although_some_were_removed() -> None:
    disk = SimDisk()
    directories = claimed(disk, NEW)
    for _ in range(2):
        directories.set_aside(put_records(disk, directories).parent, "orders-0")
    disk.remove_tree(DATA / "damaged" / "orders-0.1")

    directories.set_aside(put_records(disk, directories).parent, "orders-0")

    assert disk.names(DATA / "damaged") == ["orders-0.2", "orders-0.3"]


def test_a_damaged_id_is_reported_and_its_records_are_kept() -> None:
    disk = SimDisk()
    directories = claimed(disk, OLD)
    records = put_records(disk, directories)
    disk.put(DATA / "topics" / "orders" / "id", b"rotten")

    directories.discard_deleted(lambda _: True)
    directories.report_unknown(lambda _: False)

    assert disk.exists(records)


def test_a_data_directory_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)

    with pytest.raises(DataDirectoryInUse, match=r"pid \d+"):
        DirectoryLock(tmp_path)

    lock.release()
    DirectoryLock(tmp_path).release()
