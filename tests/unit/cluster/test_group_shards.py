"""The number of group shards stays with the data."""

from random import Random

import pytest

from penstock.cluster.directories import Directories
from penstock.errors import Corruption, InvalidConfiguration
from penstock.testing import MachineStopped, SimDisk
from tests.unit.cluster.workplaces import DATA


def claim(disk: SimDisk, count: int) -> None:
    Directories(DATA, disk).claim_group_shards(count)


def test_the_number_of_the_first_start_holds_for_all_others() -> None:
    disk = SimDisk()
    claim(disk, 8)

    claim(disk, 8)
    with pytest.raises(InvalidConfiguration, match=r"group_shards: is 4, but .* made with 8"):
        claim(disk, 4)


@pytest.mark.parametrize("seed", range(5))
def test_a_crash_at_any_step_leaves_the_number_or_none(seed: int) -> None:
    for stop in range(20):
        disk = SimDisk()
        disk.stop_before(stop)
        try:
            claim(disk, 8)
        except MachineStopped:
            disk.crash(Random(seed))
        else:
            assert stop > 3
            return

        claim(disk, 8)
    pytest.fail("claiming takes too many steps")


def test_a_damaged_number_is_told_apart_from_another_one() -> None:
    disk = SimDisk()
    claim(disk, 8)
    disk.put(DATA / "groups" / "shards", b"\xff8")

    with pytest.raises(Corruption, match="number of shards"):
        claim(disk, 8)
