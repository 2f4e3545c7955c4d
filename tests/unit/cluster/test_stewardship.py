"""Rounds of a steward over groups in which nothing is left to do."""

import msgspec

from penstock.cluster.commands import SettleReplicas
from penstock.cluster.described import Replicas
from penstock.cluster.leaders import LeaderTable
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.move_queue import MoveQueue
from penstock.cluster.stewardship import Stewardship
from penstock.raft import Rest
from tests.unit.cluster.replica_groups import NODES, ReplicaGroup
from tests.unit.cluster.workplaces import GROUP, run, turn


class Metadata(ClusterMetadata):
    """Metadata of which the replicas of one group are known."""

    def want(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.version += 1

    def all_replicas(self) -> list[Replicas]:
        return [self._replicas]


def wanted(group: ReplicaGroup, *nodes: int) -> Replicas:
    members = tuple((one.node, one.incarnation) for one in map(group.member, nodes))
    return Replicas(GROUP, members, members)


def test_a_settled_group_at_rest_is_looked_at_again_when_something_changes() -> None:
    async def scene() -> None:
        group = ReplicaGroup()
        log = await group.elect(1)
        metadata = Metadata()
        metadata.want(wanted(group, *NODES))
        steward = Stewardship(metadata, MoveQueue(metadata, LeaderTable(), 1))

        assert steward.tend([log], reachable=NODES) == []
        assert not steward._is_settled(log), "it does not rest"

        log.raft.rest = Rest(log.term, log.raft.last_index)
        assert steward.tend([log], reachable=NODES) == []
        assert steward._is_settled(log)

        log.raft.rest = Rest(log.term, log.raft.last_index)
        assert not steward._is_settled(log), "it was awake in between"
        assert steward.tend([log], reachable=NODES) == []
        assert steward._is_settled(log)

        metadata.want(wanted(group, *NODES[:2]))
        steward.tend([log], reachable=NODES)
        assert not steward._is_settled(log)
        assert group.member(NODES[2]) not in log.raft.membership.voters

    run(scene())


def test_a_change_is_settled_when_it_is_committed_and_the_log_names_the_members() -> None:
    async def scene() -> None:
        group = ReplicaGroup()
        log = await group.elect(1)
        metadata = Metadata()
        asked = wanted(group, *NODES)
        metadata.want(msgspec.structs.replace(asked, former=asked.members))
        steward = Stewardship(metadata, MoveQueue(metadata, LeaderTable(), 1))
        assert log.raft.membership_index == 0

        assert steward.tend([log], reachable=NODES) == [], "nobody could learn who the members are"
        assert log.raft.membership_index > log.raft.commit_index
        assert steward.tend([log], reachable=NODES) == [], "another leader may know nothing of it"

        await turn(until=lambda: log.raft.commit_index >= log.raft.membership_index)
        assert steward.tend([log], reachable=NODES) == [SettleReplicas(GROUP, asked.members)]

    run(scene())
