"""The end of a reshard, as verbs: begin it, raise and lift its fence, switch, cancel, look.

What fences promise and what may crash is told in `cluster/resharding.py`. The job that copies asks
for these verbs; each may be asked for again when no answer came.
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence

import msgspec

from penstock.broker.calls import Calls
from penstock.cluster import (
    BeginReshard,
    CancelReshard,
    Cluster,
    FenceTopic,
    LiftFence,
    Partition,
    Resharding,
    SwitchTopics,
    Topic,
    check_fence,
    check_positions,
)
from penstock.errors import Conflict, NotFound
from penstock.ids import TopicPartition

COPYING = "copying"
FENCED = "fenced"
SWITCHED = "switched"


class FencedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition behind its fence: where it ends, and what waits there that is no record yet."""

    partition: int
    end: int
    scheduled: int
    """Messages that wait for their time."""
    staged: int
    """Runs of writers that are staged or decided, and not published."""


class TopicFence(msgspec.Struct, frozen=True, kw_only=True):
    """A fence that all partitions have confirmed."""

    fence: int
    partitions: list[FencedPartition]


class ReshardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a reshard is."""

    topic: str
    reshard_id: str
    phase: str
    target: str | None
    """The name of the copy; None when it was deleted."""
    fence: int
    partitions: int
    target_partitions: int
    records: int
    target_records: int


class _Close(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    topic_id: str
    fence: int
    closes_reads: bool = False


class _Look(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class Reshards:
    """The verbs that concern reshards."""

    def __init__(self, cluster: Cluster, calls: Calls) -> None:
        self._cluster = cluster
        self._calls = calls
        calls.serve("reshard.fence", _Close, self._close_here)
        calls.serve("reshard.records", _Look, self._records_here)

    async def begin(self, topic: str, reshard_id: uuid.UUID, target: str) -> None:
        """Name the copy that is to take the place of a topic."""
        source = self._cluster.metadata.topic(topic)
        copy = self._cluster.metadata.topic(target)
        archive = self._cluster.settings(topic).log.archive
        if archive:
            raise Conflict(
                f"topic {topic!r} is archived to {archive}, which knows records by their offsets;"
                " disable the archive first, and enable another one afterwards"
            )
        await self._cluster.change(BeginReshard(source.topic_id, reshard_id, copy.topic_id))

    async def fence(self, topic: str, reshard_id: uuid.UUID) -> TopicFence:
        """Turn writes away, or go on doing so; returns when no partition takes any more."""
        source = self._cluster.metadata.topic(topic)
        fenced: Topic = await self._cluster.change(FenceTopic(source.topic_id, reshard_id))
        assert fenced.resharding is not None, "a topic is fenced for a reshard"
        fence = fenced.resharding.fence
        closed = await self._close(fenced, fence, closes_reads=False)
        return TopicFence(fence=fence, partitions=closed)

    async def _close(
        self, topic: Topic, fence: int, *, closes_reads: bool
    ) -> list[FencedPartition]:
        requests = [
            _Close(topic.name, number, str(topic.topic_id), fence, closes_reads)
            for number in range(topic.partitions)
        ]
        return await asyncio.gather(
            *(
                self._calls.ask(
                    TopicPartition(each.topic, each.partition),
                    "reshard.fence",
                    each,
                    FencedPartition,
                )
                for each in requests
            )
        )

    async def lift(self, topic: str, fence: int) -> None:
        """Let a topic be written to again, unless the fence is another one by now."""
        source = self._cluster.metadata.topic(topic)
        await self._cluster.change(LiftFence(source.topic_id, fence))

    async def switch(
        self,
        topic: str,
        reshard_id: uuid.UUID,
        *,
        fence: int,
        former_name: str,
        positions: Mapping[str, Sequence[int]],
    ) -> None:
        """Give the name of a topic to its copy; a switch that was done before is left as it is."""
        former = self._cluster.metadata.topics.get(former_name)
        if former is not None and _is_switched(former.resharding, reshard_id):
            return
        source = self._cluster.metadata.topic(topic)
        given = {group: tuple(offsets) for group, offsets in positions.items()}
        if source.resharding is not None:
            check_positions(self._cluster.metadata.topic_by_id(source.resharding.target), given)
            check_fence(source.resharding, fence)
            await self._close(source, fence, closes_reads=True)
        await self._cluster.change(
            SwitchTopics(source.topic_id, reshard_id, fence, former_name, given)
        )

    async def cancel(self, topic: str) -> None:
        """Forget the reshard of a topic and delete its copy."""
        source = self._cluster.metadata.topic(topic)
        resharding = self._known(source)
        await self._cluster.change(CancelReshard(source.topic_id, resharding.reshard_id))

    async def status(self, topic: str) -> ReshardStatus:
        """Return how far the reshard of a topic is."""
        source = self._cluster.metadata.topic(topic)
        resharding = self._known(source)
        copies = self._cluster.metadata.topics.values()
        copy = next((each for each in copies if each.topic_id == resharding.target), None)
        return ReshardStatus(
            topic=topic,
            reshard_id=str(resharding.reshard_id),
            phase=_phase(resharding),
            target=copy.name if copy else None,
            fence=resharding.fence,
            partitions=source.partitions,
            target_partitions=copy.partitions if copy else 0,
            records=await self._records(source),
            target_records=await self._records(copy) if copy else 0,
        )

    def _known(self, topic: Topic) -> Resharding:
        if topic.resharding is None:
            raise NotFound(f"topic {topic.name!r} is not being resharded")
        return topic.resharding

    async def _records(self, topic: Topic) -> int:
        places = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        counts = await asyncio.gather(
            *(self._calls.ask(each, "reshard.records", _Look(*each), int) for each in places)
        )
        return sum(counts)

    # On the leader.

    async def _close_here(self, request: _Close) -> FencedPartition:
        partition = self._partition(request.topic, request.partition)
        topic = self._cluster.metadata.topic(request.topic)
        if str(topic.topic_id) != request.topic_id:
            raise Conflict(f"topic {request.topic!r} is another one by now")
        await partition.fence.close(request.fence, closes_reads=request.closes_reads)
        writes = partition.writes
        runs = sum(len(writer.runs) for writer in writes.staged.writers.values())
        return FencedPartition(
            partition=request.partition,
            end=int(partition.high_watermark),
            scheduled=partition.stage.count,
            staged=runs + len(writes.decisions.open),
        )

    async def _records_here(self, request: _Look) -> int:
        partition = self._partition(request.topic, request.partition)
        return int(partition.high_watermark) - int(partition.start_offset)

    def _partition(self, topic: str, number: int) -> Partition:
        partition = self._cluster.partition(TopicPartition(topic, number))
        partition.check_serving()
        return partition


def _is_switched(known: Resharding | None, reshard_id: uuid.UUID) -> bool:
    return known is not None and known.reshard_id == reshard_id and known.is_switched


def _phase(resharding: Resharding) -> str:
    if resharding.is_switched:
        return SWITCHED
    return FENCED if resharding.fence else COPYING
