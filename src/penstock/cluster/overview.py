"""What all nodes together know about the partitions of the cluster.

Each leader knows its own partitions, so all nodes are asked at the same time. One that does not
answer soon is named as silent, and what it leads is shown without a leader.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from penstock.cluster.links import Links, RequestKind
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.move_queue import MoveQueue
from penstock.cluster.replica_set import ReplicaSet
from penstock.cluster.status import PartitionStatus, leaderless, partition_status, with_replicas
from penstock.cluster.workplace import Workplace
from penstock.errors import Unavailable
from penstock.ids import NodeId

_ANSWER_TIMEOUT_S = 1.5


@dataclass(frozen=True, slots=True)
class Survey:
    """All partitions, and the nodes that did not tell theirs."""

    partitions: list[PartitionStatus]
    silent: frozenset[int]


class Overview:
    """Asks this node and the others."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        replicas: ReplicaSet,
        queue: MoveQueue,
        links: Links,
        workplace: Workplace,
    ) -> None:
        self._metadata = metadata
        self._queue = queue
        self._replicas = replicas
        self._links = links
        self._workplace = workplace

    def led_here(self) -> list[PartitionStatus]:
        """Return what this node knows about the partitions that it leads."""
        now_s = self._workplace.clock.steady_s()
        return [
            partition_status(partition, self._replicas.replicas_of(place), now_s)
            for place, partition in self._replicas.opened()
            if partition.log.is_serving and place.topic in self._metadata.topics
        ]

    async def survey(self) -> Survey:
        """Ask every node for the partitions that it leads."""
        others = sorted(self._metadata.nodes.keys() - {self._replicas.identity.member.node})
        answers = await asyncio.gather(*(self._ask(NodeId(node)) for node in others))
        told = dict(zip(others, answers, strict=True))
        found = {(each.topic, each.partition): each for each in self.led_here()}
        for partitions in told.values():
            found |= {(each.topic, each.partition): each for each in partitions or ()}
        silent = frozenset(node for node, partitions in told.items() if partitions is None)
        return Survey(list(self._completed(found)), silent)

    def _completed(
        self, found: Mapping[tuple[str, int], PartitionStatus]
    ) -> Iterator[PartitionStatus]:
        """Describe every partition, with the replicas that this node knows it to have.

        A leader may have heard of a change a moment later than the node that it was asked of.
        """
        waiting = self._queue.waiting()
        for name, topic in sorted(self._metadata.topics.items()):
            for number, replicas in enumerate(topic.replicas):
                status = found.get((name, number)) or leaderless(name, number, replicas)
                yield with_replicas(status, replicas, is_queued=replicas.group in waiting)

    async def _ask(self, node: NodeId) -> list[PartitionStatus] | None:
        try:
            answer = await self._links.request(
                node, RequestKind.STATUS, b"", timeout_s=_ANSWER_TIMEOUT_S
            )
        except Unavailable:
            return None
        return msgspec.msgpack.decode(answer, type=list[PartitionStatus])
