"""What operators do to a running cluster: look, move, drain, remove, hand over, balance."""

from collections import Counter
from dataclasses import dataclass

from penstock.cluster import (
    ChangeReplicas,
    Cluster,
    DrainNode,
    Node,
    PartitionStatus,
    RemoveNode,
    Replicas,
)
from penstock.errors import Conflict, InvalidReplication, InvalidRequest, NotFound
from penstock.ids import TopicPartition

# A partition with more than this many times the mean traffic is hot.
HOT_FACTOR = 3.0


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node as the one that was asked sees it."""

    node: Node
    is_reachable: bool
    is_draining: bool
    leads: int
    replicas: int


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The whole cluster at a glance."""

    cluster_id: str
    asked_node: int
    metadata_leader: int
    nodes: list[NodeStatus]
    topics: int
    partitions: int
    without_leader: list[str]
    behind: list[str]
    changing: list[str]
    hot: list[str]


class Operations:
    """The verbs of operators. Any node carries them out."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self._cluster = cluster
        self._node_id = node_id

    async def status(self, metadata_leader: int) -> ClusterStatus:
        """Look at everything."""
        partitions = await self._cluster.all_partitions()
        metadata = self._cluster.metadata
        return ClusterStatus(
            cluster_id=str(metadata.cluster_id),
            asked_node=self._node_id,
            metadata_leader=metadata_leader,
            nodes=self._node_statuses(partitions),
            topics=len(metadata.topics),
            partitions=len(partitions),
            without_leader=[_name(each) for each in partitions if each.leader < 0],
            behind=[_name(each) for each in partitions if _is_behind(each)],
            changing=[_name(each) for each in partitions if each.is_changing],
            hot=[_name(each) for each in hot_partitions(partitions)],
        )

    def _node_statuses(self, partitions: list[PartitionStatus]) -> list[NodeStatus]:
        leads = Counter(each.leader for each in partitions)
        replicas = Counter(node for each in partitions for node in each.replicas)
        metadata = self._cluster.metadata
        reachable = {*self._cluster.links.connected, self._node_id}
        return [
            NodeStatus(
                node,
                node_id in reachable,
                node_id in metadata.draining,
                leads[node_id],
                replicas[node_id],
            )
            for node_id, node in sorted(metadata.nodes.items())
        ]

    async def partitions(self, topic: str | None = None) -> list[PartitionStatus]:
        """Return all partitions, or those of one topic."""
        if topic is not None:
            self._cluster.metadata.topic(topic)
        found = await self._cluster.all_partitions()
        return [each for each in found if topic is None or each.topic == topic]

    async def move(self, place: TopicPartition, nodes: list[int]) -> None:
        """Let other nodes replicate a partition; returns when the change has begun."""
        replicas = self._cluster.replicas_of(place)
        await self._change(replicas, nodes)

    async def cancel_move(self, place: TopicPartition) -> None:
        """Return to the replicas that a partition had before a move that is not finished."""
        replicas = self._cluster.replicas_of(place)
        if not replicas.former:
            raise Conflict(f"{place} is not being moved")
        await self._cluster.change(ChangeReplicas(replicas.group, replicas.former))

    async def transfer_leader(self, place: TopicPartition, to: int) -> None:
        """Let another replica lead a partition."""
        replicas = self._cluster.replicas_of(place)
        if to not in replicas.nodes:
            raise InvalidRequest(
                f"node {to} does not replicate {place}, nodes {list(replicas.nodes)} do"
            )
        await self._cluster.transfer_leader(replicas.group, to)

    async def drain(self, node_id: int) -> int:
        """Move everything off a node and place nothing new there; return how much is moved."""
        await self._cluster.change(DrainNode(node_id, True))
        moved = 0
        for replicas in list(self._cluster.metadata.all_replicas()):
            if node_id in replicas.nodes:
                await self._change(replicas, self._without(replicas, node_id))
                moved += 1
        return moved

    async def end_drain(self, node_id: int) -> None:
        """Let a node take replicas again."""
        await self._cluster.change(DrainNode(node_id, False))

    async def remove_node(self, node_id: int) -> None:
        """Forget a node that replicates nothing any more."""
        if node_id not in self._cluster.metadata.nodes:
            raise NotFound(f"there is no node {node_id}")
        await self._cluster.change(RemoveNode(node_id))

    async def balance(self) -> list[str]:
        """Hand partitions back to the replica that is meant to lead them; name what was done."""
        done = []
        for each in await self._cluster.all_partitions():
            preferred = each.replicas[0]
            in_step = {follower.node for follower in each.followers if follower.is_in_step}
            if each.leader >= 0 and each.leader != preferred and preferred in in_step:
                await self._cluster.transfer_leader(each.group, preferred)
                done.append(f"{_name(each)}: node {each.leader} to node {preferred}")
        return done

    async def _change(self, replicas: Replicas, nodes: list[int]) -> None:
        known = self._cluster.metadata.nodes
        if not nodes or len(set(nodes)) != len(nodes) or any(node not in known for node in nodes):
            raise InvalidReplication(
                f"replicas {nodes} were asked for, the cluster has nodes {sorted(known)}"
            )
        members = tuple((node, known[node].incarnation) for node in nodes)
        await self._cluster.change(ChangeReplicas(replicas.group, members))

    def _without(self, replicas: Replicas, node_id: int) -> list[int]:
        """Return the nodes of a log with another one in the place of `node_id`."""
        metadata = self._cluster.metadata
        counts = Counter(node for each in metadata.all_replicas() for node in each.nodes)
        free = [
            node
            for node in metadata.nodes
            if node not in replicas.nodes and node not in metadata.draining
        ]
        kept = [node for node in replicas.nodes if node != node_id]
        if free:
            return [*kept, min(free, key=lambda node: (counts[node], node))]
        if not kept:
            raise InvalidReplication(f"no other node can take the last replica of node {node_id}")
        return kept


def hot_partitions(partitions: list[PartitionStatus]) -> list[PartitionStatus]:
    """Return the partitions with more than three times the mean traffic."""
    if len(partitions) < 2:
        return []
    mean = sum(each.bytes_in_per_s for each in partitions) / len(partitions)
    return [each for each in partitions if mean > 0 and each.bytes_in_per_s > HOT_FACTOR * mean]


def _is_behind(partition: PartitionStatus) -> bool:
    in_step = 1 + sum(each.is_in_step for each in partition.followers)
    return partition.leader >= 0 and in_step < len(partition.replicas)


def _name(partition: PartitionStatus) -> str:
    return f"{partition.topic}-{partition.partition}"
