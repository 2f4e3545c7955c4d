"""Where reading starts and stops."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import OffsetOutOfRange
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client import Message, OffsetRange, TopicSetting


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


def grows_in_time(settings: "Iterable[TopicSetting]") -> bool:
    """Tell whether a topic dates its records itself; producers' times come in any order."""
    return any(
        each.name == "message.timestamp.type" and each.value == "LogAppendTime" for each in settings
    )


def is_within(message: "Message", *, from_ms: int | None, to_ms: int | None) -> bool:
    """Tell whether a message lies in a window; without a time it is older than any other."""
    time_ms = -1 if message.timestamp_ms is None else message.timestamp_ms
    return (from_ms is None or time_ms >= from_ms) and (to_ms is None or time_ms < to_ms)


@dataclass(slots=True, kw_only=True)
class Bounds:
    """Decides which messages are still wanted, and when nothing more is.

    A partition is finished at its end offset when that is known. Else its first message at or after
    `to_ms` finishes it or, with `skips_late`, is passed over, as older ones may follow. A group
    cannot do that: its next commit would count what it passed over as read. `count_max` counts over
    all partitions.
    """

    count_max: int | None = None
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    from_ms: int | None = None
    to_ms: int | None = None
    skips_late: bool = False
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
        is_wanted = is_within(message, from_ms=self.from_ms, to_ms=self.to_ms)
        self._count += is_wanted
        return is_wanted

    def reached_end(self, partition: TopicPartition) -> None:
        """Take note that a partition holds nothing more at this moment."""
        self._at_end.add(partition)

    def is_done(self, assigned: set[TopicPartition], now_ms: int) -> bool:
        """Tell whether no message of the assigned partitions can be wanted any more."""
        if self._is_counted_out():
            return True
        if self.exit_at_end or self._is_past(now_ms):
            return assigned <= self._finished | self._at_end
        return bool(assigned) and assigned <= self._finished

    def lacks_ends(self, now_ms: int) -> bool:
        """Tell whether only the offsets where partitions end now can finish a reading."""
        return self.skips_late and not self.ends and self._is_past(now_ms)

    def _is_past(self, now_ms: int) -> bool:
        return self.to_ms is not None and now_ms >= self.to_ms

    def _is_counted_out(self) -> bool:
        return self.count_max is not None and self._count >= self.count_max

    def _is_beyond(self, message: "Message", partition: TopicPartition) -> bool:
        end = self.ends.get(partition)
        if end is not None:
            return message.offset >= end
        return not self.skips_late and not is_within(message, from_ms=None, to_ms=self.to_ms)
