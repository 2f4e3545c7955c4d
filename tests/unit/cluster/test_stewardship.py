"""Rounds of a steward over groups in which nothing is left to do."""

from penstock.cluster.described import Replicas
from penstock.cluster.leaders import LeaderTable
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.move_queue import MoveQueue
from penstock.cluster.stewardship import Stewardship
from penstock.raft import Rest
from tests.unit.cluster.replica_groups import NODES, ReplicaGroup
from tests.unit.cluster.workplaces import GROUP, run


def wanted(group: ReplicaGroup) -> Replicas:
    members = tuple((one.node, one.incarnation) for one in map(group.member, NODES))
    return Replicas(GROUP, members, members)


def test_a_settled_group_at_rest_is_looked_at_again_when_something_else_is_wanted() -> None:
    async def scene() -> None:
        group = ReplicaGroup()
        log = await group.elect(1)
        metadata = ClusterMetadata()
        steward = Stewardship(metadata, MoveQueue(metadata, LeaderTable(), 1))
        replicas = wanted(group)
        assert steward._tend_group(log, replicas, may_admit=True) == []
        assert not steward._is_settled(log, {GROUP: replicas})

        log.raft.rest = Rest(log.term, log.raft.last_index)

        assert steward._is_settled(log, {GROUP: replicas})
        assert not steward._is_settled(log, {GROUP: wanted(group)})

    run(scene())
