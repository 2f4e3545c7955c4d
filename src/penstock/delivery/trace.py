"""What happened to one message, told by the entries of its partition's log.

The journal says everything already, so tracing costs nothing until somebody asks. Each group's
entries are followed as its books follow them, for one offset only: an answer with a receipt that
did not hold any more is not told.
"""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from penstock.delivery.events import (
    Acked,
    DeadLettered,
    DeliveryEvent,
    Expired,
    Extended,
    GroupCreated,
    GroupDeleted,
    GroupReset,
    Leased,
    Part,
    Rejected,
    Returned,
)
from penstock.delivery.runs import Run
from penstock.delivery.stage_events import (
    StageCancelled,
    Staged,
    StageEvent,
    StageMoved,
    index_and_place,
    unpack_numbers,
)


class TraceKind(StrEnum):
    """What a step of a message's life is."""

    SCHEDULED = "SCHEDULED"
    CANCELLED = "CANCELLED"
    RELEASED = "RELEASED"
    PUBLISHED = "PUBLISHED"
    REPLICATED = "REPLICATED"
    DELIVERED = "DELIVERED"
    REDELIVERED = "REDELIVERED"
    EXTENDED = "EXTENDED"
    NACKED = "NACKED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    DEAD_LETTERED = "DEAD_LETTERED"
    DROPPED = "DROPPED"
    COMMITTED = "COMMITTED"
    GROUP_RESET = "GROUP_RESET"
    ARCHIVED = "ARCHIVED"
    RETAINED = "RETAINED"


class TraceStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step: when it happened, to which group, by whom, at which delivery."""

    kind: TraceKind
    at_ms: int
    node: int | None = None
    group: str = ""
    consumer: str = ""
    attempt: int = 0
    detail: str = ""
    offset: int | None = None
    """Where the message came into the log, by the step that brought it there."""


class StageTrace:
    """Follows one scheduled message until it is in the log.

    Events that came too late have no effect, but are in the log like any other. So the caller, who
    can tell at which entry the message was released, leaves out what is told of later ones.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self.due_ms_min: int | None = None
        """The earliest of the times that it was given: it was not released before."""
        self.cancelled_index: int | None = None

    def follow(self, event: StageEvent, index: int) -> Iterator[TraceStep]:
        """Yield the steps that an event means for the message; `index` is that of its entry."""
        if self.cancelled_index is not None:
            return
        match event:
            case Staged(dues, _, at_ms):
                own_index, place = index_and_place(self._number)
                if index == own_index:
                    due_ms = self.due_ms_min = unpack_numbers(dues)[place]
                    yield TraceStep(
                        kind=TraceKind.SCHEDULED, at_ms=at_ms, detail=f"due at {due_ms}"
                    )
            case StageMoved(numbers, due_ms, at_ms):
                if self._number in unpack_numbers(numbers):
                    self.due_ms_min = min(due_ms, self.due_ms_min or due_ms)
                    yield TraceStep(
                        kind=TraceKind.SCHEDULED, at_ms=at_ms, detail=f"moved, due at {due_ms}"
                    )
            case StageCancelled(numbers, at_ms):
                if self._number in unpack_numbers(numbers):
                    self.cancelled_index = index
                    yield TraceStep(kind=TraceKind.CANCELLED, at_ms=at_ms)


class _Out:
    """A lease that a message is under."""

    __slots__ = ("consumer", "delivery", "until_ms")

    def __init__(self, delivery: int, consumer: str, until_ms: int) -> None:
        self.delivery = delivery
        self.consumer = consumer
        self.until_ms = until_ms


class Trace:
    """Follows one offset through the events of all groups."""

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._out: dict[str, _Out] = {}
        self._attempts: dict[str, int] = {}
        # Groups that are done with the message.
        self._over: set[str] = set()

    def is_over(self, group: str) -> bool:
        """True when a group has settled the message, or began behind it."""
        return group in self._over

    def follow(self, event: DeliveryEvent) -> Iterator[TraceStep]:
        """Yield the steps that an event means for the message: none for most events."""
        match event:
            case Leased():
                yield from self._leased(event)
            case Acked(group, parts, at_ms):
                if self._holds(group, parts):
                    self._over.add(group)
                    yield self._end(group, TraceKind.ACKNOWLEDGED, at_ms)
            case Extended(group, parts, until_ms, at_ms):
                if self._holds(group, parts):
                    self._out[group].until_ms = until_ms
                    yield self._step(group, TraceKind.EXTENDED, at_ms, f"until {until_ms}")
            case Expired(group, deliveries, _, at_ms):
                out = self._out.get(group)
                if out and out.delivery in deliveries and out.until_ms <= at_ms:
                    yield self._end(group, TraceKind.EXPIRED, at_ms)
            case Returned() | Rejected():
                yield from self._failed(event)
            case DeadLettered(group, runs, at_ms):
                if _holds(runs, self._offset):
                    self._over.add(group)
                    yield self._step(group, TraceKind.DEAD_LETTERED, at_ms)
            case GroupReset(group, floor, at_ms):
                self._begin(group, floor)
                yield from self._begun_anew(group, at_ms, f"at offset {floor}")
            case GroupDeleted(group, at_ms):
                self._over.discard(group)
                yield from self._begun_anew(group, at_ms, "the group was deleted")
            case GroupCreated(group, floor):
                self._begin(group, floor)

    def _begin(self, group: str, floor: int) -> None:
        self._over.discard(group)
        if self._offset < floor:
            self._over.add(group)

    def _leased(self, event: Leased) -> Iterator[TraceStep]:
        group = event.group
        if _holds(event.expired, self._offset):
            self._over.add(group)
            yield self._step(group, TraceKind.DROPPED, event.at_ms, "too old, or dealt with")
        if not _holds(event.runs, self._offset):
            return
        attempt = self._attempts[group] = self._attempts.get(group, 0) + 1
        self._out[group] = _Out(event.delivery, event.consumer, event.until_ms)
        kind = TraceKind.DELIVERED if attempt == 1 else TraceKind.REDELIVERED
        yield self._step(group, kind, event.at_ms, f"leased until {event.until_ms}")

    def _failed(self, event: Returned | Rejected) -> Iterator[TraceStep]:
        out = self._out.get(event.group)
        for failure in event.failures:
            if out and (failure.delivery, failure.offset) == (out.delivery, self._offset):
                is_nack = isinstance(event, Returned)
                kind = TraceKind.NACKED if is_nack else TraceKind.REJECTED
                told = [f"ready at {failure.ready_at_ms}"] if is_nack else []
                told += [] if failure.is_counted else ["not counted"]
                told += [failure.reason] if failure.reason else []
                yield self._end(event.group, kind, event.at_ms, "; ".join(told))
                self._attempts[event.group] -= not failure.is_counted
                return

    def _begun_anew(self, group: str, at_ms: int, detail: str) -> Iterator[TraceStep]:
        if self._attempts.pop(group, 0):
            self._out.pop(group, None)
            yield TraceStep(kind=TraceKind.GROUP_RESET, at_ms=at_ms, group=group, detail=detail)

    def _holds(self, group: str, parts: list[Part]) -> bool:
        out = self._out.get(group)
        return out is not None and any(
            part.delivery == out.delivery and _holds(part.runs, self._offset) for part in parts
        )

    def _end(self, group: str, kind: TraceKind, at_ms: int, detail: str = "") -> TraceStep:
        step = self._step(group, kind, at_ms, detail)
        del self._out[group]
        return step

    def _step(self, group: str, kind: TraceKind, at_ms: int, detail: str = "") -> TraceStep:
        out = self._out.get(group)
        return TraceStep(
            kind=kind,
            at_ms=at_ms,
            group=group,
            consumer=out.consumer if out else "",
            attempt=self._attempts.get(group, 0),
            detail=detail,
        )


def _holds(runs: list[Run], offset: int) -> bool:
    return any(start <= offset < end for start, end in runs)
