"""Who votes on the metadata of the cluster, and how far each is, as its leader knows."""

import msgspec

from penstock.broker.calls import Calls
from penstock.cluster import METADATA_GROUP, Cluster
from penstock.errors import Unavailable
from penstock.ids import NodeId

_VERB = "metadata.quorum"


class QuorumAsked(msgspec.Struct, frozen=True):
    """Nothing needs to be said: there is one log of metadata."""


class QuorumReplica(msgspec.Struct, frozen=True):
    """One replica of the metadata; its log ends before `end`."""

    node: int
    end: int


class QuorumStatus(msgspec.Struct, frozen=True):
    """The replicas of the metadata. Entries below `committed_end` are committed."""

    leader: int
    term: int
    committed_end: int
    voters: list[QuorumReplica]
    learners: list[QuorumReplica]


class Quorum:
    """Asks the leader of the metadata, whichever node is asked."""

    def __init__(self, cluster: Cluster, calls: Calls) -> None:
        self._cluster = cluster
        self._calls = calls
        calls.serve(_VERB, QuorumAsked, self._tell)

    async def status(self) -> QuorumStatus:
        """Look at the replicas of the metadata."""
        leader = self._cluster.leaders.leader_of(METADATA_GROUP)
        if leader is None or leader.node < 0:
            raise Unavailable("the metadata has no leader at the moment")
        return await self._calls.ask_node(NodeId(leader.node), _VERB, QuorumAsked(), QuorumStatus)

    async def _tell(self, asked: QuorumAsked) -> QuorumStatus:
        del asked
        log = self._cluster.replicas.log_of(METADATA_GROUP)
        # One that was replaced without knowing it would call itself the leader.
        await log.wait_current()
        raft = log.raft
        ends = {each.node: each.match + 1 for each in log.followers()}
        ends[log.identity.member.node] = raft.last_index + 1

        def replicas(nodes: list[NodeId]) -> list[QuorumReplica]:
            return [QuorumReplica(node, ends[node]) for node in nodes if node in ends]

        return QuorumStatus(
            leader=log.identity.member.node,
            term=log.term,
            committed_end=raft.commit_index + 1,
            voters=replicas([member.node for member in raft.membership.voters]),
            learners=replicas([member.node for member in raft.membership.learners]),
        )
