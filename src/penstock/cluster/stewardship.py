"""Looks after the members of all groups that this node leads.

Every round, each group that this node leads takes at most one step towards what the metadata says
(`steward`). The leader of the metadata also replaces members whose node has lost its memory: the
same number has registered with another incarnation.
"""

import logging

from penstock.cluster.commands import ChangeReplicas, Command, SettleReplicas
from penstock.cluster.described import Replicas
from penstock.cluster.metadata import METADATA_GROUP, ClusterMetadata
from penstock.cluster.move_queue import MoveQueue
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.steward import Change, GroupView, HandOver, Settled, next_step
from penstock.errors import Conflict, InvalidRequest, Unavailable
from penstock.ids import NodeId
from penstock.raft import Incarnation, Member, Membership, Role

logger = logging.getLogger(__name__)

# More voters would make every change of the metadata slower and elections no safer.
METADATA_VOTERS_MAX = 5


class Stewardship:
    """The rounds of one node."""

    def __init__(self, metadata: ClusterMetadata, queue: MoveQueue) -> None:
        self._metadata = metadata
        self._queue = queue
        # Groups that had nothing left to do, with what was wanted and what they had then.
        self._settled: dict[int, tuple[Replicas, Membership]] = {}
        # The metadata in which nobody was to be replaced.
        self._whole_version = -1

    def tend(self, logs: list[ReplicatedLog]) -> list[Command]:
        """Let every group that is led here take a step; return what the metadata must note."""
        commands: list[Command] = []
        wanted = {replicas.group: replicas for replicas in self._metadata.all_replicas()}
        waiting = self._queue.waiting()
        if len(self._settled) > len(wanted):
            self._settled.clear()
        for log in logs:
            # Most of a thousand groups are led elsewhere or rest, and rounds come thrice a second.
            if log.raft.role is not Role.LEADER or self._is_settled(log, wanted):
                continue
            if not log.is_serving:
                continue
            if log.identity.group == METADATA_GROUP:
                self._tend_metadata(log)
                commands += self._replacements()
            elif log.identity.group in wanted:
                may_admit = log.identity.group not in waiting
                commands += self._tend_group(log, wanted[log.identity.group], may_admit=may_admit)
        return commands

    def _is_settled(self, log: ReplicatedLog, wanted: dict[int, Replicas]) -> bool:
        """Whether a group at rest had nothing left to do when it was last looked at."""
        raft = log.raft
        settled = self._settled.get(log.identity.group)
        return (
            settled is not None
            and raft.rest is not None
            and settled[0] is wanted.get(log.identity.group)
            and settled[1] is raft.membership
        )

    def _tend_metadata(self, log: ReplicatedLog) -> None:
        """Every node follows the metadata; some of them vote on it."""
        if self._metadata.shards:
            # Before the shards are placed, first nodes may vote that are not registered yet.
            nodes = metadata_members(self._metadata, log.raft.membership)
            count = metadata_voter_count(len(nodes))
            self._take_step(log, nodes[:count], nodes[count:])

    def _tend_group(
        self, log: ReplicatedLog, replicas: Replicas, *, may_admit: bool
    ) -> list[Command]:
        voters = [_member(pair) for pair in replicas.members]
        is_settled = self._take_step(log, voters, [], may_admit=may_admit)
        if is_settled and (replicas.leaving or replicas.former):
            return [SettleReplicas(replicas.group, replicas.members)]
        if is_settled:
            self._settled[replicas.group] = (replicas, log.raft.membership)
        return []

    def _take_step(
        self,
        log: ReplicatedLog,
        voters: list[Member],
        learners: list[Member],
        *,
        may_admit: bool = True,
    ) -> bool:
        """Take one step; True when nothing is left to do."""
        raft = log.raft
        view = GroupView(raft.member, raft.membership, raft.followers(), raft.last_index, may_admit)
        step = next_step(view, voters, learners)
        try:
            match step:
                case Change(membership):
                    log.change_membership(membership)
                    logger.info(
                        "membership changes",
                        extra={
                            "log": log.name,
                            "voters": [member.node for member in membership.voters],
                            "learners": [member.node for member in membership.learners],
                        },
                    )
                case HandOver(to):
                    log.transfer_leader(to)
                case Settled():
                    return True
                case None:
                    pass
        except (Conflict, InvalidRequest, Unavailable) as refusal:
            # A change is under way already, or leadership is lost: the next round looks again.
            logger.debug("step refused", extra={"log": log.name, "reason": str(refusal)})
        return False

    def _replacements(self) -> list[Command]:
        """Give the place of a lost memory to the one that the node has now."""
        commands: list[Command] = []
        if self._whole_version == self._metadata.version:
            return commands
        for replicas in self._metadata.all_replicas():
            members = tuple(self._newest(replicas.group, pair) for pair in replicas.members)
            if members != replicas.members:
                commands.append(ChangeReplicas(replicas.group, members))
        if not commands:
            self._whole_version = self._metadata.version
        return commands

    def _newest(self, group: int, pair: tuple[int, int]) -> tuple[int, int]:
        node = self._metadata.nodes.get(pair[0])
        if node is None:
            return pair
        member = node.member_of(group)
        return member.node, member.incarnation


def metadata_members(metadata: ClusterMetadata, membership: Membership) -> list[Member]:
    """Return all nodes, those first that should vote on the metadata.

    Whoever votes goes on, so that nodes that come and go change as little as possible; a node that
    is being drained should not.
    """
    members = [
        metadata.nodes[node_id].member_of(METADATA_GROUP) for node_id in sorted(metadata.nodes)
    ]
    return sorted(
        members,
        key=lambda member: (member.node in metadata.draining, member not in membership.voters),
    )


def metadata_voter_count(nodes: int) -> int:
    """Return how many of the nodes vote: an odd number, as one more could fail and help nothing."""
    count = min(nodes, METADATA_VOTERS_MAX)
    return count - 1 if count > 2 and count % 2 == 0 else count


def _member(pair: tuple[int, int]) -> Member:
    return Member(NodeId(pair[0]), Incarnation(pair[1]))
