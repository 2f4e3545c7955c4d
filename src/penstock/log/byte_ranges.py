"""Sets of byte positions in a file, kept as ranges."""

from bisect import bisect_left, bisect_right

_RANGES_MAX = 1_000


class ByteRanges:
    """Disjoint ranges in order. Readers go through files in order, so there are few.

    When there are too many all are forgotten; this is for what can be found out again.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Take in a range, joined with those that it meets."""
        if start >= end:
            return
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        elif len(self._starts) >= _RANGES_MAX:
            self._starts, self._ends, first, last = [], [], 0, 0
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def end_from(self, position: int) -> int:
        """Return up to where everything from a position on is in here; the position if nothing."""
        number = bisect_right(self._starts, position) - 1
        return max(position, self._ends[number]) if number >= 0 else position
