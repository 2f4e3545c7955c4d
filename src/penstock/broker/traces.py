"""The life of one message, read from its partition's log on the leader."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from penstock.broker.calls import Calls
from penstock.cluster import Cluster, Partition, StartMoved, decode_event
from penstock.delivery import Trace, TraceKind, TraceStep
from penstock.errors import InvalidRequest, MessageNotFound
from penstock.ids import TopicPartition
from penstock.record import Record

# Other requests have their turn after so many entries.
_ENTRIES_AT_ONCE = 500


class _TraceRequest(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int


class Traces:
    """Tells what happened to a message."""

    def __init__(self, cluster: Cluster, calls: Calls) -> None:
        self._cluster = cluster
        self._calls = calls
        calls.serve("queue.trace", _TraceRequest, self._trace_here)

    async def trace(self, topic: str, message_id: str) -> list[TraceStep]:
        """Return the steps of a message's life, in the order of the log."""
        self._cluster.metadata.topic(topic)
        partition, offset = _place_of(message_id)
        request = _TraceRequest(topic, partition, offset)
        place = TopicPartition(topic, partition)
        return await self._calls.ask(place, "queue.trace", request, list[TraceStep])

    async def _trace_here(self, request: _TraceRequest) -> list[TraceStep]:
        place = TopicPartition(request.topic, request.partition)
        partition = self._cluster.partition(place)
        partition.check_serving()
        record = None
        if partition.start_offset <= request.offset < partition.high_watermark:
            record = partition.queue.records.get(request.offset)
        if record is None:
            raise MessageNotFound(
                f"{place} holds no message at offset {request.offset}; it holds"
                f" {partition.start_offset} to {partition.high_watermark}"
            )
        index = _index_of(partition, request.offset)
        steps = [*self._beginning(partition, record, index)]
        steps += await self._journal(partition, request.offset, index)
        retention_ms = partition.log.log.settings.retention_ms
        if retention_ms >= 0 and partition.log.log.settings.deletes:
            until_ms = record.timestamp + retention_ms
            steps.append(
                TraceStep(
                    kind=TraceKind.RETAINED, at_ms=until_ms, detail="kept at least until then"
                )
            )
        return steps

    def _beginning(self, partition: Partition, record: Record, index: int) -> Iterator[TraceStep]:
        log = partition.log
        yield TraceStep(
            kind=TraceKind.PUBLISHED,
            at_ms=record.timestamp,
            detail=f"offset {record.offset}, leader epoch {log.log.term_at(index)}",
        )
        followers = [each.node for each in log.followers() if each.match >= index]
        nodes = sorted([log.identity.member.node, *followers])
        yield TraceStep(
            kind=TraceKind.REPLICATED,
            at_ms=record.timestamp,
            node=log.identity.member.node,
            detail=f"on nodes {', '.join(map(str, nodes))}",
        )

    async def _journal(self, partition: Partition, offset: int, index: int) -> list[TraceStep]:
        trace = Trace(offset)
        steps: list[TraceStep] = []
        for number, entry in enumerate(partition.log.log.state_entries(index)):
            if entry.index > partition.log.applied_index:
                break
            event = decode_event(entry.payload)
            if not isinstance(event, StartMoved):
                steps += trace.follow(event)
            if number % _ENTRIES_AT_ONCE == _ENTRIES_AT_ONCE - 1:
                await asyncio.sleep(0)
                partition.check_serving()
        return steps


def _place_of(message_id: str) -> tuple[int, int]:
    partition, _, offset = message_id.partition("-")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise InvalidRequest(f"{message_id[:60]!r} is not the id of a message: partition-offset")
    return int(partition), int(offset)


def _index_of(partition: Partition, offset: int) -> int:
    """Return the entry that holds an offset."""
    segments = partition.log.log.segments
    number = bisect_right(segments, offset, key=lambda each: each.first_offset) - 1
    segment = segments[max(number, 0)]
    return segment.first_index + segment.table.number_of_offset(offset)
