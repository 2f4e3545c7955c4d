"""`/tasks`: enqueue tasks, lease them, say what came of them, and ask how they stand."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker import LeasedTask, NewTask, TaskStatus, TypeStatus
from penstock.errors import InvalidRequest
from penstock.protocols.http.contents import encode_content
from penstock.protocols.http.endpoints import FAILURES, Answer, Endpoint, Parameter, Shortcut
from penstock.protocols.http.exchange import decode_body, encode_json, json_response, read_count
from penstock.protocols.http.publishing import read_priority
from penstock.protocols.http.receiving import BACKOFF_MS_MAX, LEASE_MS_MAX, WAIT_MS_MAX
from penstock.protocols.http.task_bodies import (
    EnqueuedTaskBody,
    LeaseBody,
    LeasedTasks,
    NewTaskBody,
    TaskAccepted,
    TaskBody,
    TaskExtendBody,
    TaskList,
    TaskNackBody,
    TaskReceiptBody,
    TaskStats,
    TaskStatusBody,
    TypeStatusBody,
)
from penstock.protocols.http.times import DELAY_MS_MAX, read_duration_ms, read_moment_ms
from penstock.protocols.http.view import NodeView

LISTED_MAX = 1_000
_LISTED_DEFAULT = 100
_GROUP = "workers"
_TASK = Parameter(name="task", type="string", meaning="Id of a task.")
_ACCEPTED = {200: Answer(meaning="It is.", body=TaskAccepted), **FAILURES}
_RECEIPT = '{"receipt": "0.100000001.2a"}'


def task_endpoints(view: NodeView, *, bytes_max: int) -> list[Endpoint]:
    """The verbs of tasks; a body of more than `bytes_max` is refused."""
    # Fixed names come before those that the caller fills in.
    return [
        *_enqueuing(view, bytes_max),
        *_leasing(view),
        *_counting(view),
        *_settling(view),
        *_looking(view),
    ]


def _enqueuing(view: NodeView, bytes_max: int) -> list[Endpoint]:
    async def enqueue(_path: Mapping[str, str], content: bytes) -> bytes:
        if not content:
            raise InvalidRequest("the request has no body; a task of no type and no payload is {}")
        body = decode_body(content, NewTaskBody)
        task = await view.tasks.enqueue(
            NewTask(
                type=body.type,
                payload=encode_content("payload", body.payload),
                priority=read_priority(body.priority),
                max_retries=body.max_retries,
                idempotency_key=body.idempotency_key,
                deliver_at_ms=_deliver_at_ms(body, view.now_ms()),
            )
        )
        answer = EnqueuedTaskBody(
            id=task.id,
            type=task.type,
            state=task.state,
            duplicate=True if task.is_duplicate else UNSET,
        )
        return encode_json(answer)

    return [
        Endpoint(
            path="/tasks",
            method="POST",
            name="enqueue-task",
            summary="Enqueue a task",
            description="The answer comes when it is committed. Tasks of a type are messages of"
            " the topic `tasks.TYPE`, those without one of `tasks`; workers are the group"
            " `workers`.",
            body=NewTaskBody,
            needs_body=True,
            example='{"type": "email", "payload": {"to": "anna"}, "max_retries": 5}',
            answers={201: Answer(meaning="It is enqueued.", body=EnqueuedTaskBody), **FAILURES},
            call=Shortcut(enqueue, bytes_max, status=201),
        )
    ]


def _leasing(view: NodeView) -> list[Endpoint]:
    async def lease(_path: Mapping[str, str], content: bytes) -> bytes:
        body = decode_body(content, LeaseBody)
        found = await view.tasks.lease(
            body.types,
            count_max=body.max,
            wait_ms=read_duration_ms("wait", body.wait, max_ms=WAIT_MS_MAX),
            lease_ms=_duration_ms("lease", body.lease, LEASE_MS_MAX),
            worker=body.worker,
        )
        return encode_json(LeasedTasks(tasks=[_show_task(each) for each in found]))

    return [
        Endpoint(
            path="/tasks/lease",
            method="POST",
            name="lease-tasks",
            summary="Lease tasks",
            description="Each task is out with the worker until its lease ends; then it is tried"
            " again. Types take turns.",
            body=LeaseBody,
            example='{"types": ["email"], "max": 10, "wait": "20s", "lease": "1m"}',
            answers={200: Answer(meaning="What was ready.", body=LeasedTasks), **FAILURES},
            call=Shortcut(lease, is_for_callers_alone=True),
        )
    ]


def _counting(view: NodeView) -> list[Endpoint]:
    async def stats(_request: Request) -> Response:
        return json_response(
            TaskStats(types=[_show_type(each) for each in await view.tasks.stats()])
        )

    async def list_tasks(request: Request) -> Response:
        types = request.query_params.getlist("type")
        count_max = read_count(request, default=_LISTED_DEFAULT, most=LISTED_MAX)
        found = await view.tasks.pending(types, count_max=count_max)
        return json_response(TaskList(tasks=[_show_status(each) for each in found]))

    counted = {200: Answer(meaning="By type.", body=TaskStats), **FAILURES}
    return [
        Endpoint(
            path=path,
            name=name,
            summary="How many tasks there are",
            description="Of each type, in each state.",
            answers=counted,
            call=stats,
        )
        for path, name in (("/tasks/stats", "task-stats"), ("/stats", "stats"))
    ] + [
        Endpoint(
            path="/tasks",
            name="tasks",
            summary="Tasks that are queued or leased",
            description="By type, the oldest first in each partition.",
            parameters=(
                Parameter(name="type", type="string", meaning="May be repeated.", place="query"),
                Parameter(name="max", type="integer", meaning="100 unless told.", place="query"),
            ),
            answers={200: Answer(meaning="As they stand.", body=TaskList), **FAILURES},
            call=list_tasks,
        )
    ]


def _settling(view: NodeView) -> list[Endpoint]:
    async def ack(path: Mapping[str, str], content: bytes) -> bytes:
        body = decode_body(content, TaskReceiptBody)
        await view.tasks.ack(path["task"], body.receipt)
        return encode_json(TaskAccepted(id=path["task"]))

    async def nack(path: Mapping[str, str], content: bytes) -> bytes:
        body = decode_body(content, TaskNackBody)
        delay_ms = _duration_ms("delay", body.delay, BACKOFF_MS_MAX)
        answer = view.tasks.give_back if body.uncounted else view.tasks.nack
        await answer(path["task"], body.receipt, delay_ms=delay_ms, reason=body.reason)
        return encode_json(TaskAccepted(id=path["task"]))

    async def extend(path: Mapping[str, str], content: bytes) -> bytes:
        body = decode_body(content, TaskExtendBody)
        lease_ms = _duration_ms("lease", body.lease, LEASE_MS_MAX)
        await view.tasks.extend(path["task"], body.receipt, lease_ms=lease_ms)
        return encode_json(TaskAccepted(id=path["task"]))

    return [
        Endpoint(
            path="/tasks/{task}/ack",
            method="POST",
            name="ack-task",
            summary="A task is done",
            description="The answer comes when that is committed.",
            parameters=(_TASK,),
            body=TaskReceiptBody,
            example=_RECEIPT,
            answers=_ACCEPTED,
            call=Shortcut(ack),
        ),
        Endpoint(
            path="/tasks/{task}/nack",
            method="POST",
            name="nack-task",
            summary="A task could not be done",
            description="It is tried again after a backoff that doubles, or after the given"
            " delay; after its last try it fails, and is found among the dead letters. One that was"
            " not begun is given back `uncounted`: it costs no try, and comes back at once.",
            parameters=(_TASK,),
            body=TaskNackBody,
            example='{"receipt": "0.100000001.2a", "reason": "mailbox is full", "delay": "10s"}',
            answers=_ACCEPTED,
            call=Shortcut(nack),
        ),
        Endpoint(
            path="/tasks/{task}/extend",
            method="POST",
            name="extend-task",
            summary="A task takes longer",
            description="Its lease ends after the given time from now, or after the group's own.",
            parameters=(_TASK,),
            body=TaskExtendBody,
            example='{"receipt": "0.100000001.2a", "lease": "2m"}',
            answers=_ACCEPTED,
            call=Shortcut(extend),
        ),
    ]


def _looking(view: NodeView) -> list[Endpoint]:
    async def show(request: Request) -> Response:
        return json_response(_show_status(await view.tasks.status(_task(request))))

    return [
        Endpoint(
            path="/tasks/{task}",
            name="task",
            summary="How a task stands",
            description="Attempts and the last error of a task that is not queued any more are"
            " read from the journal.",
            parameters=(_TASK,),
            answers={200: Answer(meaning="As it stands.", body=TaskStatusBody), **FAILURES},
            call=show,
        )
    ]


def _task(request: Request) -> str:
    task: str = request.path_params["task"]
    return task


def _duration_ms(name: str, value: str | float | None, max_ms: int) -> int | None:
    return None if value is None else read_duration_ms(name, value, max_ms=max_ms)


def _deliver_at_ms(body: NewTaskBody, now_ms: int) -> int | None:
    if body.delay is not None and body.deliver_at is not None:
        raise InvalidRequest("delay and deliver_at were both given; one of them is enough")
    if body.delay is not None:
        return now_ms + read_duration_ms("delay", body.delay, max_ms=DELAY_MS_MAX)
    return None if body.deliver_at is None else read_moment_ms("deliver_at", body.deliver_at)


def _show_task(task: LeasedTask) -> TaskBody:
    payload, encoding = _show_payload(task.payload)
    return TaskBody(
        id=task.id,
        type=task.type,
        payload=payload,
        encoding=encoding,
        priority=task.priority,
        attempt=task.attempt,
        max_retries=task.max_retries,
        receipt=task.receipt,
        lease_until=task.lease_until_ms,
        enqueued=task.enqueued_ms,
        topic=task.topic,
        group=_GROUP,
    )


def _show_payload(
    payload: bytes | None,
) -> tuple[object, Literal["text", "base64"] | UnsetType]:
    """Return a payload as JSON; what came in by another door may be text or bytes."""
    if payload is None:
        return None, UNSET
    try:
        msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    else:
        # What could be read need not be written again, for which it could be nested too deeply.
        return msgspec.Raw(payload), UNSET
    try:
        return payload.decode(), "text"
    except UnicodeDecodeError:
        return b64encode(payload).decode(), "base64"


def _show_status(status: TaskStatus) -> TaskStatusBody:
    return TaskStatusBody(
        id=status.id,
        type=status.type,
        state=status.state,
        attempts=status.attempts,
        max_retries=status.max_retries,
        last_error=status.last_error,
        enqueued=status.enqueued_ms,
        ready_at=UNSET if status.ready_at_ms is None else status.ready_at_ms,
        lease_until=UNSET if status.lease_until_ms is None else status.lease_until_ms,
        worker=status.worker or UNSET,
    )


def _show_type(status: TypeStatus) -> TypeStatusBody:
    return TypeStatusBody(
        type=status.type,
        queued=status.queued,
        retrying=status.retrying,
        leased=status.leased,
        scheduled=status.scheduled,
        failed=status.failed,
        oldest=status.oldest_ms,
    )
