"""Histories of consumer groups that random search reaches rarely, step by step, as in `scripts`."""

from contextlib import suppress

from penstock.errors import PenstockError
from penstock.groups import CommitOffsets, OffsetToCommit
from penstock.raft import Append
from tests.simulation.members import TOPIC
from tests.simulation.node import Node
from tests.simulation.referee import Violation
from tests.simulation.scripts import Stage
from tests.simulation.workloads import Workload

_GROUP = "readers"
_OFFSET = 5


def disk_of_a_shard_leader_is_full() -> None:
    """A leader cannot store an event for a while, and it commits all the same, later."""
    stage = Stage(3, workload=Workload.GROUPS)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    disk = stage[1].disk
    disk.capacity_bytes = disk.used_bytes()
    stage.network.passes = lambda message: not isinstance(message, Append)
    stage[1].soon(lambda: stage[1].spawn(_commit(stage[1])))
    stage.tick(5)
    disk.capacity_bytes = None
    stage.heal()
    try:
        # A disk that was full is tried again after a while.
        stage.tick(200)
    except AssertionError as failure:
        raise Violation(str(failure)) from failure
    books = stage.world.referee.groups_books
    assert books is not None
    assert [offset for _, offset in books.positions[_GROUP, TOPIC, 0]] == [_OFFSET]


async def _commit(node: Node) -> None:
    def command(ticket: int) -> CommitOffsets:
        return CommitOffsets(
            ticket=ticket,
            group_id=_GROUP,
            member_id="",
            instance_id=None,
            generation=-1,
            offsets=(OffsetToCommit(TOPIC, 0, _OFFSET),),
        )

    # Whoever commits may be told to try again.
    with suppress(PenstockError):
        await node.consumer_groups.ask(_GROUP, command)
