"""Message move tasks as they are kept: in two settings of the topic that they take messages from.

`sqs.move.tasks` holds what was asked for, and is written by whichever node is asked to start or to
cancel. `sqs.move.progress` holds how far it is, and is written by the one node that carries tasks
of the topic out. Neither can undo what the other has written. Of two tasks that are started at two
nodes at the same moment, the later one counts.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from penstock.broker import Topic

TASKS_SETTING = "sqs.move.tasks"
PROGRESS_SETTING = "sqs.move.progress"
TASKS_KEPT = 10

Status = Literal["RUNNING", "COMPLETED", "CANCELLED", "FAILED"]


class Asked(msgspec.Struct, frozen=True):
    """What somebody asked for."""

    started_ms: int
    to_move: int
    destination: str | None = None
    rate: int | None = None
    is_cancelled: bool = False


class Progress(msgspec.Struct, frozen=True):
    """How far a task is."""

    moved: int = 0
    status: Status = "RUNNING"
    failure: str = ""


class MoveTask(msgspec.Struct, frozen=True):
    """One task."""

    handle: str
    asked: Asked
    progress: Progress

    @property
    def status(self) -> Status:
        """A task that has ended cannot be cancelled any more."""
        if self.progress.status == "RUNNING" and self.asked.is_cancelled:
            return "CANCELLED"
        return self.progress.status


def tasks_of(topic: Topic) -> list[MoveTask]:
    """Return the tasks of a queue, the newest first."""
    asked = _read(topic, TASKS_SETTING)
    progress = _read(topic, PROGRESS_SETTING)
    tasks = [
        MoveTask(
            handle,
            msgspec.json.decode(text, type=Asked),
            msgspec.json.decode(progress.get(handle, "{}"), type=Progress),
        )
        for handle, text in asked.items()
    ]
    return sorted(tasks, key=lambda task: task.asked.started_ms, reverse=True)


def with_asked(topic: Topic, handle: str, asked: Asked) -> dict[str, str]:
    """Return the setting that says what was asked for, the newest tasks only."""
    kept = {task.handle: task.asked for task in tasks_of(topic)} | {handle: asked}
    newest = sorted(kept, key=lambda each: kept[each].started_ms)[-TASKS_KEPT:]
    return {TASKS_SETTING: _write({each: kept[each] for each in newest})}


def with_progress(topic: Topic, handle: str, progress: Progress) -> dict[str, str]:
    """Return the setting that says how far the tasks are."""
    kept = {task.handle: task.progress for task in tasks_of(topic)} | {handle: progress}
    return {PROGRESS_SETTING: _write(kept)}


def _read(topic: Topic, setting: str) -> dict[str, str]:
    return msgspec.json.decode(topic.settings.get(setting) or "{}", type=dict[str, str])


def _write(values: Mapping[str, msgspec.Struct]) -> str:
    texts = {handle: msgspec.json.encode(each).decode() for handle, each in values.items()}
    return msgspec.json.encode(texts).decode()
