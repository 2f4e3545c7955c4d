"""Messages that wait for their time: seen, cancelled, moved and released."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from penstock.client.blocking import BlockingCaller
from penstock.client.calls import Call, Failure, path_of, reader_of, to_json
from penstock.client.contents import Content
from penstock.client.messages import Header
from penstock.client.publications import moment_ms
from penstock.client.streams import StreamCaller
from penstock.errors import PenstockError


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledMessage:
    """A message that is delivered at `deliver_at_ms`."""

    id: str
    partition: int
    deliver_at_ms: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePage:
    """Messages in the order of their time; `after` continues the list where there may be more."""

    messages: tuple[ScheduledMessage, ...]
    after: str | None
    waiting: int


Changed = dict[str, PenstockError]
"""Those messages, by their id, that could not be changed, and why."""


class _Message(Content, frozen=True, kw_only=True):
    id: str
    partition: int
    deliver_at: int
    timestamp: int


class _Page(msgspec.Struct, frozen=True):
    messages: list[_Message]
    after: str | None
    waiting: int


class _Failed(msgspec.Struct, frozen=True):
    id: str
    error: Failure


class _Changed(msgspec.Struct, frozen=True):
    failed: list[_Failed]


class Schedule:
    """What can be done with messages before their time, by blocking calls.

    Changes return, by id, why a message could not be changed; usually because its time has come.
    """

    def __init__(self, caller: BlockingCaller) -> None:
        self._caller = caller

    def page(self, topic: str, *, count_max: int = 100, after: str | None = None) -> SchedulePage:
        """Return messages of a topic that wait, the next one first."""
        return self._caller.run(page_call(topic, count_max, after))

    def cancel(self, topic: str, ids: Sequence[str]) -> Changed:
        """Let messages never be delivered."""
        return self._caller.run(change_call("cancel", topic, ids))

    def move(self, topic: str, ids: Sequence[str], deliver_at: datetime) -> Changed:
        """Give messages another time."""
        return self._caller.run(move_call(topic, ids, deliver_at))

    def release(self, topic: str, ids: Sequence[str]) -> Changed:
        """Let messages be delivered at once."""
        return self._caller.run(change_call("release", topic, ids))


class AsyncSchedule:
    """What can be done with messages before their time, on an event loop."""

    def __init__(self, caller: StreamCaller) -> None:
        self._caller = caller

    async def page(
        self, topic: str, *, count_max: int = 100, after: str | None = None
    ) -> SchedulePage:
        """Return messages of a topic that wait, the next one first."""
        return await self._caller.run(page_call(topic, count_max, after))

    async def cancel(self, topic: str, ids: Sequence[str]) -> Changed:
        """Let messages never be delivered."""
        return await self._caller.run(change_call("cancel", topic, ids))

    async def move(self, topic: str, ids: Sequence[str], deliver_at: datetime) -> Changed:
        """Give messages another time."""
        return await self._caller.run(move_call(topic, ids, deliver_at))

    async def release(self, topic: str, ids: Sequence[str]) -> Changed:
        """Let messages be delivered at once."""
        return await self._caller.run(change_call("release", topic, ids))


def page_call(topic: str, count_max: int, after: str | None) -> Call[SchedulePage]:
    """Look at messages that wait."""
    path = path_of(*_place(topic), max=count_max, after=after)
    return Call(method="GET", path=path, read=_read_page)


def move_call(topic: str, ids: Sequence[str], deliver_at: datetime) -> Call[Changed]:
    """Give messages another time; doing that twice changes nothing."""
    return change_call("move", topic, ids, deliver_at=moment_ms("deliver_at", deliver_at))


def change_call(verb: str, topic: str, ids: Sequence[str], **details: object) -> Call[Changed]:
    """Change messages that wait; what was cancelled or released is not there the second time."""
    return Call(
        method="POST",
        path=path_of(*_place(topic), verb),
        content=to_json({"ids": list(ids), **details}),
        read=lambda answer: {each.id: each.error.error() for each in _changed_of(answer).failed},
        is_repeatable=verb == "move",
    )


def _place(topic: str) -> tuple[str, ...]:
    return ("v1", "topics", topic, "scheduled")


_page_of = reader_of(_Page)
_changed_of = reader_of(_Changed)


def _read_page(answer: bytes) -> SchedulePage:
    page = _page_of(answer)
    messages = tuple(
        ScheduledMessage(
            id=each.id,
            partition=each.partition,
            deliver_at_ms=each.deliver_at,
            timestamp_ms=each.timestamp,
            key=each.read_key(),
            value=each.read_value(),
            headers=each.read_headers(),
        )
        for each in page.messages
    )
    return SchedulePage(messages=messages, after=page.after, waiting=page.waiting)
