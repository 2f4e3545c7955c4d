"""Message move tasks as they are kept: in two settings of the topic that they take messages from.

`sqs.move.tasks` holds what was asked for, and is written by whichever node is asked to start or to
cancel. `sqs.move.progress` holds how far it is, and is written by the one node that carries tasks
of the topic out. Neither can undo what the other has written. Of two tasks that are started at two
nodes at the same moment, the later one counts.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress

import msgspec

from penstock.broker import (
    PROGRESS_SETTING,
    TASKS_KEPT,
    TASKS_SETTING,
    AskedMove,
    MoveProgress,
    MoveStatus,
    Topic,
    kept_texts,
)


class MoveTask(msgspec.Struct, frozen=True):
    """One task."""

    handle: str
    asked: AskedMove
    progress: MoveProgress

    @property
    def status(self) -> MoveStatus:
        """A task that has ended cannot be cancelled any more."""
        if self.progress.status == "RUNNING" and self.asked.is_cancelled:
            return "CANCELLED"
        return self.progress.status


def tasks_of(topic: Topic) -> list[MoveTask]:
    """Return the tasks of a queue, the newest first."""
    return sorted(_kept_tasks(topic), key=lambda task: task.asked.started_ms, reverse=True)


def _kept_tasks(topic: Topic) -> Iterator[MoveTask]:
    """Read the tasks of a queue; what cannot be read is none."""
    progress = kept_texts(topic.settings, PROGRESS_SETTING)
    for handle, text in kept_texts(topic.settings, TASKS_SETTING).items():
        with suppress(msgspec.MsgspecError):
            asked = msgspec.json.decode(text, type=AskedMove)
            so_far = msgspec.json.decode(progress.get(handle, "{}"), type=MoveProgress)
            yield MoveTask(handle, asked, so_far)


def with_asked(topic: Topic, handle: str, asked: AskedMove) -> dict[str, str]:
    """Return the setting that says what was asked for, the newest tasks only."""
    kept = {task.handle: task.asked for task in tasks_of(topic)} | {handle: asked}
    newest = sorted(kept, key=lambda each: kept[each].started_ms)[-TASKS_KEPT:]
    return {TASKS_SETTING: _write({each: kept[each] for each in newest})}


def with_progress(topic: Topic, handle: str, progress: MoveProgress) -> dict[str, str]:
    """Return the setting that says how far the tasks are."""
    kept = {task.handle: task.progress for task in tasks_of(topic)} | {handle: progress}
    return {PROGRESS_SETTING: _write(kept)}


def _write(values: Mapping[str, msgspec.Struct]) -> str:
    texts = {handle: msgspec.json.encode(each).decode() for handle, each in values.items()}
    return msgspec.json.encode(texts).decode()
