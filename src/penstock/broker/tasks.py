"""Tasks: messages of the topics `tasks` and `tasks.<type>`, worked on by the group `workers`.

A type has a topic of its own. A worker that wants some types waits on their topics and is woken by
these alone, however many tasks of other types lie in between; a selector over one topic would read
past them again and again, and one slow type would fill the limits on messages in flight for all. A
type costs what a topic costs: an idle replica group for each partition.

How often a task is tried again is the task's own affair, so the group's limit is set above all
that a task may ask for, and each goes out with its own: with the last try it dies by the books of
the group, whether it was given back or its lease has ended, and whoever is there to lease.
Everything else is the group's, too: leases, receipts, backoff, order, dead letters. Nothing is kept
here, so nothing can be lost here.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

import msgspec

from penstock.broker.calls import Calls
from penstock.broker.dead_letters import HANDLED
from penstock.broker.messages import Messages, NewMessage
from penstock.broker.queue_values import Message, Nack, Reject, check_number
from penstock.broker.queues import COUNT_MAX, WAIT_MS_MAX, Queues
from penstock.broker.schedule import Schedule, Scheduled
from penstock.broker.task_values import (
    GROUP,
    MAX_RETRIES,
    RETRIES_DEFAULT,
    RETRIES_MAX,
    EnqueuedTask,
    LeasedTask,
    NewTask,
    TaskPlace,
    TaskStatus,
    TypeStatus,
    check_type,
    is_staged_id,
    parse_task_id,
    read_max_retries,
    task_id,
    topic_of,
    type_of,
)
from penstock.broker.topics import NewTopic, Topics
from penstock.cluster import DEAD_LETTER_SUFFIX, Cluster, Partition
from penstock.delivery import EXPIRY_REASON, Ledger, TraceKind, TraceStep, parse_receipt
from penstock.errors import InvalidReceipt, MessageNotFound, PenstockError, TopicExists
from penstock.ids import TopicPartition
from penstock.record import ID, Record, attributes_of

T = TypeVar("T")

LISTED_MAX = 1_000
TYPES_MAX = 100
# How far the log is searched for a task that was scheduled once.
_SEARCHED_MAX = 100_000
_PAGE_RECORDS = 1_000
_PAGE_BYTES = 1024 * 1024
# Where messages go out all the time, the books are always a moment behind.
_BOOKS_LOOKS = 10
_BOOKS_PAUSE_S = 0.005
_FAILURES = {TraceKind.NACKED, TraceKind.REJECTED, TraceKind.EXPIRED}
_DELIVERIES = {TraceKind.DELIVERED, TraceKind.REDELIVERED}


class _Look(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int


class _List(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    count_max: int


class _Count(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class TaskParts(NamedTuple):
    """The verbs that those of tasks are made of."""

    topics: Topics
    messages: Messages
    queues: Queues
    schedule: Schedule


class Tasks:
    """The verbs of tasks."""

    def __init__(self, cluster: Cluster, calls: Calls, parts: TaskParts) -> None:
        self._cluster = cluster
        self._calls = calls
        self._topics = parts.topics
        self._messages = parts.messages
        self._queues = parts.queues
        self._schedule = parts.schedule
        cluster.replicas.delivery.own_limits = _own_limits
        calls.serve("tasks.look", _Look, self._look_here)
        calls.serve("tasks.id", _Look, self._id_here)
        calls.serve("tasks.list", _List, self._list_here)
        calls.serve("tasks.count_failed", _Count, self._count_failed_here)

    async def enqueue(self, new: NewTask) -> EnqueuedTask:
        """Enqueue a task; it is committed when this returns."""
        check_number("max_retries", new.max_retries, 0, RETRIES_MAX)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if new.max_retries != RETRIES_DEFAULT:
            headers = ((MAX_RETRIES, str(new.max_retries).encode()),)
        topic = await self._open(new.type)
        message = NewMessage(
            value=new.payload,
            headers=headers,
            priority=new.priority,
            deliver_at_ms=new.deliver_at_ms,
            idempotency_key=new.idempotency_key,
        )
        (result,) = await self._messages.publish(topic, [message])
        if isinstance(result, PenstockError):
            raise result
        due_ms = (result.deliver_at_ms or new.deliver_at_ms) if result.offset is None else None
        return EnqueuedTask(
            id=task_id(new.type, result.id, due_ms),
            type=new.type,
            state="queued" if due_ms is None else "scheduled",
            is_duplicate=result.is_duplicate,
        )

    async def _open(self, task_type: str) -> str:
        """Make sure of the topic and the group of a type."""
        check_type(task_type)
        topic = topic_of(task_type)
        if topic not in self._cluster.metadata.topics:
            with suppress(TopicExists):
                # Another one may be faster.
                await self._topics.create(NewTopic(topic))
        await self._open_group(topic)
        return topic

    async def _open_group(self, topic: str) -> None:
        if GROUP not in self._cluster.metadata.topic(topic).groups:
            limit = {"delivery.attempts.max": str(RETRIES_MAX + 1)}
            await self._queues.create_group(topic, GROUP, limit)

    # Working.

    async def lease(
        self,
        types: Sequence[str],
        *,
        count_max: int,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        worker: str = "",
    ) -> list[LeasedTask]:
        """Return tasks of these types, or of any, waiting up to `wait_ms` for the first.

        A type begins with its first task; one that has none yet is waited for like any other.
        """
        check_number("the number of types", len(types), 0, TYPES_MAX)
        check_number("count_max", count_max, 1, COUNT_MAX)
        check_number("wait_ms", wait_ms, 0, WAIT_MS_MAX)
        for each in types:
            check_type(each)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_ms / 1000
        while True:
            version = self._cluster.version
            topics = await self._begun_topics(types)
            tasks: list[LeasedTask] = []
            if topics:
                messages = await self._queues.receive_any(
                    topics, GROUP, count_max=count_max, lease_ms=lease_ms, consumer=worker
                )
                tasks = await self._worth_trying(messages)
            if tasks or loop.time() >= until_s:
                return tasks
            if self._cluster.version == version:
                # A type that begins changes the metadata, and its partitions get leaders then.
                are_all = bool(types) and len(topics) == len(set(types))
                await self._queues.wait_any(
                    topics, GROUP, worker, until_s=until_s, awaits_topics=not are_all
                )

    async def _begun_topics(self, types: Sequence[str]) -> list[str]:
        """Return the topics of those types, or of all, that have begun by a task.

        A lease begins none: nobody would ever remove the topic of a type that was mistyped.
        """
        known = self._cluster.metadata.topics
        wanted = dict.fromkeys(topic_of(each) for each in types)
        topics = [
            topic for topic in wanted or known if topic in known and type_of(topic) is not None
        ]
        for topic in topics:
            await self._open_group(topic)
        return topics

    async def _worth_trying(self, messages: Sequence[Message]) -> list[LeasedTask]:
        """Return tasks that have tries left; the others go to the dead letters.

        Those are tasks whose leases say nothing of their limit: of a node of another version.
        """
        tasks = [_leased(message) for message in messages]
        spent: dict[str, list[Reject]] = {}
        for task in tasks:
            if task.attempt > task.max_retries + 1:
                spent.setdefault(task.topic, []).append(Reject(task.receipt, EXPIRY_REASON))
        for topic, items in spent.items():
            await self._queues.reject(topic, GROUP, items)
        return [task for task in tasks if task.attempt <= task.max_retries + 1]

    async def ack(self, text: str, receipt: str) -> None:
        """Settle a task as done; durable when this returns."""
        topic = await self._topic_of(text, receipt)
        _raise(await self._queues.ack(topic, GROUP, [receipt]))

    async def extend(self, text: str, receipt: str, *, lease_ms: int | None) -> None:
        """Let a lease end `lease_ms` from now, or after the time that the group gives."""
        topic = await self._topic_of(text, receipt)
        if lease_ms is None:
            lease_ms = self._queues.settings_of(topic, GROUP).lease_ms
        _raise(await self._queues.extend(topic, GROUP, [receipt], lease_ms=lease_ms))

    async def nack(
        self, text: str, receipt: str, *, delay_ms: int | None = None, reason: str = ""
    ) -> None:
        """Give a task back: it is tried again later, or fails for good after its last try."""
        topic = await self._topic_of(text, receipt)
        _raise(await self._queues.nack(topic, GROUP, [Nack(receipt, delay_ms, reason)]))

    async def give_back(
        self, text: str, receipt: str, *, delay_ms: int | None = None, reason: str = ""
    ) -> None:
        """Give a task back that was not begun, which costs no try."""
        topic = await self._topic_of(text, receipt)
        nack = Nack(receipt, delay_ms, reason, is_counted=False)
        _raise(await self._queues.nack(topic, GROUP, [nack]))

    async def _topic_of(self, text: str, receipt: str) -> str:
        """Return the topic of a task; the receipt must be one of this task and of no other."""
        place = parse_task_id(text)
        partition, _, offset = parse_receipt(receipt)
        is_own = partition == place.partition and place.offset in (None, offset)
        if is_own and place.offset is None:
            # Where a task came to that was scheduled is written in its record alone.
            request = _Look(place.topic, partition, offset)
            found = await self._ask(request, verb="tasks.id", reply=str)
            is_own = parse_task_id(found).staged_id == place.staged_id
        if not is_own:
            raise InvalidReceipt(f"receipt {receipt} is of another task than {text[:100]}")
        return place.topic

    # Looking.

    async def status(self, text: str) -> TaskStatus:
        """Return how a task stands.

        What became of a task that is not queued any more is read from the journal of its partition.
        """
        place = parse_task_id(text)
        if place.topic not in self._cluster.metadata.topics:
            raise MessageNotFound(
                f"there is no task {text[:100]!r}: none of that type was enqueued"
            )
        offset = place.offset
        if offset is None:
            waiting = await self._schedule.find(place.topic, place.staged_id)
            if waiting is not None:
                return _scheduled(text, place, waiting)
            offset = await self._find_released(place)
        status = await self._look(place.topic, place.partition, offset)
        if status.attempts != 0:
            steps = await self._queues.trace(place.topic, f"{place.partition}-{offset}")
            status = _with_history(status, steps)
        return msgspec.structs.replace(status, id=text)

    async def _look(self, topic: str, partition: int, offset: int) -> TaskStatus:
        return await self._ask(_Look(topic, partition, offset), verb="tasks.look", reply=TaskStatus)

    async def _ask(self, request: _Look, *, verb: str, reply: type[T]) -> T:
        topic, partition = request.topic, request.partition
        if partition >= self._cluster.metadata.topic(topic).partitions:
            raise MessageNotFound(f"there is no partition {partition} of {topic}")
        return await self._calls.ask(TopicPartition(topic, partition), verb, request, reply)

    async def _find_released(self, place: TaskPlace) -> int:
        """Return the offset of a task that was scheduled.

        It came into the log when it was due, unless somebody gave it another time. Then its trace
        tells, which takes longer to read.
        """
        where = TopicPartition(place.topic, place.partition)
        offset = await self._messages.find_offset(where, time_ms=place.due_ms)
        wanted = (ID, place.staged_id.encode())
        for _ in range(_SEARCHED_MAX // _PAGE_RECORDS):
            records = await self._messages.read(
                where, offset=offset, count_max=_PAGE_RECORDS, bytes_max=_PAGE_BYTES
            )
            if not records:
                break
            for record in records:
                if wanted in record.headers:
                    return record.offset
            offset = records[-1].offset + 1
        return await self._find_moved(place)

    async def _find_moved(self, place: TaskPlace) -> int:
        fate = "it is gone"
        with suppress(MessageNotFound):
            for step in await self._queues.trace(place.topic, place.staged_id):
                if step.offset is not None:
                    return step.offset
                if step.kind is TraceKind.CANCELLED:
                    fate = "it was cancelled"
        raise MessageNotFound(
            f"there is no task {place.staged_id} of type {place.type!r} any more: {fate}"
        )

    async def pending(self, types: Sequence[str], *, count_max: int = 100) -> list[TaskStatus]:
        """Return tasks that are queued or leased, oldest first in each partition."""
        check_number("count_max", count_max, 1, LISTED_MAX)
        found: list[TaskStatus] = []
        for topic in self._topics_of(types):
            for number in range(self._cluster.metadata.topic(topic).partitions):
                request = _List(topic, number, count_max - len(found))
                place = TopicPartition(topic, number)
                found += await self._calls.ask(place, "tasks.list", request, list[TaskStatus])
                if len(found) >= count_max:
                    return found
        return found

    async def stats(self) -> list[TypeStatus]:
        """Return how many tasks of each type are in which state."""
        return [await self._stats_of(topic) for topic in self._topics_of(())]

    def _topics_of(self, types: Sequence[str]) -> Iterable[str]:
        topics = sorted(self._cluster.metadata.topics)
        if not types:
            return [topic for topic in topics if type_of(topic) is not None]
        return [topic for topic in topics if topic in {topic_of(each) for each in types}]

    async def _stats_of(self, topic: str) -> TypeStatus:
        await self._open(type_of(topic) or "")
        status = await self._queues.status(topic, GROUP)
        parts = status.partitions
        dying = sum(each.dying for each in parts)
        oldest = [
            each.oldest_unsettled_ms for each in parts if each.oldest_unsettled_ms is not None
        ]
        return TypeStatus(
            type=type_of(topic) or "",
            queued=status.unsettled - status.in_flight - dying,
            retrying=sum(each.waiting for each in parts),
            leased=status.in_flight,
            scheduled=await self._schedule.count(topic),
            # One that is dying may have its copy among the dead letters, and is not counted twice.
            failed=await self._count_failed(topic + DEAD_LETTER_SUFFIX),
            oldest_ms=min(oldest, default=None),
        )

    async def _count_failed(self, topic: str) -> int:
        found = self._cluster.metadata.topics.get(topic)
        if found is None:
            return 0
        places = [TopicPartition(topic, number) for number in range(found.partitions)]
        counts = await asyncio.gather(
            *(self._calls.ask(place, "tasks.count_failed", _Count(*place), int) for place in places)
        )
        return sum(counts)

    # On the leader.

    async def _look_here(self, request: _Look) -> TaskStatus:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        record = _record_of(partition, request)
        await self._wait_for_books(partition)
        return _status(request.topic, request.partition, record, partition.queue.groups.get(GROUP))

    async def _id_here(self, request: _Look) -> str:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        record = _record_of(partition, request)
        task_type = type_of(request.topic) or ""
        return _id_of(task_type, request.partition, record.offset, record.headers)

    async def _wait_for_books(self, partition: Partition) -> None:
        """Messages go out before that is committed; a moment later the books know of it."""
        for _ in range(_BOOKS_LOOKS):
            dispatcher = partition.queue.dispatcher(GROUP)
            if dispatcher is None or not dispatcher.reserved_count:
                return
            await asyncio.sleep(_BOOKS_PAUSE_S)

    async def _list_here(self, request: _List) -> list[TaskStatus]:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        partition.check_serving()
        await self._wait_for_books(partition)
        ledger = partition.queue.groups.get(GROUP)
        offset = int(max(partition.start_offset, ledger.floor if ledger else 0))
        found: list[TaskStatus] = []
        while offset < partition.high_watermark and len(found) < request.count_max:
            if ledger is None or not ledger.is_settled(offset):
                record = partition.queue.records.get(offset)
                if record is not None:
                    found.append(_status(request.topic, request.partition, record, ledger))
            offset += 1
        return found

    async def _count_failed_here(self, request: _Count) -> int:
        partition = self._cluster.partition(TopicPartition(request.topic, request.partition))
        partition.check_serving()
        books = partition.queue.groups.get(HANDLED) or Ledger(int(partition.start_offset))
        return books.unsettled(int(partition.high_watermark))


def _record_of(partition: Partition, request: _Look) -> Record:
    """Return the record of a task, on the leader."""
    partition.check_serving()
    record = None
    if partition.start_offset <= request.offset < partition.high_watermark:
        record = partition.queue.records.get(request.offset)
    if record is None:
        raise MessageNotFound(
            f"{request.topic} holds no task at offset {request.offset} of partition"
            f" {request.partition}"
        )
    return record


def _own_limits(topic: str, group: str) -> Callable[[Record], int] | None:
    return _tries_of if group == GROUP and type_of(topic) is not None else None


def _tries_of(record: Record) -> int:
    return read_max_retries(record.headers) + 1


def _raise(outcomes: Sequence[PenstockError | None]) -> None:
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


def _leased(message: Message) -> LeasedTask:
    task_type = type_of(message.topic)
    assert task_type is not None, "only topics of tasks are asked"
    return LeasedTask(
        id=_id_of(task_type, message.partition, message.offset, message.headers),
        type=task_type,
        payload=message.value,
        priority=message.priority,
        attempt=message.attempt,
        max_retries=read_max_retries(message.headers),
        receipt=message.receipt,
        lease_until_ms=message.lease_until_ms,
        enqueued_ms=message.timestamp,
        topic=message.topic,
    )


def _id_of(
    task_type: str, partition: int, offset: int, headers: tuple[tuple[str, bytes | None], ...]
) -> str:
    """Return the id of a task: that of its place, unless it was scheduled here before.

    Whoever publishes past the verbs of tasks, or copies a topic, can write the header of a
    scheduled message; one that is none of this partition would not be accepted with its receipt.
    """
    own = task_id(task_type, f"{partition}-{offset}", None)
    attributes = attributes_of(headers) if headers else None
    if attributes is None or attributes.id is None or attributes.deliver_at_ms is None:
        return own
    kept = task_id(task_type, attributes.id, attributes.deliver_at_ms)
    return kept if is_staged_id(kept, partition) else own


def _status(topic: str, partition: int, record: Record, ledger: Ledger | None) -> TaskStatus:
    """Return how a task stands by the books of the workers; None is a group that never began."""
    task_type = type_of(topic) or ""
    status = TaskStatus(
        id=_id_of(task_type, partition, record.offset, record.headers),
        type=task_type,
        state="queued",
        attempts=0,
        max_retries=read_max_retries(record.headers),
        last_error="",
        enqueued_ms=record.timestamp,
    )
    if ledger is None:
        return status
    change = msgspec.structs.replace
    offset = record.offset
    if ledger.is_settled(offset):
        return change(status, state="done", attempts=None)
    if (dying := ledger.dying.get(offset)) is not None:
        return change(status, state="failed", attempts=dying.attempts, last_error=dying.reason)
    if (lease := ledger.lease_of(offset)) is not None:
        return change(
            status,
            state="leased",
            attempts=ledger.attempts(offset) + 1,
            lease_until_ms=lease.deadline_of(offset),
            worker=lease.consumer,
        )
    return change(status, attempts=ledger.attempts(offset), ready_at_ms=ledger.waiting.get(offset))


def _scheduled(text: str, place: TaskPlace, waiting: Scheduled) -> TaskStatus:
    return TaskStatus(
        id=text,
        type=place.type,
        state="scheduled",
        attempts=0,
        max_retries=read_max_retries(waiting.headers),
        last_error="",
        enqueued_ms=waiting.published_ms,
        ready_at_ms=waiting.due_ms,
    )


def _with_history(status: TaskStatus, steps: Sequence[TraceStep]) -> TaskStatus:
    """Add what the journal tells: tries that are not counted any more, the last error, the end."""
    own = [step for step in steps if step.group == GROUP]
    errors = [_error_of(step) for step in own if step.kind in _FAILURES]
    tries = sum(step.kind in _DELIVERIES for step in own)
    is_dead = any(step.kind is TraceKind.DEAD_LETTERED for step in own)
    return msgspec.structs.replace(
        status,
        state="failed" if is_dead and status.state == "done" else status.state,
        attempts=status.attempts if status.attempts is not None else tries or None,
        last_error=status.last_error or (errors[-1] if errors else ""),
    )


def _error_of(step: TraceStep) -> str:
    match step.kind:
        case TraceKind.EXPIRED:
            return EXPIRY_REASON
        case TraceKind.NACKED:
            # What stands first is when it is ready again.
            return step.detail.partition("; ")[2]
        case _:
            return step.detail
