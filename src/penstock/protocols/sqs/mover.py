"""Carries out message move tasks: dead letters go back to where they came from, or elsewhere.

A task is run by the node that leads the first partition of its source, whoever was asked; when
another node leads, or the node starts again, the task goes on there. It receives like any consumer,
sends, and deletes only then. A node that dies in between leaves messages that are out until their
lease ends; the next one waits for them, and knows those that were sent already by a key made of the
task and the message. How many have moved it learns from the journal of the source.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

import msgspec

from penstock.broker import (
    SOURCE_TOPIC,
    TASKS_SETTING,
    Message,
    MoveProgress,
    Nack,
    NewMessage,
    Topic,
)
from penstock.errors import PenstockError, TopicNotFound, Unavailable
from penstock.ids import TopicPartition
from penstock.protocols.sqs.attributes import DEDUPLICATION_HEADER, OWN_PREFIX, TYPES_HEADER
from penstock.protocols.sqs.errors import SqsError
from penstock.protocols.sqs.move_tasks import MoveTask, tasks_of, with_progress
from penstock.protocols.sqs.moved_messages import count_moved, mover_of
from penstock.protocols.sqs.queues import GROUP
from penstock.protocols.sqs.view import SqsView

logger = logging.getLogger(__name__)

_CHUNK = 10
_LEASE_MS = 10_000
_LOOK_S = 1.0
_TELL_MS = 500


class Mover:
    """Runs the tasks of all queues whose first partition this node leads."""

    def __init__(self, view: SqsView) -> None:
        self._view = view
        self._running: dict[str, asyncio.Task[None]] = {}
        self._is_asked = asyncio.Event()

    def look(self) -> None:
        """There may be a new task."""
        self._is_asked.set()

    async def run(self) -> None:
        """Take up tasks until cancelled."""
        try:
            while True:
                self._begin_new()
                self._is_asked.clear()
                try:
                    await asyncio.wait_for(self._is_asked.wait(), _LOOK_S)
                except TimeoutError:
                    continue
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _begin_new(self) -> None:
        for topic in self._view.metadata.topics.values():
            if TASKS_SETTING not in topic.settings or not self._is_mine(topic.name):
                continue
            for task in tasks_of(topic):
                if task.status == "RUNNING" and task.handle not in self._running:
                    running = asyncio.create_task(self._carry_out(topic.name, task))
                    self._running[task.handle] = running
                    running.add_done_callback(partial(self._ended, task.handle))

    def _ended(self, handle: str, _: "asyncio.Task[None]") -> None:
        del self._running[handle]

    def _is_mine(self, source: str) -> bool:
        return self._view.leader_of(TopicPartition(source, 0))[0] == self._view.node_id

    async def _carry_out(self, source: str, task: MoveTask) -> None:
        run = _Run(self._view, source, task)
        try:
            await run.recount()
            while run.is_wanted() and self._is_mine(source) and await run.move_some():
                pass
            if self._is_mine(source):
                await run.end("CANCELLED" if not run.is_wanted() else "COMPLETED")
        except Unavailable as error:
            # The next look takes it up again, here or where the leader is then.
            logger.info("move task waits", extra={"queue": source, "reason": str(error)})
        except (PenstockError, SqsError) as error:
            await run.fail(error)


class _Run:
    """One task while this node carries it out."""

    def __init__(self, view: SqsView, source: str, task: MoveTask) -> None:
        self._view = view
        self._source = source
        self._task = task
        self._progress = task.progress
        self._told_ms = 0
        self._next_s = 0.0
        # What another node had out when it stopped comes back until then.
        self._patient_until_ms = view.now_ms() + _LEASE_MS

    def _topic(self) -> Topic:
        return self._view.topics.find(self._source)

    def is_wanted(self) -> bool:
        """False when the task was cancelled."""
        mine = (each for each in tasks_of(self._topic()) if each.handle == self._task.handle)
        return any(not each.asked.is_cancelled for each in mine)

    async def recount(self) -> None:
        """Learn what was moved after the progress was written down the last time."""
        moved = await count_moved(self._view, self._topic(), self._task)
        if moved > self._progress.moved:
            self._progress = msgspec.structs.replace(self._progress, moved=moved)

    async def move_some(self) -> bool:
        """Move the next messages, of a second at most; False when there are none."""
        count_max = min(_CHUNK, self._task.asked.rate or _CHUNK)
        # A partition that cannot be asked may have more: the task is not over then.
        messages = await self._view.queues.receive_or_fail(
            self._source,
            GROUP,
            count_max=count_max,
            lease_ms=_LEASE_MS,
            consumer=mover_of(self._task),
        )
        for number, message in enumerate(messages):
            await self._pace()
            if not self.is_wanted():
                await self._give_back(messages[number:])
                break
            await self._move(message)
            if self._view.now_ms() - self._told_ms > _TELL_MS:
                await self._tell()
        return bool(messages) or await self._others_come_back()

    async def _give_back(self, messages: Sequence[Message]) -> None:
        items = [Nack(each.receipt, delay_ms=0, is_counted=False) for each in messages]
        await self._view.queues.nack(self._source, GROUP, items)

    async def _pace(self) -> None:
        """Wait until the next message may go; time that was lost is not caught up with."""
        if self._task.asked.rate is None:
            return
        now_s = asyncio.get_running_loop().time()
        await asyncio.sleep(max(0, self._next_s - now_s))
        self._next_s = max(self._next_s, now_s) + 1 / self._task.asked.rate

    async def _move(self, message: Message) -> None:
        target = self._task.asked.destination or _origin(message)
        if target is None:
            raise SqsError(
                SqsError.INVALID_PARAMETER,
                f"Message {message.id} does not say which queue it came from",
            )
        copy = _copy(message, f"{self._task.handle}/{message.id}")
        (result,) = await self._view.messages.publish(target, [copy])
        if isinstance(result, PenstockError):
            raise result
        (refusal,) = await self._view.queues.ack(self._source, GROUP, [message.receipt])
        if refusal is None:
            moved = self._progress.moved + 1
            self._progress = msgspec.structs.replace(self._progress, moved=moved)

    async def _others_come_back(self) -> bool:
        if self._view.now_ms() >= self._patient_until_ms:
            return False
        status = await self._view.queues.status(self._source, GROUP)
        if status.in_flight:
            await asyncio.sleep(_LOOK_S)
        return bool(status.in_flight)

    async def end(self, status: str) -> None:
        """Say that the task is over."""
        self._progress = msgspec.convert(
            {"moved": self._progress.moved, "status": status}, type=MoveProgress
        )
        await self._tell()

    async def fail(self, error: Exception) -> None:
        """Say why the task cannot go on; where that cannot be said, the task is taken up again."""
        logger.warning("move task failed", extra={"queue": self._source, "reason": str(error)})
        self._progress = MoveProgress(self._progress.moved, "FAILED", str(error))
        try:
            await self._tell()
        except (TopicNotFound, Unavailable) as failure:
            logger.info(
                "the end of a move task is not written down",
                extra={"queue": self._source, "reason": str(failure)},
            )

    async def _tell(self) -> None:
        self._told_ms = self._view.now_ms()
        changed = with_progress(self._topic(), self._task.handle, self._progress)
        await self._view.topics.change_settings(self._source, changed, [])


def _origin(message: Message) -> str | None:
    for name, content in message.headers:
        if name == SOURCE_TOPIC and content:
            return content.decode(errors="replace")
    return None


def _copy(message: Message, idempotency_key: str) -> NewMessage:
    """Return the message as it was first sent, without what its death added."""
    headers = tuple(
        (name, content)
        for name, content in message.headers
        if not name.startswith(OWN_PREFIX) or name in (TYPES_HEADER, DEDUPLICATION_HEADER)
    )
    return NewMessage(
        value=message.value, key=message.key, headers=headers, idempotency_key=idempotency_key
    )
