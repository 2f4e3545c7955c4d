"""Tasks as values: what is enqueued, what is leased, how they stand.

A task's id is its type, a colon, and the id of its message; without a type, the message's id
alone. A delayed task's id ends with the time that it is due, by which it is found in the log later.
"""

import re
from typing import Literal, NamedTuple

import msgspec

from penstock.errors import InvalidRequest, MessageNotFound

TOPIC = "tasks"
GROUP = "workers"
MAX_RETRIES = "task-max-retries"
"""The header that tells how often a task is tried again; one without it follows the default."""
RETRIES_DEFAULT = 3
RETRIES_MAX = 1_000

State = Literal["queued", "scheduled", "leased", "done", "failed"]

_TYPE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_DEAD_LETTERS = ".dlq"
_PLAIN = re.compile(r"(\d{1,10})-(\d{1,19})")
_STAGED = re.compile(r"((\d{1,10})-s[0-9-]{1,60})~(\d{1,15})")


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task to be enqueued."""

    type: str
    payload: bytes
    priority: int
    max_retries: int = RETRIES_DEFAULT
    idempotency_key: str | None = None
    deliver_at_ms: int | None = None


class EnqueuedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is committed."""

    id: str
    type: str
    state: State
    is_duplicate: bool


class LeasedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is out with a worker."""

    id: str
    type: str
    payload: bytes | None
    priority: int
    attempt: int
    max_retries: int
    receipt: str
    lease_until_ms: int
    enqueued_ms: int
    topic: str


class TaskStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a task stands; None is what nobody knows any more."""

    id: str
    type: str
    state: State
    attempts: int | None
    max_retries: int
    last_error: str
    enqueued_ms: int
    ready_at_ms: int | None = None
    lease_until_ms: int | None = None
    worker: str = ""


class TypeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks of a type are in which state; `retrying` ones are among the queued."""

    type: str
    queued: int
    retrying: int
    leased: int
    scheduled: int
    failed: int
    oldest_ms: int | None


class TaskPlace(NamedTuple):
    """Where a task is: at an offset, or under the id that it had while it was scheduled."""

    type: str
    partition: int
    offset: int | None
    staged_id: str = ""
    due_ms: int = 0

    @property
    def topic(self) -> str:
        """The topic that the task is a message of."""
        return topic_of(self.type)


def check_type(name: str) -> None:
    """Raise `InvalidRequest` for a type that no topic can be named after."""
    if name and (_TYPE.fullmatch(name) is None or name.endswith(_DEAD_LETTERS)):
        raise InvalidRequest(
            f"type is {name[:100]!r}, not up to 100 letters, digits, dots, dashes and underscores"
            f" that do not begin with a dot or end with {_DEAD_LETTERS}"
        )


def topic_of(task_type: str) -> str:
    """Return the topic that holds tasks of a type."""
    return f"{TOPIC}.{task_type}" if task_type else TOPIC


def type_of(topic: str) -> str | None:
    """Return the type of the tasks in a topic, or None when it holds none."""
    if topic == TOPIC:
        return ""
    prefix = f"{TOPIC}."
    if not topic.startswith(prefix) or topic.endswith(_DEAD_LETTERS):
        return None
    return topic.removeprefix(prefix)


def task_id(task_type: str, message_id: str, due_ms: int | None) -> str:
    """Return the id of a task."""
    text = message_id if due_ms is None else f"{message_id}~{due_ms}"
    return f"{task_type}:{text}" if task_type else text


def parse_task_id(text: str) -> TaskPlace:
    """Read an id, or raise `MessageNotFound`: what is no id names no task."""
    task_type, _, message_id = text.rpartition(":")
    if plain := _PLAIN.fullmatch(message_id):
        return TaskPlace(task_type, int(plain[1]), int(plain[2]))
    if staged := _STAGED.fullmatch(message_id):
        return TaskPlace(task_type, int(staged[2]), None, staged[1], int(staged[3]))
    raise MessageNotFound(f"there is no task {text[:100]!r}: that is not the id of one")


def is_staged_id(text: str, partition: int) -> bool:
    """True when a text is the id of a task that was scheduled in a partition."""
    staged = _STAGED.fullmatch(text.rpartition(":")[2])
    return staged is not None and int(staged[2]) == partition


def read_max_retries(headers: tuple[tuple[str, bytes | None], ...]) -> int:
    """Return how often a task is tried again; a header that makes no sense is passed over."""
    for name, value in headers:
        if name == MAX_RETRIES and value is not None and value.isdigit():
            return min(int(value), RETRIES_MAX)
    return RETRIES_DEFAULT
