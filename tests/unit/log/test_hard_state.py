from random import Random

import pytest

from penstock.errors import StorageFailed
from penstock.log import HardStateFile
from penstock.log.hard_state import SavedHardState
from penstock.testing import MachineStopped, SimDisk

from .entries import DIRECTORY


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    return disk


def test_what_was_saved_survives_a_power_cut() -> None:
    disk = new_disk()
    HardStateFile(disk, DIRECTORY).save(term=3, vote=2, commit=7)

    disk.crash(Random(1))

    assert HardStateFile(disk, DIRECTORY).newest == SavedHardState(3, 2, 7)


@pytest.mark.parametrize("seed", range(20))
def test_a_vote_that_a_start_found_survives_a_power_cut(seed: int) -> None:
    disk = new_disk()
    HardStateFile(disk, DIRECTORY).save(term=1, vote=1, commit=0)
    file = HardStateFile(disk, DIRECTORY)
    disk.stop_before(1)
    with pytest.raises(MachineStopped):
        file.save(term=2, vote=3, commit=0)
    disk.kill()
    found = HardStateFile(disk, DIRECTORY).newest

    disk.crash(Random(seed))

    assert HardStateFile(disk, DIRECTORY).newest == found


@pytest.mark.parametrize("seed", range(20))
def test_a_vote_whose_sync_failed_is_durable_once_a_start_has_found_it(seed: int) -> None:
    disk = new_disk()
    file = HardStateFile(disk, DIRECTORY)
    disk.fail_sync()
    with pytest.raises(StorageFailed):
        file.save(term=2, vote=3, commit=0)
    disk.kill()
    found = HardStateFile(disk, DIRECTORY).newest

    disk.crash(Random(seed))

    assert HardStateFile(disk, DIRECTORY).newest == found


@pytest.mark.parametrize("operations", range(2))
@pytest.mark.parametrize("seed", range(20))
def test_a_file_that_a_killed_process_made_keeps_its_name(operations: int, seed: int) -> None:
    disk = new_disk()
    disk.stop_before(operations)
    with pytest.raises(MachineStopped):
        HardStateFile(disk, DIRECTORY)
    disk.kill()
    HardStateFile(disk, DIRECTORY).save(term=2, vote=3, commit=0)

    disk.crash(Random(seed))

    assert HardStateFile(disk, DIRECTORY).newest == SavedHardState(2, 3, 0)


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_does_not_bring_an_older_vote_back(bit: int) -> None:
    disk = new_disk()
    file = HardStateFile(disk, DIRECTORY)
    file.save(term=1, vote=1, commit=0)
    file.save(term=2, vote=3, commit=0)
    path = DIRECTORY / "vote"

    for position in range(len(disk.content(path))):
        rotten = disk.copy()
        rotten.flip_bit(path, position, bit)

        assert HardStateFile(rotten, DIRECTORY).newest == SavedHardState(2, 3, 0)
