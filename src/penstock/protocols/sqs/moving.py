"""Message move tasks: dead letters go back to where they came from, or to another queue.

A task runs on the node that was asked and is known there alone. It receives like any consumer,
sends, and deletes only then: a node that dies in between leaves messages that a new task moves, at
worst once more.
"""

import asyncio
import itertools
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from penstock.broker import SOURCE_TOPIC, Message, NewMessage
from penstock.errors import PenstockError
from penstock.protocols.sqs.attributes import OWN_PREFIX, TYPES_HEADER
from penstock.protocols.sqs.errors import SqsError
from penstock.protocols.sqs.names import name_in_arn, queue_arn
from penstock.protocols.sqs.options import SqsOptions
from penstock.protocols.sqs.parameters import number_of, optional_text, text_of
from penstock.protocols.sqs.queue_attributes import read_redrive_policy
from penstock.protocols.sqs.queues import GROUP, Queue, QueueActions
from penstock.protocols.sqs.view import SqsView

_RATE_MAX = 500
_CHUNK = 10
_KEPT = 10
_LEASE_MS = 60_000


class _MoveTask:
    """One task and how far it is."""

    def __init__(self, handle: str, source: str, destination: str | None, rate: int | None) -> None:
        self.handle = handle
        self.source = source
        self.destination = destination
        self.rate = rate
        self.status = "RUNNING"
        self.failure = ""
        self.moved = 0
        self.to_move = 0
        self.started_ms = 0
        self.running: asyncio.Task[None] | None = None


class MoveActions:
    """Start, list and cancel move tasks."""

    def __init__(self, view: SqsView, queues: QueueActions, options: SqsOptions) -> None:
        self._view = view
        self._queues = queues
        self._options = options
        self._numbers = itertools.count(1)
        self._tasks: dict[str, list[_MoveTask]] = {}

    async def start(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """StartMessageMoveTask."""
        source = self._source(parameters)
        destination = optional_text(parameters, "DestinationArn")
        rate = number_of(parameters, "MaxNumberOfMessagesPerSecond", least=1, most=_RATE_MAX)
        target = self._queues.find(name_in_arn(destination)).name if destination else None
        tasks = self._tasks.setdefault(source.name, [])
        if any(task.status == "RUNNING" for task in tasks):
            raise SqsError(
                SqsError.UNSUPPORTED, "There is already a task running. Only one is allowed."
            )
        handle = b64encode(f"{source.name}/{next(self._numbers)}".encode()).decode()
        task = _MoveTask(handle, source.name, target, rate)
        task.started_ms = self._view.now_ms()
        task.to_move, _in_flight = await self._queues.backlog(source)
        tasks.insert(0, task)
        del tasks[_KEPT:]
        task.running = asyncio.create_task(self._run(task))
        return {"TaskHandle": handle}

    def _source(self, parameters: Mapping[str, Any]) -> Queue:
        arn = text_of(parameters, "SourceArn")
        name = name_in_arn(arn)
        if name not in self._view.metadata.topics:
            raise SqsError(
                SqsError.RESOURCE_MISSING, f"The resource that you specified does not exist: {arn}"
            )
        source = self._queues.find(name)
        topics = self._view.metadata.topics.values()
        if not any(_is_dead_letter_queue(Queue(topic), name) for topic in topics):
            raise SqsError(
                SqsError.INVALID_PARAMETER,
                f"Source queue {name} must be configured as a Dead Letter Queue.",
            )
        return source

    async def _run(self, task: _MoveTask) -> None:
        try:
            while task.status == "RUNNING" and await self._move_some(task):
                if task.rate is not None:
                    await asyncio.sleep(_CHUNK / task.rate)
        except (PenstockError, SqsError) as error:
            task.status, task.failure = "FAILED", str(error)
            return
        if task.status == "RUNNING":
            task.status = "COMPLETED"

    async def _move_some(self, task: _MoveTask) -> bool:
        messages = await self._view.queues.receive(
            task.source, GROUP, count_max=_CHUNK, lease_ms=_LEASE_MS
        )
        for message in messages:
            target = task.destination or _origin(message)
            if target is None:
                raise SqsError(
                    SqsError.INVALID_PARAMETER,
                    f"Message {message.id} does not say which queue it came from",
                )
            (result,) = await self._view.messages.publish(target, [_copy(message)])
            if isinstance(result, PenstockError):
                raise result
            await self._view.queues.ack(task.source, GROUP, [message.receipt])
            task.moved += 1
        return bool(messages)

    async def list(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """ListMessageMoveTasks."""
        source = self._source(parameters)
        count = number_of(parameters, "MaxResults", least=1, most=_KEPT, default=1)
        tasks = self._tasks.get(source.name, [])[:count]
        return {"Results": [self._shown(task) for task in tasks]}

    def _shown(self, task: _MoveTask) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "Status": task.status,
            "SourceArn": queue_arn(self._options, task.source),
            "ApproximateNumberOfMessagesMoved": task.moved,
            "ApproximateNumberOfMessagesToMove": task.to_move,
            "StartedTimestamp": task.started_ms,
        }
        if task.status == "RUNNING":
            shown["TaskHandle"] = task.handle
        if task.destination is not None:
            shown["DestinationArn"] = queue_arn(self._options, task.destination)
        if task.rate is not None:
            shown["MaxNumberOfMessagesPerSecond"] = task.rate
        if task.failure:
            shown["FailureReason"] = task.failure
        return shown

    async def cancel(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """CancelMessageMoveTask."""
        handle = text_of(parameters, "TaskHandle")
        for tasks in self._tasks.values():
            for task in tasks:
                if task.handle == handle and task.status == "RUNNING":
                    task.status = "CANCELLED"
                    return {"ApproximateNumberOfMessagesMoved": task.moved}
        raise SqsError(SqsError.RESOURCE_MISSING, f"No running task has the handle {handle[:80]!r}")


def _is_dead_letter_queue(source: Queue, name: str) -> bool:
    policy = read_redrive_policy(source.attributes.get("RedrivePolicy", ""))
    return policy is not None and policy.dead_letter_queue == name


def _origin(message: Message) -> str | None:
    for name, content in message.headers:
        if name == SOURCE_TOPIC and content:
            return content.decode()
    return None


def _copy(message: Message) -> NewMessage:
    """Return the message as it was first sent, without what its death added."""
    headers = tuple(
        (name, content)
        for name, content in message.headers
        if not name.startswith(OWN_PREFIX) or name == TYPES_HEADER
    )
    return NewMessage(value=message.value, key=message.key, headers=headers)
