"""Who a node is, over restarts, crashes and lost disks."""

from random import Random

import pytest

from penstock.cluster.identity import Identity
from penstock.errors import Corruption, InvalidConfiguration
from penstock.testing import MachineStopped, SimDisk
from tests.unit.cluster.workplaces import DATA


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory(DATA)
    return disk


def test_a_node_keeps_its_incarnation_as_long_as_its_directory() -> None:
    disk = new_disk()

    first = Identity(disk, DATA, 3).member
    disk.crash(Random(1))
    again = Identity(disk, DATA, 3).member

    assert first == again
    assert first.node == 3


def test_a_node_that_lost_its_directory_has_another_incarnation() -> None:
    assert Identity(new_disk(), DATA, 3).member != Identity(new_disk(), DATA, 3).member


def test_a_directory_of_another_node_is_refused() -> None:
    disk = new_disk()
    Identity(disk, DATA, 3)

    with pytest.raises(InvalidConfiguration, match="belongs to node 3, this is node 4"):
        Identity(disk, DATA, 4)


@pytest.mark.parametrize("damaged", [b'{"node_id": 3', b'{"node\xff"'])
def test_a_damaged_identity_is_not_drawn_anew(damaged: bytes) -> None:
    disk = new_disk()
    Identity(disk, DATA, 3)
    disk.put(DATA / "identity.json", damaged)

    with pytest.raises(Corruption, match=r"identity\.json"):
        Identity(disk, DATA, 3)


@pytest.mark.parametrize("seed", range(5))
def test_a_crash_at_any_step_leaves_an_identity_or_none(seed: int) -> None:
    for stop in range(20):
        disk = new_disk()
        disk.stop_before(stop)
        try:
            Identity(disk, DATA, 3)
        except MachineStopped:
            disk.crash(Random(seed))
        else:
            assert stop > 3
            return

        member = Identity(disk, DATA, 3).member
        disk.crash(Random(seed))
        assert Identity(disk, DATA, 3).member == member
    pytest.fail("drawing an identity takes too many steps")


@pytest.mark.parametrize("seed", range(5))
def test_a_replaced_replica_is_a_stranger_to_its_group_alone_whenever_the_machine_stops(
    seed: int,
) -> None:
    for stop in range(20):
        disk = new_disk()
        identity = Identity(disk, DATA, 3)
        own = identity.member
        disk.stop_before(stop)
        try:
            identity.replace([7])
        except MachineStopped:
            disk.crash(Random(seed))
            assert Identity(disk, DATA, 3).member_of(8) == own
        else:
            assert stop > 3
            disk.crash(Random(seed))
            again = Identity(disk, DATA, 3)
            assert again.member_of(7) == identity.member_of(7) != own
            assert again.member_of(8) == again.member == own
            assert again.replaced == {7: identity.member_of(7).incarnation}
            return
    pytest.fail("replacing takes too many steps")


def test_an_incarnation_that_cannot_be_saved_is_not_used() -> None:
    disk = new_disk()
    identity = Identity(disk, DATA, 3)
    before = identity.member_of(7)

    disk.fail_sync()
    with pytest.raises(OSError, match="sync failed"):
        identity.replace([7])

    assert identity.member_of(7) == before
    assert identity.replaced == {}


def test_what_a_node_was_in_groups_that_are_deleted_is_forgotten() -> None:
    disk = new_disk()
    identity = Identity(disk, DATA, 3)
    identity.replace([7, 8])

    identity.replace([9], deleted={7})

    assert Identity(disk, DATA, 3).replaced.keys() == {8, 9}
