"""StartMessageMoveTask, ListMessageMoveTasks and CancelMessageMoveTask, at any node."""

import asyncio
import uuid
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.broker import MOVE_RATE_MAX, TASKS_KEPT, AskedMove, Topic
from penstock.errors import Conflict, Unavailable
from penstock.protocols.sqs.errors import SqsError
from penstock.protocols.sqs.move_tasks import MoveTask, tasks_of, with_asked
from penstock.protocols.sqs.names import name_in_arn, queue_arn
from penstock.protocols.sqs.options import SqsOptions
from penstock.protocols.sqs.parameters import number_of, optional_text, text_of
from penstock.protocols.sqs.queues import Queue, QueueActions
from penstock.protocols.sqs.view import SqsView

# A task looks whether it is still wanted at least once a second.
_END_WAIT_S = 3.0
_LOOK_S = 0.05


class MoveActions:
    """Start, list and cancel move tasks; `on_started` is told that there is a new one."""

    def __init__(
        self,
        view: SqsView,
        queues: QueueActions,
        options: SqsOptions,
        *,
        on_started: Callable[[], None],
    ) -> None:
        self._view = view
        self._queues = queues
        self._options = options
        self._on_started = on_started

    async def start(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """StartMessageMoveTask."""
        source = self._source(parameters)
        destination = optional_text(parameters, "DestinationArn")
        rate = number_of(parameters, "MaxNumberOfMessagesPerSecond", least=1, most=MOVE_RATE_MAX)
        target = self._target(source, destination) if destination else None
        to_move, _in_flight = await self._queues.backlog(source)
        topic = self._view.topics.find(source.name)
        if any(task.status == "RUNNING" for task in tasks_of(topic)):
            raise SqsError(
                SqsError.UNSUPPORTED, "There is already a task running. Only one is allowed."
            )
        handle = b64encode(f"{source.name}/{uuid.uuid4()}".encode()).decode()
        asked = AskedMove(self._view.now_ms(), to_move, target, rate)
        await self._ask(topic, handle, asked)
        self._on_started()
        return {"TaskHandle": handle}

    def _target(self, source: Queue, arn: str) -> str:
        """Return the queue to move to; messages of a standard queue have no group to be in."""
        target = self._queues.find(name_in_arn(arn))
        if target.is_fifo != source.is_fifo:
            raise SqsError(
                SqsError.INVALID_PARAMETER,
                f"Value {arn} for parameter DestinationArn is invalid. Reason: the destination"
                f" must be a {'FIFO' if source.is_fifo else 'standard'} queue, as the source is.",
            )
        return target.name

    async def _ask(self, topic: Topic, handle: str, asked: AskedMove) -> None:
        changed = with_asked(topic, handle, asked)
        expected = {name: topic.settings.get(name) for name in changed}
        try:
            await self._view.topics.change_settings(topic.name, changed, [], expected=expected)
        except Conflict:
            raise Unavailable(
                f"another task of {topic.name} was started or cancelled at this moment"
            ) from None

    def _source(self, parameters: Mapping[str, Any]) -> Queue:
        arn = text_of(parameters, "SourceArn")
        name = name_in_arn(arn)
        if name not in self._view.metadata.topics:
            raise SqsError(
                SqsError.RESOURCE_MISSING, f"The resource that you specified does not exist: {arn}"
            )
        source = self._queues.find(name)
        topics = self._view.metadata.topics.values()
        if not any(Queue(topic).dead_letter_queue == name for topic in topics):
            raise SqsError(
                SqsError.INVALID_PARAMETER,
                f"Source queue {name} must be configured as a Dead Letter Queue.",
            )
        return source

    async def list(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """ListMessageMoveTasks."""
        source = self._source(parameters)
        count = number_of(parameters, "MaxResults", least=1, most=TASKS_KEPT, default=1)
        tasks = tasks_of(source.topic)[:count]
        return {"Results": [self._shown(source.name, task) for task in tasks]}

    def _shown(self, source: str, task: MoveTask) -> dict[str, Any]:
        asked = task.asked
        shown: dict[str, Any] = {
            "Status": task.status,
            "SourceArn": queue_arn(self._options, source),
            "ApproximateNumberOfMessagesMoved": task.progress.moved,
            "ApproximateNumberOfMessagesToMove": asked.to_move,
            "StartedTimestamp": asked.started_ms,
        }
        if task.status == "RUNNING":
            shown["TaskHandle"] = task.handle
        if asked.destination is not None:
            shown["DestinationArn"] = queue_arn(self._options, asked.destination)
        if asked.rate is not None:
            shown["MaxNumberOfMessagesPerSecond"] = asked.rate
        if task.progress.failure:
            shown["FailureReason"] = task.progress.failure
        return shown

    async def cancel(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """CancelMessageMoveTask."""
        handle = text_of(parameters, "TaskHandle")
        for topic in self._view.metadata.topics.values():
            for task in tasks_of(topic):
                if task.handle == handle and task.status == "RUNNING":
                    cancelled = msgspec.structs.replace(task.asked, is_cancelled=True)
                    await self._ask(topic, handle, cancelled)
                    moved = await self._moved_in_the_end(topic.name, task)
                    return {"ApproximateNumberOfMessagesMoved": moved}
        raise SqsError(SqsError.RESOURCE_MISSING, f"No running task has the handle {handle[:80]!r}")

    async def _moved_in_the_end(self, source: str, task: MoveTask) -> int:
        """Wait a moment for the node that carries the task out to say where it stopped."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _END_WAIT_S
        while task.progress.status == "RUNNING" and loop.time() < deadline_s:
            await asyncio.sleep(_LOOK_S)
            known = tasks_of(self._view.topics.find(source))
            task = next((each for each in known if each.handle == task.handle), task)
        return task.progress.moved
