"""Queue groups: how far they are, what they wait for, and what a message has been through."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.client.blocking import BlockingCaller
from penstock.client.calls import Call, path_of, reader_of, to_json
from penstock.client.streams import StreamCaller
from penstock.client.topics import read_nothing

ResetTarget = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGroupTotals:
    """The sums over all partitions; times are milliseconds since 1970."""

    unsettled: int
    in_flight: int
    waiting: int
    dying: int
    oldest: int | None
    lag_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGroupSummary:
    """A group in a list."""

    name: str
    order: str
    totals: QueueGroupTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGroupPartition:
    """How far a group is in one partition; everything below the floor is settled."""

    partition: int
    floor: int
    end: int
    unsettled: int
    in_flight: int
    waiting: int
    dying: int
    oldest: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedKey:
    """A key whose messages wait until the blocker is settled."""

    partition: int
    key: str | None
    key_encoding: str
    blocker: str
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGroupSetting:
    """One setting as it stands; one that is not its own is the topic's or the default."""

    value: str
    is_own: bool
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGroup:
    """A group with where it stands, what it waits for, and its settings."""

    topic: str
    name: str
    totals: QueueGroupTotals
    partitions: tuple[QueueGroupPartition, ...]
    blocked_keys: tuple[BlockedKey, ...]
    settings: dict[str, QueueGroupSetting]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One step of a message's life: what, when in milliseconds since 1970, for whom and by whom."""

    kind: str
    at: int
    node: int | None = None
    group: str = ""
    consumer: str = ""
    attempt: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Groups:
    groups: list[QueueGroupSummary]


@dataclass(frozen=True, slots=True)
class _Life:
    steps: list[TraceStep]


class QueueGroups:
    """What can be done with queue groups, by blocking calls."""

    def __init__(self, caller: BlockingCaller) -> None:
        self._caller = caller

    def list(self, topic: str) -> "list[QueueGroupSummary]":
        """Return the groups of a topic, by name."""
        return self._caller.run(list_groups_call(topic))

    def get(self, topic: str, group: str) -> QueueGroup:
        """Return one group."""
        return self._caller.run(group_call(topic, group))

    def configure(self, topic: str, group: str, settings: Mapping[str, str | None]) -> QueueGroup:
        """Create a group, or let it have these settings and no others of its own."""
        return self._caller.run(configure_group_call(topic, group, settings))

    def reset(self, topic: str, group: str, *, to: ResetTarget) -> None:
        """Let a group begin anew; receipts that are out hold no more."""
        self._caller.run(reset_group_call(topic, group, to))

    def delete(self, topic: str, group: str) -> None:
        """Forget a group."""
        self._caller.run(delete_group_call(topic, group))


class AsyncQueueGroups:
    """What can be done with queue groups, on an event loop."""

    def __init__(self, caller: StreamCaller) -> None:
        self._caller = caller

    async def list(self, topic: str) -> "list[QueueGroupSummary]":
        """Return the groups of a topic, by name."""
        return await self._caller.run(list_groups_call(topic))

    async def get(self, topic: str, group: str) -> QueueGroup:
        """Return one group."""
        return await self._caller.run(group_call(topic, group))

    async def configure(
        self, topic: str, group: str, settings: Mapping[str, str | None]
    ) -> QueueGroup:
        """Create a group, or let it have these settings and no others of its own."""
        return await self._caller.run(configure_group_call(topic, group, settings))

    async def reset(self, topic: str, group: str, *, to: ResetTarget) -> None:
        """Let a group begin anew; receipts that are out hold no more."""
        await self._caller.run(reset_group_call(topic, group, to))

    async def delete(self, topic: str, group: str) -> None:
        """Forget a group."""
        await self._caller.run(delete_group_call(topic, group))


def list_groups_call(topic: str) -> Call[list[QueueGroupSummary]]:
    """The groups of a topic."""
    read = reader_of(_Groups)
    path = path_of("v1", "topics", topic, "groups")
    return Call(method="GET", path=path, read=lambda answer: read(answer).groups)


def group_call(topic: str, group: str) -> Call[QueueGroup]:
    """One group."""
    return Call(method="GET", path=_place(topic, group), read=reader_of(QueueGroup))


def configure_group_call(
    topic: str, group: str, settings: Mapping[str, str | None]
) -> Call[QueueGroup]:
    """Create or configure a group; doing that twice changes nothing."""
    return Call(
        method="PUT",
        path=_place(topic, group),
        content=to_json({"settings": dict(settings)}),
        read=reader_of(QueueGroup),
    )


def reset_group_call(topic: str, group: str, to: ResetTarget) -> Call[None]:
    """Let a group begin anew; the second time that would undo what came after the first."""
    return Call(
        method="POST",
        path=path_of("v1", "topics", topic, "groups", group, "reset"),
        content=to_json({"to": to}),
        read=read_nothing,
        is_repeatable=False,
    )


def delete_group_call(topic: str, group: str) -> Call[None]:
    """Forget a group."""
    path = _place(topic, group)
    return Call(method="DELETE", path=path, read=read_nothing, is_repeatable=False)


def trace_call(topic: str, message_id: str) -> Call[list[TraceStep]]:
    """The life of a message."""
    read = reader_of(_Life)
    path = path_of("v1", "topics", topic, "messages", message_id, "trace")
    return Call(method="GET", path=path, read=lambda answer: read(answer).steps)


def _place(topic: str, group: str) -> str:
    return path_of("v1", "topics", topic, "groups", group)
