"""The life of one message, read from its partition's log on the leader."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from penstock.broker.calls import Calls
from penstock.broker.groups import CommitsAsked, GroupCommit
from penstock.cluster import (
    Archived,
    Cluster,
    Partition,
    decode_events,
)
from penstock.delivery import (
    DeliveryEvent,
    StageEvent,
    StageTrace,
    Trace,
    TraceKind,
    TraceStep,
    index_and_place,
    parse_stage_id,
    stage_id,
)
from penstock.errors import InvalidRequest, MessageNotFound
from penstock.ids import TopicPartition
from penstock.log import EntryKind
from penstock.record import ID, Record, decode_records, read_header

# Other requests have their turn after so many entries.
_ENTRIES_AT_ONCE = 500
# Of a number that nodes can tell each other.
_DIGITS_MAX = 18


class _TraceRequest(msgspec.Struct, frozen=True):
    """The message at an offset, or the one that was scheduled under a number."""

    topic: str
    partition: int
    offset: int | None
    number: int | None


class Traces:
    """Tells what happened to a message."""

    def __init__(self, cluster: Cluster, calls: Calls) -> None:
        self._cluster = cluster
        self._calls = calls
        calls.serve("queue.trace", _TraceRequest, self._trace_here)

    async def trace(self, topic: str, message_id: str) -> list[TraceStep]:
        """Return the steps of a message's life, in the order of the log."""
        self._cluster.metadata.topic(topic)
        request = _request_of(topic, message_id)
        place = TopicPartition(topic, request.partition)
        return await self._calls.ask(place, "queue.trace", request, list[TraceStep])

    async def _trace_here(self, request: _TraceRequest) -> list[TraceStep]:
        place = TopicPartition(request.topic, request.partition)
        partition = self._cluster.partition(place)
        partition.check_serving()
        steps: list[TraceStep] = []
        offset, number = request.offset, request.number
        if offset is not None:
            number = _number_of(_record_at(partition, offset))
        if number is not None:
            scheduled, offset = await self._stage(partition, number, offset)
            steps += scheduled
        if offset is None:
            if not steps:
                raise MessageNotFound(f"{place} knows of no such scheduled message any more")
            return steps
        return steps + await self._life(partition, offset, is_released=number is not None)

    async def _life(
        self, partition: Partition, offset: int, *, is_released: bool
    ) -> list[TraceStep]:
        """Return the steps from the record on."""
        record = _record_at(partition, offset)
        index = _index_of(partition, offset)
        kind = TraceKind.RELEASED if is_released else TraceKind.PUBLISHED
        steps = [*self._beginning(partition, record, index, kind)]
        told = await self._journal(partition, offset, index)
        steps += [self._with_grave(partition.place.topic, each) for each in told]
        steps += await self._commits(partition, offset)
        settings = partition.log.log.settings
        if settings.retention_ms >= 0 and settings.deletes:
            until_ms = record.timestamp + settings.retention_ms
            detail = "kept at least until then"
            steps.append(TraceStep(kind=TraceKind.RETAINED, at_ms=until_ms, detail=detail))
        return steps

    def _with_grave(self, topic: str, step: TraceStep) -> TraceStep:
        """Add to the end of a message where its dead letter is, by the settings as they stand."""
        if step.kind is not TraceKind.DEAD_LETTERED:
            return step
        grave = self._cluster.replicas.group_settings(topic, step.group).dead_letter_topic
        return msgspec.structs.replace(step, detail=f"copied to {grave}")

    async def _commits(self, partition: Partition, offset: int) -> list[TraceStep]:
        """Return which Kafka groups have committed a position behind the message, and when last."""
        asked = CommitsAsked(partition.place.topic, partition.place.partition, offset)
        answers = await self._calls.ask_all("groups.commits", asked, list[GroupCommit])
        return [
            TraceStep(
                kind=TraceKind.COMMITTED,
                at_ms=each.at_ms,
                group=each.group,
                detail=f"the last commit, of offset {each.offset}",
            )
            for each in sorted(
                (each for answer in answers for each in answer), key=lambda each: each.at_ms
            )
        ]

    async def _stage(
        self, partition: Partition, number: int, offset: int | None
    ) -> tuple[list[TraceStep], int | None]:
        """Return what happened before the release, and the offset that it gave."""
        log = partition.log.log
        trace = StageTrace(number)
        steps: list[tuple[int, TraceStep]] = []
        first_index = max(index_and_place(number)[0], log.first_index)
        end_index = partition.log.applied_index + 1
        if offset is not None:
            end_index = _index_of(partition, offset)
        for count, entry in enumerate(log.state_entries(first_index)):
            if entry.index >= end_index:
                break
            for event in decode_events(entry.payload):
                if isinstance(event, StageEvent):
                    steps += [(entry.index, each) for each in trace.follow(event, entry.index)]
            await self._give_way(partition, count)
        if offset is None and not partition.stage.is_waiting(number):
            offset = await self._released_at(partition, number, trace)
            if offset is not None:
                end_index = _index_of(partition, offset)
        return [step for index, step in steps if index < end_index], offset

    async def _released_at(
        self, partition: Partition, number: int, trace: StageTrace
    ) -> int | None:
        """Return the offset of a message that was released: when due, and before it was cancelled.

        None for one that was cancelled in time, and for one that the log holds no more.
        """
        log = partition.log.log
        name = stage_id(partition.place.partition, number).encode()
        first = None if trace.due_ms_min is None else partition.find_time(trace.due_ms_min)
        if first is None:
            return None
        begin_index = max(_index_of(partition, first.offset), index_and_place(number)[0])
        end_index = trace.cancelled_index or partition.log.applied_index + 1
        for index in range(begin_index, end_index):
            row, payload = log.payload_at(index)
            if row.kind == EntryKind.RECORDS and payload and read_header(payload).is_release:
                for record in decode_records(payload):
                    if (ID, name) in record.headers:
                        return record.offset
            await self._give_way(partition, index)
        return None

    @staticmethod
    async def _give_way(partition: Partition, count: int) -> None:
        """Let others have their turn now and then."""
        if count % _ENTRIES_AT_ONCE == _ENTRIES_AT_ONCE - 1:
            await asyncio.sleep(0)
            partition.check_serving()

    def _beginning(
        self, partition: Partition, record: Record, index: int, kind: TraceKind
    ) -> Iterator[TraceStep]:
        log = partition.log
        yield TraceStep(
            kind=kind,
            at_ms=record.timestamp,
            detail=f"offset {record.offset}, leader epoch {log.log.term_at(index)}",
            offset=record.offset,
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
            for event in decode_events(entry.payload):
                if isinstance(event, Archived):
                    steps += self._archived(steps, event, offset)
                elif isinstance(event, DeliveryEvent):
                    steps += trace.follow(event)
            if number % _ENTRIES_AT_ONCE == _ENTRIES_AT_ONCE - 1:
                if _is_over(partition, trace, steps, offset):
                    break
                await self._give_way(partition, number)
        return steps

    def _archived(
        self, steps: list[TraceStep], event: Archived, offset: int
    ) -> Iterator[TraceStep]:
        """Yield that an archive holds the message, once for each archive."""
        detail = f"in {event.path}"
        is_told = any((each.kind, each.detail) == (TraceKind.ARCHIVED, detail) for each in steps)
        if offset < event.offset and not is_told:
            yield TraceStep(kind=TraceKind.ARCHIVED, at_ms=event.at_ms, detail=detail)


def _is_over(partition: Partition, trace: Trace, steps: list[TraceStep], offset: int) -> bool:
    """True when later entries say nothing of a message: all groups and the archive have it.

    A group that was reset may have had it before and again after that.
    """
    if offset < partition.archived_offset and not any(
        step.kind is TraceKind.ARCHIVED for step in steps
    ):
        return False
    return all(
        offset >= ledger.reborn_end
        and (ledger.is_open(offset) or (ledger.is_settled(offset) and trace.is_over(group)))
        for group, ledger in partition.queue.groups.items()
    )


def _request_of(topic: str, message_id: str) -> _TraceRequest:
    if "-s" in message_id:
        partition, number = parse_stage_id(message_id)
        return _TraceRequest(topic, partition, None, number)
    text, _, offset = message_id.partition("-")
    if not (text.isdecimal() and offset.isdecimal()):
        raise InvalidRequest(f"{message_id[:60]!r} is not the id of a message: partition-offset")
    if max(len(text), len(offset)) > _DIGITS_MAX:
        raise MessageNotFound(f"{topic} holds no message {message_id[:60]!r}")
    return _TraceRequest(topic, int(text), int(offset), None)


def _record_at(partition: Partition, offset: int) -> Record:
    record = None
    if partition.start_offset <= offset < partition.high_watermark:
        record = partition.queue.records.get(offset)
    if record is None:
        start, end = partition.start_offset, partition.high_watermark
        held = f"offsets {start} to {end - 1}" if start < end else "no messages now"
        raise MessageNotFound(
            f"{partition.place} holds no message at offset {offset}; it holds {held}"
        )
    return record


def _number_of(record: Record) -> int | None:
    """Return the number under which a record was scheduled."""
    for name, value in record.headers:
        if name == ID and value is not None:
            with suppress(InvalidRequest, MessageNotFound, UnicodeDecodeError):
                return parse_stage_id(value.decode())[1]
    return None


def _index_of(partition: Partition, offset: int) -> int:
    """Return the entry that holds an offset."""
    segments = partition.log.log.segments
    number = bisect_right(segments, offset, key=lambda each: each.first_offset) - 1
    segment = segments[max(number, 0)]
    return segment.first_index + segment.table.number_of_offset(offset)
