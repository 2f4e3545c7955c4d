from random import Random

import pytest

from penstock.ids import EntryIndex, Term
from penstock.log import Snapshot, load_snapshot, save_snapshot
from penstock.testing import MachineStopped, SimDisk

from .entries import DIRECTORY

OLD = Snapshot(EntryIndex(5), Term(1), b"five entries")
NEW = Snapshot(EntryIndex(12), Term(2), b"twelve entries" * 100)


def disk_with(*snapshots: Snapshot) -> SimDisk:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    for snapshot in snapshots:
        save_snapshot(disk, DIRECTORY, snapshot)
    return disk


def test_a_directory_without_snapshots_has_none() -> None:
    assert load_snapshot(disk_with(), DIRECTORY) is None


def test_the_newest_snapshot_is_found_and_the_older_one_is_gone() -> None:
    disk = disk_with(OLD, NEW)

    assert load_snapshot(disk, DIRECTORY) == NEW
    assert disk.names(DIRECTORY) == ["snapshot-00000000000000000012"]


def test_a_snapshot_of_the_same_entry_replaces_the_other() -> None:
    again = Snapshot(OLD.index, OLD.term, b"other bytes")

    assert load_snapshot(disk_with(OLD, again), DIRECTORY) == again


def test_an_empty_payload_is_a_payload() -> None:
    empty = Snapshot(EntryIndex(0), Term(0), b"")

    assert load_snapshot(disk_with(empty), DIRECTORY) == empty


def test_a_damaged_snapshot_is_passed_over() -> None:
    disk = disk_with(OLD)
    path = DIRECTORY / "snapshot-00000000000000000005"
    size = len(disk.content(path))

    for position in range(size):
        disk.flip_bit(path, position, bit=position % 8)
        assert load_snapshot(disk, DIRECTORY) is None
        disk.flip_bit(path, position, bit=position % 8)
    for cut in range(size):
        copy = disk.copy()
        copy.put(path, disk.content(path)[:cut])
        assert load_snapshot(copy, DIRECTORY) is None


@pytest.mark.parametrize("order", ["prefix", "subset"])
@pytest.mark.parametrize("steps", range(6))
def test_a_crash_at_any_step_leaves_the_old_or_the_new(steps: int, order: str) -> None:
    for seed in range(40):
        disk = disk_with(OLD)
        disk.stop_before(steps)
        with pytest.raises(MachineStopped):
            save_snapshot(disk, DIRECTORY, NEW)
        disk.crash(Random(seed), order)  # type: ignore[arg-type]

        assert load_snapshot(disk, DIRECTORY) in (OLD, NEW)
        save_snapshot(disk, DIRECTORY, NEW)
        disk.crash(Random(seed), order)  # type: ignore[arg-type]
        assert load_snapshot(disk, DIRECTORY) == NEW


def test_a_full_disk_leaves_the_old_one() -> None:
    disk = disk_with(OLD)
    disk.capacity_bytes = 500
    disk.tears_when_full = True

    with pytest.raises(OSError, match="full"):
        save_snapshot(disk, DIRECTORY, NEW)

    assert load_snapshot(disk, DIRECTORY) == OLD
