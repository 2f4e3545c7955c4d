"""How far the archives of topics are.

An archive is written by a client; this node only keeps, with each partition, up to which offset the
archive is known to hold it, because retention waits for that. Whoever reports a position has made
the archive durable before.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from penstock.broker.calls import Calls
from penstock.clock import Clock
from penstock.cluster import Archived, Cluster, Topic
from penstock.errors import Conflict, TopicNotFound
from penstock.ids import TopicPartition


class ArchivedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """What a partition holds, and up to where its archive does."""

    partition: int
    start: int
    end: int
    archived: int


class _Note(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    archived: Archived


class _Look(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class Archives:
    """The verbs that concern archives."""

    def __init__(self, cluster: Cluster, calls: Calls, clock: Clock) -> None:
        self._cluster = cluster
        self._calls = calls
        self._clock = clock
        calls.serve("archive.note", _Note, self._note_here)
        calls.serve("archive.look", _Look, self._look_here)

    def topics(self) -> list[Topic]:
        """Return the topics that have an archive, by name."""
        topics = self._cluster.metadata.topics.values()
        return sorted((each for each in topics if self.path_of(each)), key=lambda each: each.name)

    def path_of(self, topic: Topic) -> str:
        """Return where a topic is archived; empty for nowhere."""
        return self._cluster.settings(topic.name).log.archive

    async def partitions(self, topic: Topic) -> list[ArchivedPartition]:
        """Return how far the archive of each partition is."""
        places = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        return await asyncio.gather(*(self._look(place) for place in places))

    async def report(
        self, topic: Topic, *, topic_id: str, path: str, table: str, offsets: Mapping[int, int]
    ) -> list[ArchivedPartition]:
        """Take note of how far an archive is; returns when that is committed."""
        if topic_id != str(topic.topic_id):
            raise Conflict(
                f"topic {topic.name} has the id {topic.topic_id}, the archive was written for"
                f" {topic_id}: the topic was created anew"
            )
        for partition in offsets:
            if partition not in range(topic.partitions):
                raise TopicNotFound(f"topic {topic.name} has no partition {partition}")
        now_ms = self._clock.now_ms()
        await asyncio.gather(
            *(
                self._note(topic.name, partition, Archived(path, table, offset, now_ms))
                for partition, offset in offsets.items()
            )
        )
        return await self.partitions(topic)

    async def _note(self, topic: str, partition: int, archived: Archived) -> None:
        place = TopicPartition(topic, partition)
        await self._calls.ask(place, "archive.note", _Note(topic, partition, archived), int)

    async def _note_here(self, request: _Note) -> int:
        place = TopicPartition(request.topic, request.partition)
        return await self._cluster.partition(place).note_archived(request.archived)

    async def _look(self, place: TopicPartition) -> ArchivedPartition:
        request = _Look(place.topic, place.partition)
        return await self._calls.ask(place, "archive.look", request, ArchivedPartition)

    async def _look_here(self, request: _Look) -> ArchivedPartition:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        partition.check_serving()
        return ArchivedPartition(
            partition=request.partition,
            start=partition.start_offset,
            end=partition.high_watermark,
            archived=partition.archived_offset,
        )
