"""Where reading starts and stops."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import OffsetOutOfRange
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client import Message, OffsetRange


def start_offset(wanted: str, partition: TopicPartition, held: "OffsetRange") -> int:
    """Turn `beginning`, `end`, an offset, or `-N` for the last N records into an offset.

    Anything else is a `ValueError`; an offset that the partition does not hold is
    `OffsetOutOfRange`.
    """
    if wanted == "beginning":
        return held.start
    if wanted == "end":
        return held.end
    offset = int(wanted)
    if wanted.startswith("-"):
        return max(held.start, held.end + offset)
    if not held.start <= offset <= held.end:
        message = f"offset is {offset}, {partition} holds {held.start} up to {held.end}"
        raise OffsetOutOfRange(message)
    return offset


@dataclass(slots=True, kw_only=True)
class Bounds:
    """Decides which messages are still wanted, and when nothing more is.

    A partition is finished at its end offset when that is known, else with its first message at or
    after `to_ms`. `count_max` counts over all partitions.
    """

    count_max: int | None = None
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    to_ms: int | None = None
    exit_at_end: bool = False
    _count: int = 0
    _finished: set[TopicPartition] = field(default_factory=set)
    _at_end: set[TopicPartition] = field(default_factory=set)

    def skip(self, partitions: Iterable[TopicPartition]) -> None:
        """Count partitions as finished that hold nothing of interest."""
        self._finished.update(partitions)

    def admits(self, message: "Message") -> bool:
        """Take note of a message and tell whether it lies within the bounds."""
        if self._is_counted_out():
            return False
        partition = TopicPartition(message.topic, message.partition)
        if partition in self._finished or self._is_beyond(message, partition):
            self._finished.add(partition)
            return False
        if message.offset + 1 == self.ends.get(partition):
            self._finished.add(partition)
        self._at_end.discard(partition)
        self._count += 1
        return True

    def reached_end(self, partition: TopicPartition) -> None:
        """Take note that a partition holds nothing more at this moment."""
        self._at_end.add(partition)

    def is_done(self, assigned: set[TopicPartition], now_ms: int) -> bool:
        """Tell whether no message of the assigned partitions can be wanted any more."""
        if self._is_counted_out():
            return True
        is_past = self.to_ms is not None and now_ms >= self.to_ms
        if self.exit_at_end or is_past:
            return assigned <= self._finished | self._at_end
        return bool(assigned) and assigned <= self._finished

    def _is_counted_out(self) -> bool:
        return self.count_max is not None and self._count >= self.count_max

    def _is_beyond(self, message: "Message", partition: TopicPartition) -> bool:
        end = self.ends.get(partition)
        if end is not None:
            return message.offset >= end
        if self.to_ms is None or message.timestamp_ms is None:
            return False
        return message.timestamp_ms >= self.to_ms
