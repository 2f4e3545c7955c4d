"""The acks that a group has had last, so that one that comes again is known.

A consumer whose connection broke cannot know whether its ack was committed, and sends it again. The
lease has ended by then. A receipt that has settled a message is told from one whose lease ran out
by what is kept here: the last acks of the group, in the order of the log, the same on every
replica.
"""

from collections import deque
from collections.abc import Iterator

from penstock.delivery.events import Part
from penstock.delivery.runs import Run

# An ack in flight is followed by fewer than this before its sender asks again, as a rule.
RUNS_MAX = 4_096


class RecentAcks:
    """Parts of deliveries that were acked, up to so many runs of offsets."""

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self._runs = 0

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def add(self, part: Part) -> None:
        """Remember an ack; the oldest ones are forgotten for it."""
        self._parts.append(part)
        self._runs += len(part.runs)
        while self._runs > RUNS_MAX:
            self._runs -= len(self._parts.popleft().runs)

    def holds(self, offset: int) -> bool:
        """True when a remembered ack has settled a message."""
        return any(start <= offset < end for part in self._parts for start, end in part.runs)

    def without(self, stale: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the pairs of delivery and offset that no remembered ack has settled."""
        asked = {delivery for delivery, _ in stale}
        runs: dict[int, list[Run]] = {delivery: [] for delivery in asked}
        for part in self._parts:
            if part.delivery in asked:
                runs[part.delivery] += part.runs
        return [
            (delivery, offset)
            for delivery, offset in stale
            if not any(start <= offset < end for start, end in runs[delivery])
        ]
