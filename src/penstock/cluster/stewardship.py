"""Looks after the members of all groups that this node leads.

Every round, each group that this node leads takes at most one step towards what the metadata says
(`steward`). The leader of the metadata also replaces members whose node has lost its memory: the
same number has registered with another incarnation.
"""

import logging
from collections.abc import Collection

from msgspec import structs

from penstock.cluster.commands import ChangeReplicas, Command, SettleReplicas
from penstock.cluster.described import Replicas
from penstock.cluster.metadata import METADATA_GROUP, ClusterMetadata
from penstock.cluster.move_queue import MoveQueue
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.steward import Change, GroupView, HandOver, Settled, next_step
from penstock.errors import Conflict, InvalidRequest, Unavailable
from penstock.ids import NodeId
from penstock.raft import Incarnation, Member, Membership, Rest, Role

logger = logging.getLogger(__name__)

# More voters would make every change of the metadata slower and elections no safer.
METADATA_VOTERS_MAX = 5


class Stewardship:
    """The rounds of one node."""

    def __init__(self, metadata: ClusterMetadata, queue: MoveQueue) -> None:
        self._metadata = metadata
        self._queue = queue
        self._version = -1
        self._wanted: dict[int, Replicas] = {}
        """What the metadata of that version wants of each group."""
        self._settled: dict[int, Rest] = {}
        """Groups that had nothing left to do by then, with the rest in which they were seen."""
        self._reachable: Collection[int] = ()
        # The metadata in which nobody was to be replaced.
        self._whole_version = -1

    def tend(self, logs: list[ReplicatedLog], *, reachable: Collection[int]) -> list[Command]:
        """Let every group that is led here take a step; return what the metadata must note.

        A link that is broken says sooner than a group that a node is down.
        """
        self._reachable = reachable
        self._read_metadata()
        # Most of a thousand groups rest, and rounds come thrice a second.
        unsettled = [log for log in logs if not self._is_settled(log)]
        if not unsettled:
            return []
        waiting = self._queue.waiting()
        commands: list[Command] = []
        for log in unsettled:
            group = log.identity.group
            if log.raft.role is not Role.LEADER:
                self._note_settled(log)
            elif not log.is_serving:
                continue
            elif group == METADATA_GROUP:
                commands += self._tend_metadata(log)
            elif group in self._wanted:
                commands += self._tend_group(log, may_admit=group not in waiting)
        return commands

    def _read_metadata(self) -> None:
        if self._version != self._metadata.version:
            self._version = self._metadata.version
            self._wanted = {replicas.group: replicas for replicas in self._metadata.all_replicas()}
            self._settled.clear()

    def _is_settled(self, log: ReplicatedLog) -> bool:
        """Whether a group rests as it did when nothing was left to do."""
        rest = log.raft.rest
        return rest is not None and self._settled.get(log.identity.group) is rest

    def _note_settled(self, log: ReplicatedLog) -> None:
        if log.raft.rest is not None:
            self._settled[log.identity.group] = log.raft.rest

    def _tend_metadata(self, log: ReplicatedLog) -> list[Command]:
        """Every node follows the metadata; some of them vote on it."""
        # Before the shards are placed, first nodes may vote that are not registered yet.
        if not self._metadata.shards:
            return self._replacements()
        nodes = metadata_members(self._metadata, log.raft.membership)
        count = metadata_voter_count(len(nodes), draining=len(self._metadata.draining))
        is_settled = self._take_step(log, nodes[:count], nodes[count:])
        commands = self._replacements()
        if is_settled and not commands:
            self._note_settled(log)
        return commands

    def _tend_group(self, log: ReplicatedLog, *, may_admit: bool) -> list[Command]:
        replicas = self._wanted[log.identity.group]
        voters = [_member(pair) for pair in replicas.members]
        is_changing = bool(replicas.leaving or replicas.former)
        has_founders = bool(replicas.founders) and not is_changing
        is_told = has_founders or log.raft.membership_index > 0
        is_settled = self._take_step(log, voters, [], may_admit=may_admit, is_told=is_told)
        # Until it is committed, another leader may go on with the members from before.
        is_settled = is_settled and log.raft.membership_index <= log.raft.commit_index
        if is_settled and is_changing:
            return [SettleReplicas(replicas.group, replicas.members)]
        if is_settled:
            self._note_settled(log)
        return []

    def _take_step(
        self,
        log: ReplicatedLog,
        voters: list[Member],
        learners: list[Member],
        *,
        may_admit: bool = True,
        is_told: bool = True,
    ) -> bool:
        """Take one step; True when nothing is left to do."""
        raft = log.raft
        followers = [
            structs.replace(each, is_active=each.is_active and each.node in self._reachable)
            for each in raft.followers()
        ]
        view = GroupView(
            raft.member, raft.membership, followers, raft.last_index, may_admit, is_told
        )
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


def metadata_voter_count(nodes: int, *, draining: int = 0) -> int:
    """Return how many of the nodes vote: an odd number, as one more could fail and help nothing.

    Whoever stays alone votes alone: with another vote, it could not go on without the other node.
    """
    if nodes - draining == 1:
        return 1
    count = min(nodes, METADATA_VOTERS_MAX)
    return count - 1 if count > 2 and count % 2 == 0 else count


def _member(pair: tuple[int, int]) -> Member:
    return Member(NodeId(pair[0]), Incarnation(pair[1]))
