"""Tasks: enqueued by one program, worked on by others, each with a state that can be asked for."""

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from penstock.client.blocking import BlockingCaller
from penstock.client.calls import Call, path_of, reader_of, to_json
from penstock.client.deliveries import GIVEN_BACK
from penstock.client.publications import IdempotencyKeys, moment_ms
from penstock.client.streams import StreamCaller
from penstock.client.topics import read_nothing

TaskState = Literal["queued", "scheduled", "leased", "done", "failed"]


class TaskOptions(TypedDict, total=False):
    """What can be said about a task beside its type and payload."""

    priority: int
    max_retries: int
    idempotency_key: str | None
    delay_s: float | None
    deliver_at: datetime | None


class LeaseOptions(TypedDict, total=False):
    """How tasks are leased: at most how many at once, for how long, under which name."""

    count_max: int
    lease_s: float | None
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueuedTask:
    """A task that is committed."""

    id: str
    type: str
    state: TaskState
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task that is out with a worker until `lease_until_ms`.

    The payload is what was enqueued; what came in by another door and is not JSON is text or bytes.
    """

    id: str
    type: str
    payload: Any
    priority: int
    attempt: int
    max_retries: int
    receipt: str
    lease_until_ms: int
    enqueued_ms: int
    topic: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """How a task stands; None is what nobody knows any more, or what does not apply."""

    id: str
    type: str
    state: TaskState
    attempts: int | None
    max_retries: int
    last_error: str
    enqueued_ms: int
    ready_at_ms: int | None = None
    lease_until_ms: int | None = None
    worker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTypeStats:
    """How many tasks of a type are in which state; `retrying` ones are among the queued."""

    type: str
    queued: int
    retrying: int
    leased: int
    scheduled: int
    failed: int
    oldest_ms: int | None


class _Enqueued(msgspec.Struct, frozen=True):
    id: str
    type: str
    state: TaskState
    duplicate: bool = False


class _Task(msgspec.Struct, frozen=True):
    id: str
    type: str
    payload: Any
    priority: int
    attempt: int
    max_retries: int
    receipt: str
    lease_until: int
    enqueued: int
    topic: str
    group: str
    encoding: str = ""


class _Tasks(msgspec.Struct, frozen=True):
    tasks: list[_Task]


class _Status(msgspec.Struct, frozen=True):
    id: str
    type: str
    state: TaskState
    attempts: int | None
    max_retries: int
    last_error: str
    enqueued: int
    ready_at: int | None = None
    lease_until: int | None = None
    worker: str = ""


class _Statuses(msgspec.Struct, frozen=True):
    tasks: list[_Status]


class _Type(msgspec.Struct, frozen=True):
    type: str
    queued: int
    retrying: int
    leased: int
    scheduled: int
    failed: int
    oldest: int | None


class _Types(msgspec.Struct, frozen=True):
    types: list[_Type]


class TaskQueue:
    """What can be done with tasks, by blocking calls."""

    def __init__(self, caller: BlockingCaller) -> None:
        self._caller = caller
        self._keys = IdempotencyKeys()

    def enqueue(self, type: str, payload: Any, **options: Unpack[TaskOptions]) -> EnqueuedTask:  # noqa: A002
        """Enqueue a task; it is committed when this returns."""
        return self._caller.run(enqueue_call(type, payload, options, self._keys))

    def lease(
        self, types: Sequence[str] = (), *, wait_s: float = 0.0, **options: Unpack[LeaseOptions]
    ) -> list[Task]:
        """Return tasks of these types, or of any, waiting up to `wait_s` for the first."""
        return self._caller.run(lease_call(types, wait_s, options))

    def ack(self, task: Task) -> None:
        """Settle a task as done; durable when this returns."""
        self._caller.run(settle_task_call("ack", task))

    def nack(self, task: Task, *, reason: str = "", delay_s: float | None = None) -> None:
        """Give a task back: it is tried again later, or fails after its last try."""
        self._caller.run(settle_task_call("nack", task, reason=reason, delay=delay_s))

    def give_back(self, task: Task, *, reason: str = "") -> None:
        """Give a task back that was not begun: it costs no try, and comes again at once."""
        self._caller.run(settle_task_call("nack", task, reason=reason, uncounted=True))

    def extend(self, task: Task, *, lease_s: float | None = None) -> None:
        """Keep a task for `lease_s` from now on."""
        self._caller.run(settle_task_call("extend", task, lease=lease_s))

    def status(self, task_id: str) -> TaskStatus:
        """Return how a task stands."""
        return self._caller.run(status_call(task_id))

    def pending(self, types: Sequence[str] = (), *, count_max: int = 100) -> list[TaskStatus]:
        """Return tasks that are queued or leased."""
        return self._caller.run(pending_call(types, count_max))

    def stats(self) -> list[TaskTypeStats]:
        """Return how many tasks of each type are in which state."""
        return self._caller.run(stats_call())


class AsyncTaskQueue:
    """What can be done with tasks, on an event loop."""

    def __init__(self, caller: StreamCaller) -> None:
        self._caller = caller
        self._keys = IdempotencyKeys()

    async def enqueue(
        self,
        type: str,  # noqa: A002
        payload: Any,
        **options: Unpack[TaskOptions],
    ) -> EnqueuedTask:
        """Enqueue a task; it is committed when this returns."""
        return await self._caller.run(enqueue_call(type, payload, options, self._keys))

    async def lease(
        self, types: Sequence[str] = (), *, wait_s: float = 0.0, **options: Unpack[LeaseOptions]
    ) -> list[Task]:
        """Return tasks of these types, or of any, waiting up to `wait_s` for the first."""
        return await self._caller.run(lease_call(types, wait_s, options))

    async def ack(self, task: Task) -> None:
        """Settle a task as done; durable when this returns."""
        await self._caller.run(settle_task_call("ack", task))

    async def nack(self, task: Task, *, reason: str = "", delay_s: float | None = None) -> None:
        """Give a task back: it is tried again later, or fails after its last try."""
        await self._caller.run(settle_task_call("nack", task, reason=reason, delay=delay_s))

    async def give_back(self, task: Task, *, reason: str = "") -> None:
        """Give a task back that was not begun: it costs no try, and comes again at once."""
        await self._caller.run(settle_task_call("nack", task, reason=reason, uncounted=True))

    async def extend(self, task: Task, *, lease_s: float | None = None) -> None:
        """Keep a task for `lease_s` from now on."""
        await self._caller.run(settle_task_call("extend", task, lease=lease_s))

    async def status(self, task_id: str) -> TaskStatus:
        """Return how a task stands."""
        return await self._caller.run(status_call(task_id))

    async def pending(self, types: Sequence[str] = (), *, count_max: int = 100) -> list[TaskStatus]:
        """Return tasks that are queued or leased."""
        return await self._caller.run(pending_call(types, count_max))

    async def stats(self) -> list[TaskTypeStats]:
        """Return how many tasks of each type are in which state."""
        return await self._caller.run(stats_call())


def enqueue_call(
    task_type: str, payload: Any, options: TaskOptions, keys: IdempotencyKeys
) -> Call[EnqueuedTask]:
    """Enqueue a task; the key that it gets where it brings none lets the call be repeated."""
    deliver_at = options.get("deliver_at")
    body = {
        "type": task_type,
        "payload": payload,
        "priority": options.get("priority"),
        "max_retries": options.get("max_retries"),
        "idempotency_key": options.get("idempotency_key") or keys.next_key(task_type),
        "delay": options.get("delay_s"),
        "deliver_at": None if deliver_at is None else moment_ms("deliver_at", deliver_at),
    }
    path = path_of("tasks")
    return Call(method="POST", path=path, content=to_json(body), read=_read_enqueued)


def lease_call(types: Sequence[str], wait_s: float, options: LeaseOptions) -> Call[list[Task]]:
    """Lease tasks; those of an answer that got lost come back after their lease."""
    body = {
        "types": list(types),
        "max": options.get("count_max", 1),
        "wait": wait_s,
        "lease": options.get("lease_s"),
        "worker": options.get("worker", ""),
    }
    return Call(
        method="POST",
        path=path_of("tasks", "lease"),
        content=to_json(body),
        read=lambda answer: [_task(each) for each in _tasks_of(answer).tasks],
        wait_s=wait_s,
        undo=lambda tasks: [
            settle_task_call("nack", each, reason=GIVEN_BACK, uncounted=True) for each in tasks
        ],
    )


def settle_task_call(verb: str, task: Task, **details: object) -> Call[None]:
    """Ack, nack or extend a task."""
    return Call(
        method="POST",
        path=path_of("tasks", task.id, verb),
        content=to_json({"receipt": task.receipt, **details}),
        read=read_nothing,
    )


def status_call(task_id: str) -> Call[TaskStatus]:
    """How a task stands."""
    read = reader_of(_Status)
    path = path_of("tasks", task_id)
    return Call(method="GET", path=path, read=lambda answer: _status(read(answer)))


def pending_call(types: Sequence[str], count_max: int) -> Call[list[TaskStatus]]:
    """Tasks that are queued or leased."""
    read = reader_of(_Statuses)
    return Call(
        method="GET",
        path=path_of("tasks", max=count_max, type=tuple(types)),
        read=lambda answer: [_status(each) for each in read(answer).tasks],
    )


def stats_call() -> Call[list[TaskTypeStats]]:
    """How the types stand."""
    read = reader_of(_Types)
    return Call(
        method="GET",
        path=path_of("tasks", "stats"),
        read=lambda answer: [_type(each) for each in read(answer).types],
    )


_tasks_of = reader_of(_Tasks)
_enqueued_of = reader_of(_Enqueued)


def _read_enqueued(answer: bytes) -> EnqueuedTask:
    task = _enqueued_of(answer)
    return EnqueuedTask(id=task.id, type=task.type, state=task.state, is_duplicate=task.duplicate)


def _task(task: _Task) -> Task:
    is_bytes = task.encoding == "base64"
    return Task(
        id=task.id,
        type=task.type,
        payload=b64decode(task.payload) if is_bytes else task.payload,
        priority=task.priority,
        attempt=task.attempt,
        max_retries=task.max_retries,
        receipt=task.receipt,
        lease_until_ms=task.lease_until,
        enqueued_ms=task.enqueued,
        topic=task.topic,
        group=task.group,
    )


def _status(status: _Status) -> TaskStatus:
    return TaskStatus(
        id=status.id,
        type=status.type,
        state=status.state,
        attempts=status.attempts,
        max_retries=status.max_retries,
        last_error=status.last_error,
        enqueued_ms=status.enqueued,
        ready_at_ms=status.ready_at,
        lease_until_ms=status.lease_until,
        worker=status.worker,
    )


def _type(stats: _Type) -> TaskTypeStats:
    return TaskTypeStats(
        type=stats.type,
        queued=stats.queued,
        retrying=stats.retrying,
        leased=stats.leased,
        scheduled=stats.scheduled,
        failed=stats.failed,
        oldest_ms=stats.oldest,
    )
