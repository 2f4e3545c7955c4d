"""Consumer groups and share groups share their names."""

import contextlib

import pytest

from penstock.broker import Broker
from penstock.errors import DiskFull, GroupNotFound, NotCoordinator
from penstock.groups import Answer, CommitOffsets, OffsetToCommit
from penstock.protocols.kafka.group_admin import check_no_consumer_group
from tests.unit.broker.brokers import started
from tests.unit.cluster.workplaces import LoopClock, SimMachine, run

# Large enough that no file has room for it ahead of its end.
NOTE = "x" * 4_000


async def commit(broker: Broker, group: str) -> Answer:
    """Let a consumer group exist."""

    def command(ticket: int) -> CommitOffsets:
        return CommitOffsets(
            ticket=ticket,
            group_id=group,
            member_id="",
            instance_id=None,
            generation=-1,
            offsets=(OffsetToCommit("orders", 0, 1, note=NOTE),),
        )

    return await broker.groups.ask(group, command)


def test_the_name_of_a_consumer_group_is_refused_to_a_share_group() -> None:
    async def scene() -> None:
        broker = await started(SimMachine(clock=LoopClock()))
        await commit(broker, "readers")

        await check_no_consumer_group("others", broker)
        with pytest.raises(GroupNotFound, match="'readers' is a consumer group"):
            await check_no_consumer_group("readers", broker)

    run(scene())


def test_a_node_that_does_not_lead_the_groups_of_a_name_does_not_say_that_it_is_free() -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker = await started(machine)
        await commit(broker, "readers")
        machine.disk.capacity_bytes = machine.disk.used_bytes()
        with contextlib.suppress(DiskFull, NotCoordinator):
            while True:
                await commit(broker, "others")

        with pytest.raises(NotCoordinator):
            await check_no_consumer_group("readers", broker)

    run(scene())
