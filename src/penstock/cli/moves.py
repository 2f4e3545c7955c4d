"""How far `penstock group reset` moves a group in each partition."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from penstock.errors import InvalidRequest
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client import Admin, OffsetRange


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The first record that is still held."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """After the last record."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """One offset, the same in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record at or after a time."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Forward, or back when negative, from where the group is."""

    records: int


Target = ToEarliest | ToLatest | ToOffset | ToTime | ShiftBy


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition of a reset; None stands for no committed offset."""

    topic: str
    partition: int
    before: int | None
    after: int


def plan_moves(
    target: Target,
    partitions: Sequence[TopicPartition],
    *,
    committed: Mapping[TopicPartition, int],
    admin: "Admin",
) -> list[Move]:
    """Find where the target lies in each partition, without changing anything.

    A target outside of what a partition holds becomes its nearest end.
    """
    held = admin.offset_ranges(partitions)
    found: Mapping[TopicPartition, int | None] = {}
    if isinstance(target, ToTime):
        found = admin.offsets_at(partitions, target.timestamp_ms)
    moves = []
    for each in partitions:
        before = committed.get(each)
        wanted = _wanted(target, each, held=held[each], before=before, found=found.get(each))
        after = min(max(wanted, held[each].start), held[each].end)
        moves.append(Move(topic=each.topic, partition=each.partition, before=before, after=after))
    return moves


def _wanted(
    target: Target,
    partition: TopicPartition,
    *,
    held: "OffsetRange",
    before: int | None,
    found: int | None,
) -> int:
    match target:
        case ToEarliest():
            return held.start
        case ToLatest():
            return held.end
        case ToOffset(offset):
            return offset
        case ToTime():
            return held.end if found is None else found
        case ShiftBy(records):
            if before is None:
                raise InvalidRequest(f"the group has no offset in {partition} to shift from")
            return before + records
        case _:
            assert_never(target)
