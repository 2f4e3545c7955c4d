"""What operators do to a running cluster: look, move, drain, remove, hand over, balance."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.cluster import (
    METADATA_GROUP,
    ChangeReplicas,
    Cluster,
    ClusterMetadata,
    DrainNode,
    Node,
    PartitionStatus,
    RemoveNode,
    Replicas,
    Survey,
    check_in_sync_left,
    plan_moves,
    plan_shard_replicas,
)
from penstock.errors import (
    Conflict,
    InvalidAssignment,
    InvalidReplication,
    InvalidRequest,
    NotFound,
    NotLeader,
    NotMoving,
    Unavailable,
)
from penstock.ids import TopicPartition

# A partition with more than this many times the mean traffic is hot.
HOT_FACTOR = 3.0


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node as the one that was asked sees it."""

    node: Node
    is_reachable: bool
    has_answered: bool
    """False also for a node that is reachable and did not tell in time what it leads."""
    is_draining: bool
    leads: int
    replicas: int
    logs: int
    """All logs that have a replica there, those of consumer groups included; 0 when drained."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The whole cluster at a glance."""

    cluster_id: str
    asked_node: int
    metadata_leader: int
    """-1 while there is none."""
    nodes: list[NodeStatus]
    topics: int
    partitions: int
    without_leader: list[str]
    behind: list[str]
    changing: list[str]
    hot: list[str]


@dataclass(frozen=True, slots=True)
class Move:
    """A change of replicas that is not finished."""

    place: TopicPartition
    nodes: tuple[int, ...]
    """All that have a replica or are about to; those that are meant to keep one come first."""
    joining: tuple[int, ...]
    leaving: tuple[int, ...]


class Operations:
    """The verbs of operators. Any node carries them out."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self._cluster = cluster
        self._node_id = node_id

    async def status(self) -> ClusterStatus:
        """Look at everything."""
        metadata = self._metadata()
        survey = await self._cluster.overview.survey()
        partitions = survey.partitions
        leader = self._cluster.leaders.leader_of(METADATA_GROUP)
        return ClusterStatus(
            cluster_id=str(metadata.cluster_id),
            asked_node=self._node_id,
            metadata_leader=leader.node if leader else -1,
            nodes=self._node_statuses(survey),
            topics=len(metadata.topics),
            partitions=len(partitions),
            without_leader=[
                *(_name(each) for each in partitions if each.leader < 0),
                *self._shards_where(lambda each: not self._is_led(each)),
            ],
            behind=[_name(each) for each in partitions if _is_behind(each)],
            changing=[
                *(_name(each) for each in partitions if each.is_changing),
                *self._shards_where(lambda each: bool(each.former)),
            ],
            hot=[_name(each) for each in hot_partitions(partitions)],
        )

    def _shards_where(self, is_meant: Callable[[Replicas], bool]) -> list[str]:
        """Name logs of consumer groups."""
        metadata = self._cluster.metadata
        names = metadata.log_names()
        return [names[each.group] for each in metadata.shards if is_meant(each)]

    def _is_led(self, replicas: Replicas) -> bool:
        """Whether this node knows of a leader that it can reach."""
        leader = self._cluster.leaders.leader_of(replicas.group)
        return leader is not None and leader.node in self._reachable()

    def _metadata(self) -> ClusterMetadata:
        """Return the metadata, which is empty until the node belongs to a cluster."""
        if self._cluster.was_removed:
            raise Unavailable(
                f"node {self._node_id} was removed from its cluster; ask another node, and stop"
                " this one"
            )
        if self._cluster.metadata.cluster_id is None:
            raise Unavailable(f"node {self._node_id} belongs to no cluster yet")
        return self._cluster.metadata

    def _replicas_of(self, place: TopicPartition) -> Replicas:
        self._metadata()
        return self._cluster.replicas_of(place)

    def _node_statuses(self, survey: Survey) -> list[NodeStatus]:
        partitions = survey.partitions
        leads = Counter(each.leader for each in partitions)
        replicas = Counter(node for each in partitions for node in each.replicas)
        metadata = self._cluster.metadata
        logs = Counter(
            node for each in metadata.all_replicas() for node in (*each.nodes, *each.leaving_nodes)
        )
        reachable = self._reachable()
        return [
            NodeStatus(
                node,
                node_id in reachable,
                node_id not in survey.silent,
                node_id in metadata.draining,
                leads[node_id],
                replicas[node_id],
                logs[node_id],
            )
            for node_id, node in sorted(metadata.nodes.items())
        ]

    def _reachable(self) -> set[int]:
        return {*self._cluster.links.connected, self._node_id}

    async def partitions(self, topic: str | None = None) -> list[PartitionStatus]:
        """Return all partitions, or those of one topic."""
        metadata = self._metadata()
        if topic is not None:
            metadata.topic(topic)
        survey = await self._cluster.overview.survey()
        return [each for each in survey.partitions if topic is None or each.topic == topic]

    async def move(
        self, place: TopicPartition, nodes: list[int], *, may_resize: bool = True
    ) -> None:
        """Let other nodes replicate a partition; returns when the change has begun."""
        replicas = self._replicas_of(place)
        size = len(replicas.former or replicas.members)
        if not may_resize and len(nodes) != size:
            raise InvalidReplication(
                f"{len(nodes)} replicas of {place} were asked for, it has {size},"
                " and their number is not to change"
            )
        await self._change(replicas, nodes)

    def moves(self) -> list[Move]:
        """Return all moves of partitions that are not finished."""
        return [
            _move(TopicPartition(topic.name, number), replicas)
            for topic in self._metadata().topics.values()
            for number, replicas in enumerate(topic.replicas)
            if replicas.former
        ]

    async def cancel_move(self, place: TopicPartition) -> None:
        """Return to the replicas that a partition had before a move that is not finished."""
        replicas = self._replicas_of(place)
        if not replicas.former:
            raise NotMoving(f"{place} is not being moved")
        await self._cluster.change(ChangeReplicas(replicas.group, replicas.former))

    async def transfer_leader(self, place: TopicPartition, to: int) -> None:
        """Let another replica lead a partition."""
        replicas = self._replicas_of(place)
        if to not in replicas.nodes:
            raise InvalidRequest(
                f"node {to} does not replicate {place}, nodes {list(replicas.nodes)} do"
            )
        leader = self._cluster.leaders.leader_of(replicas.group)
        if leader is None or leader.node < 0:
            raise NotLeader(f"{place} has no leader at the moment that could hand it over")
        if leader.node != to:
            await self._cluster.leadership.transfer(replicas.group, to)

    async def drain(self, node_id: int, *, may_shrink: bool = False) -> int:
        """Move everything off a node and place nothing new there; return how much is moved.

        Where no other node is left to take a replica, nothing is begun, unless the logs may go on
        with fewer replicas. Two drains at once may leave too few nodes for both. Then the later one
        is not begun, and what the earlier one has not moved by then stays where it is.
        """
        metadata = self._metadata()
        if node_id not in metadata.nodes:
            raise NotFound(f"there is no node {node_id}; the nodes are {sorted(metadata.nodes)}")
        self._check_room(node_id, may_shrink=may_shrink)
        was_draining = node_id in metadata.draining
        await self._cluster.change(DrainNode(node_id, True))
        try:
            self._check_room(node_id, may_shrink=may_shrink)
        except InvalidReplication:
            if not was_draining:
                await self.end_drain(node_id)
            raise
        moved = 0
        for group in [each.group for each in metadata.all_replicas() if node_id in each.nodes]:
            # While others were moved, it may have been deleted, or moved by somebody else.
            replicas = self._current(group)
            if replicas is None or node_id not in replicas.nodes:
                continue
            if node_id not in metadata.draining:
                raise Conflict(
                    f"the drain of node {node_id} was ended by somebody else; {moved} logs were"
                    " being moved by then"
                )
            if not (may_shrink or self._free_nodes(replicas, node_id)):
                raise InvalidReplication(
                    f"{moved} logs of node {node_id} are being moved, for the next one no node"
                    f" is left: nodes {sorted(metadata.draining)} are being drained"
                )
            moved += await self._change_if_there(replicas, self._without(replicas, node_id))
        return moved

    def _current(self, group: int) -> Replicas | None:
        """Who replicates a log now; None when it was deleted."""
        logs = self._cluster.metadata.all_replicas()
        return next((each for each in logs if each.group == group), None)

    async def _change_if_there(self, replicas: Replicas, nodes: list[int]) -> bool:
        """Let other nodes replicate a log; False when it was deleted meanwhile."""
        try:
            await self._change(replicas, nodes)
        except NotFound:
            if self._current(replicas.group) is not None:
                raise
            return False
        return True

    def _check_room(self, node_id: int, *, may_shrink: bool) -> None:
        """Raise when a replica of a node has nowhere to go."""
        held = [each for each in self._cluster.metadata.all_replicas() if node_id in each.nodes]
        stuck = [each for each in held if not self._free_nodes(each, node_id)]
        if stuck and not may_shrink:
            raise InvalidReplication(
                f"{len(stuck)} of {len(held)} logs of node {node_id} have"
                f" {max(len(each.nodes) for each in stuck)} replicas and no other node to move to;"
                " add a node, or let them shrink"
            )
        if any(len(each.nodes) == 1 for each in stuck):
            raise InvalidReplication(f"no other node can take the last replica of node {node_id}")
        for topic in self._cluster.metadata.topics.values():
            for each in set(stuck).intersection(topic.replicas):
                check_in_sync_left(topic, len(each.nodes), len(each.nodes) - 1)

    async def end_drain(self, node_id: int) -> None:
        """Let a node take replicas again."""
        await self._cluster.change(DrainNode(node_id, False))

    async def remove_node(self, node_id: int) -> None:
        """Forget a node that replicates nothing any more."""
        known = self._metadata().nodes
        if node_id not in known:
            raise NotFound(f"there is no node {node_id}; the nodes are {sorted(known)}")
        if len(known) == 1:
            raise InvalidRequest(f"node {node_id} is the only node of the cluster")
        await self._cluster.change(RemoveNode(node_id))

    async def balance(self) -> list[str]:
        """Move replicas to nodes that have fewer, and hand partitions to those meant to lead them.

        Logs of consumer groups get the replicas first that they lack. Names what was begun. Only
        nodes that can be reached take part.
        """
        metadata = self._metadata()
        if self._cluster.is_cut_off:
            raise Unavailable(
                f"node {self._node_id} is cut off and cannot say what is to be done; ask another"
                " node"
            )
        reachable = self._reachable()
        done = await self._carry_out(plan_shard_replicas(metadata, reachable))
        done += await self._carry_out(plan_moves(metadata, reachable))
        return done + await self._balance_leaders()

    async def _carry_out(self, moves: Mapping[int, tuple[int, ...]]) -> list[str]:
        metadata = self._cluster.metadata
        names = metadata.log_names()
        done = []
        for replicas in list(metadata.all_replicas()):
            nodes = moves.get(replicas.group)
            # What somebody else moves meanwhile goes where they want it.
            if nodes is None or self._current(replicas.group) != replicas:
                continue
            if await self._change_if_there(replicas, list(nodes)):
                before, after = _listed(replicas.nodes), _listed(nodes)
                done.append(f"{names[replicas.group]}: from nodes {before} to {after}")
        return done

    async def _balance_leaders(self) -> list[str]:
        done = []
        for each in (await self._cluster.overview.survey()).partitions:
            preferred = each.replicas[0]
            in_step = {follower.node for follower in each.followers if follower.is_in_step}
            is_led = each.leader >= 0 and not each.is_changing
            is_fit = preferred in in_step and preferred not in self._cluster.metadata.draining
            if not (is_led and each.leader != preferred and is_fit):
                continue
            # One that is gone or led by another node by now is no reason to leave out the others.
            with suppress(Unavailable, NotFound):
                await self._cluster.leadership.transfer(each.group, preferred)
                done.append(f"{_name(each)}: led by node {preferred} instead of {each.leader}")
        return done

    async def _change(self, replicas: Replicas, nodes: list[int]) -> None:
        known = self._cluster.metadata.nodes
        if not nodes or len(set(nodes)) != len(nodes) or any(node not in known for node in nodes):
            raise InvalidAssignment(
                f"replicas {nodes} were asked for, the cluster has nodes {sorted(known)}"
            )
        draining = self._cluster.metadata.draining.difference(replicas.nodes).intersection(nodes)
        if draining:
            raise Conflict(f"node {min(draining)} is being drained and takes no replicas")
        chosen = [known[node].member_of(replicas.group) for node in nodes]
        members = tuple((member.node, member.incarnation) for member in chosen)
        await self._cluster.change(ChangeReplicas(replicas.group, members))

    def _without(self, replicas: Replicas, node_id: int) -> list[int]:
        """Return the nodes of a log with another one in the place of `node_id`."""
        counts = Counter(
            node for each in self._cluster.metadata.all_replicas() for node in each.nodes
        )
        reachable = self._reachable()
        free = self._free_nodes(replicas, node_id)
        # A node that cannot be reached could not catch up; it is the last resort.
        free.sort(key=lambda node: (node not in reachable, counts[node], node))
        # In the same position, so that whoever is meant to lead stays the first.
        position = replicas.nodes.index(node_id)
        nodes = [*replicas.nodes[:position], *free[:1], *replicas.nodes[position + 1 :]]
        if not nodes:
            raise InvalidReplication(f"no other node can take the last replica of node {node_id}")
        return nodes

    def _free_nodes(self, replicas: Replicas, node_id: int) -> list[int]:
        metadata = self._cluster.metadata
        taken = {*replicas.nodes, *metadata.draining, node_id}
        return [node for node in metadata.nodes if node not in taken]


def _move(place: TopicPartition, replicas: Replicas) -> Move:
    leaving = replicas.leaving_nodes
    return Move(place, (*replicas.nodes, *leaving), replicas.joining_nodes, leaving)


def hot_partitions(partitions: list[PartitionStatus]) -> list[PartitionStatus]:
    """Return the partitions with more than three times the mean traffic."""
    if len(partitions) < 2:
        return []
    mean = sum(each.bytes_in_per_s for each in partitions) / len(partitions)
    return [each for each in partitions if mean > 0 and each.bytes_in_per_s > HOT_FACTOR * mean]


def _is_behind(partition: PartitionStatus) -> bool:
    in_step = 1 + sum(each.is_in_step for each in partition.followers)
    return partition.leader >= 0 and in_step < len(partition.replicas)


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))


def _name(partition: PartitionStatus) -> str:
    return f"{partition.topic}-{partition.partition}"
