from pathlib import Path
from random import Random

import pytest

from penstock.log.checkpoint import Checkpoint, CheckpointFile
from penstock.testing import SimDisk

PLACE = Path("/p")


def new_file() -> tuple[SimDisk, CheckpointFile]:
    disk = SimDisk()
    disk.make_directory(PLACE)
    file = CheckpointFile(disk, PLACE)
    disk.sync_directory(PLACE)
    return disk, file


def write(file: CheckpointFile, rows: int) -> None:
    file.write(first_index=4, rows=rows, log_bytes=rows * 100, state_bytes=rows * 10)


def test_a_new_file_holds_no_checkpoint() -> None:
    disk, file = new_file()

    assert file.newest is None
    assert CheckpointFile(disk, PLACE).newest is None


def test_the_newest_checkpoint_is_found_again() -> None:
    disk, file = new_file()

    for rows in (1, 2, 3):
        write(file, rows)
        assert CheckpointFile(disk, PLACE).newest == file.newest

    assert file.newest == Checkpoint(4, 3, 300, 30)


def test_damage_in_both_copies_of_the_newest_slot_uncovers_the_one_before() -> None:
    disk, file = new_file()
    write(file, 1)
    write(file, 2)

    disk.flip_bit(PLACE / "checkpoint", 3)
    assert CheckpointFile(disk, PLACE).newest == file.newest
    disk.flip_bit(PLACE / "checkpoint", 512 + 3)

    found = CheckpointFile(disk, PLACE).newest
    assert found is not None
    assert found.rows == 1


def test_damage_in_all_copies_leaves_none() -> None:
    disk, file = new_file()
    write(file, 1)
    write(file, 2)

    for sector in range(4):
        disk.flip_bit(PLACE / "checkpoint", 512 * sector)

    assert CheckpointFile(disk, PLACE).newest is None


def test_a_power_cut_leaves_one_of_the_checkpoints_that_were_written_or_none() -> None:
    seen = set()
    for seed in range(200):
        disk, file = new_file()
        for rows in (1, 2, 3):
            write(file, rows)
        disk.crash(Random(seed))
        found = CheckpointFile(disk, PLACE).newest
        seen.add(found.rows if found else None)

    assert seen == {None, 1, 2, 3}


@pytest.mark.parametrize("seed", range(30))
def test_a_withdrawn_checkpoint_does_not_come_back(seed: int) -> None:
    disk, file = new_file()
    write(file, 8)
    write(file, 9)

    file.withdraw()
    assert file.newest is None
    write(file, 2)
    write(file, 3)
    disk.crash(Random(seed))

    found = CheckpointFile(disk, PLACE).newest
    assert found is None or found.rows in (2, 3)
