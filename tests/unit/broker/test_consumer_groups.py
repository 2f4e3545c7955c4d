"""Consumer groups on a node whose disk misbehaves, or that hands them over."""

import asyncio

import pytest

from penstock.broker import Broker
from penstock.broker.groups import Groups
from penstock.config import NodeOptions
from penstock.errors import DiskFull, NotCoordinator
from penstock.groups import Answer, CommitOffsets, FetchOffsets, OffsetsFetched, OffsetToCommit
from penstock.ids import NodeId, TopicPartition
from tests.unit.broker.brokers import started
from tests.unit.cluster.replica_groups import ReplicaGroup
from tests.unit.cluster.workplaces import LoopClock, SimMachine, run

GROUP = "readers"
PLACE = TopicPartition("orders", 0)
# Large enough that no file has room for it ahead of its end.
NOTE = "x" * 4_000


def commit_command(ticket: int, offset: int) -> CommitOffsets:
    return CommitOffsets(
        ticket=ticket,
        group_id=GROUP,
        member_id="",
        instance_id=None,
        generation=-1,
        offsets=(OffsetToCommit(PLACE.topic, PLACE.partition, offset, note=NOTE),),
    )


async def commit(broker: Broker, offset: int) -> Answer:
    return await broker.groups.ask(GROUP, lambda ticket: commit_command(ticket, offset))


async def fetch(broker: Broker) -> int:
    def command(ticket: int) -> FetchOffsets:
        return FetchOffsets(ticket=ticket, group_id=GROUP, partitions=(PLACE,))

    found = await broker.groups.ask(GROUP, command)
    assert isinstance(found, OffsetsFetched)
    return found.offsets[PLACE].offset


def test_an_offset_commit_that_met_a_full_disk_may_come_true_later_and_harms_nobody() -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker = await started(machine)
        await commit(broker, 1)
        machine.disk.capacity_bytes = machine.disk.used_bytes()
        offset, failure = 1, None
        while failure is None:
            offset += 1
            try:
                await commit(broker, offset)
            except (DiskFull, NotCoordinator) as error:
                failure = error
        await asyncio.sleep(0.5)
        machine.disk.capacity_bytes = None
        await asyncio.sleep(5)

        assert await fetch(broker) in (offset - 1, offset)
        await commit(broker, offset + 1)
        assert await fetch(broker) == offset + 1

    run(scene())


def test_members_look_for_their_coordinator_while_it_hands_their_group_over() -> None:
    async def scene() -> None:
        replicas = ReplicaGroup()
        leader = await replicas.elect(1)
        groups = Groups(NodeOptions(group_shards=1), replicas.machines[1].workplace())
        groups.leadership_changed(0, leader)
        replicas.isolate(2)
        leader.transfer_leader(NodeId(2))

        with pytest.raises(NotCoordinator, match="being handed to node 2"):
            await groups.ask(GROUP, lambda ticket: commit_command(ticket, 1))
        groups.close()

    run(scene())
