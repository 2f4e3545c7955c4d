"""Messages that wait for their time, in as little memory as their times need.

Each message is a row: when it is due, its number, and where its bytes stand (in the form of a
number; the same one until its bytes are moved). The bytes themselves stay on disk. A row takes 8
bytes until its run is sorted, 16 from then on, and 24 after cancellations and moves in its run.

Rows are kept in *runs* of some ten thousand in the order of arrival. A run is sorted by time when
its first message comes near, which for most runs is long after a restart, and from then on loses
messages at its front. The earliest message of all is the earliest of the runs' first ones.
Messages that are cancelled or moved leave a hole in their run.

The state is built by committed entries alone and is the same on every replica; which runs are
sorted already is not part of it.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heapreplace
from itertools import islice
from typing import NamedTuple

import msgspec

from penstock.delivery.stage_events import (
    index_and_place,
    stage_number,
    unpack_numbers,
    view_numbers,
)
from penstock.record import Buffer

# Sorting a run takes some twenty milliseconds, and as many runs have to be looked at as there are.
_RUN_ROWS = 1 << 16
# A run that is sorted takes in no more from this size on: it would have to be sorted again.
_SORTED_ROWS = 1 << 10
_HOLE = -1
# From so many on, one look at every row is cheaper than a search for each.
_SEARCHES_MAX = 50


class Waiting(NamedTuple):
    """One message that waits."""

    due_ms: int
    number: int
    where: int


class _SavedRun(msgspec.Struct, frozen=True, array_like=True):
    is_sorted: bool
    has_moved: bool
    first_due: int
    low: int
    high: int
    dues: memoryview
    spans: list[tuple[int, int]] | None
    numbers: memoryview
    wheres: memoryview


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_SavedRun]).decode


class _Run:
    """Rows that arrived one after the other.

    The numbers of what one entry brings follow each other. As long as nobody needs them one by one
    they are kept as spans: first number and count. Bytes that have not moved stand under their
    number, and need no column.
    """

    __slots__ = (
        "_first_index",
        "_numbers",
        "_spans",
        "_wheres",
        "dues",
        "first_due",
        "has_moved",
        "head",
        "high",
        "holes",
        "is_sorted",
        "low",
    )

    def __init__(self) -> None:
        self.dues = array("q")
        self._spans: list[tuple[int, int]] | None = []
        self._numbers = array("q")
        self._wheres: array[int] | None = None
        # Rows before are gone.
        self.head = 0
        self.holes = 0
        self.is_sorted = True
        # No message is due earlier; a hole may be.
        self.first_due = 0
        # Numbers lie in between.
        self.low = 0
        self.high = 0
        # True when the order of arrival is not that of numbers.
        self.has_moved = False
        self._first_index: int | None = None

    def __len__(self) -> int:
        return len(self.dues) - self.head - self.holes

    @property
    def is_full(self) -> bool:
        """True when new messages are to begin another run."""
        return len(self.dues) >= (_SORTED_ROWS if self.is_sorted else _RUN_ROWS)

    @property
    def numbers(self) -> "array[int]":
        """The numbers one by one."""
        if self._spans is not None:
            for first, count in self._spans:
                self._numbers.extend(range(first, first + count))
            self._spans = None
        return self._numbers

    @property
    def wheres(self) -> "array[int]":
        """Where the bytes stand, one by one."""
        return self.numbers if self._wheres is None else self._wheres

    # Taking in.

    def add(self, dues: "array[int]", first: int) -> None:
        """Take in messages whose numbers begin with `first`."""
        count = len(dues)
        self._note(dues, first, first + count - 1)
        if self._spans is not None:
            self._spans.append((first, count))
        else:
            self._numbers.extend(range(first, first + count))
        if self._wheres is not None:
            self._wheres.extend(range(first, first + count))

    def extend(self, dues: "array[int]", numbers: "array[int]", wheres: "array[int]") -> None:
        """Take in messages of any numbers, whose bytes may stand anywhere."""
        if self._wheres is None and numbers != wheres:
            self._wheres = array("q", self.numbers)
        if self._wheres is not None:
            self._wheres.extend(wheres)
        self.numbers.extend(numbers)
        self._note(dues, min(numbers), max(numbers))

    def _note(self, dues: "array[int]", low: int, high: int) -> None:
        is_first = not len(self.dues)
        first_due = min(dues)
        self.first_due = first_due if is_first else min(self.first_due, first_due)
        self.has_moved = self.has_moved or not (is_first or self.high < low)
        self.low = low if is_first else min(self.low, low)
        self.high = high if is_first else max(self.high, high)
        self.is_sorted = False
        self._first_index = None
        self.dues.extend(dues)

    def absorb(self, later: "_Run") -> None:
        """Take over all messages of the run that follows."""
        self.drop_holes()
        later.drop_holes()
        self.extend(later.dues, later.numbers, later.wheres)
        self.has_moved = self.has_moved or later.has_moved

    # Order.

    def sort(self) -> None:
        """Order the rows by time, and those of one time by number; holes go."""
        if self.is_sorted:
            return
        rows = self._live_rows()
        if self.has_moved:
            rows.sort(key=self.numbers.__getitem__)
        rows.sort(key=self.dues.__getitem__)
        self._keep(rows)
        self.is_sorted = True
        self._find_first_due()

    def _live_rows(self) -> list[int]:
        numbers = self.numbers
        return [row for row in range(self.head, len(numbers)) if numbers[row] != _HOLE]

    def _keep(self, rows: Sequence[int]) -> None:
        self.dues = array("q", map(self.dues.__getitem__, rows))
        if self._wheres is not None:
            self._wheres = array("q", map(self._wheres.__getitem__, rows))
        self._numbers = array("q", map(self.numbers.__getitem__, rows))
        self.head = 0
        self.holes = 0

    def drop_holes(self) -> None:
        """Keep nothing but messages."""
        if self.holes or self.head:
            self._keep(self._live_rows())

    def _find_first_due(self) -> None:
        if self.head < len(self.dues):
            self.first_due = self.dues[self.head]

    def rows_after(self, due_ms: int, number: int) -> Iterator[Waiting]:
        """Yield messages in order, after one with that time and number."""
        self.sort()
        for row in range(bisect_left(self.dues, due_ms, self.head), len(self.dues)):
            found = self.row(row)
            if found.number != _HOLE and (found.due_ms, found.number) > (due_ms, number):
                yield found

    # Finding.

    def live_numbers(self) -> list[int]:
        """Return the numbers of all messages that are here."""
        return [number for number in self.numbers[self.head :] if number != _HOLE]

    def row(self, row: int) -> Waiting:
        """Return what one row says."""
        return Waiting(self.dues[row], self.numbers[row], self.wheres[row])

    def rows_of(self, numbers: set[int]) -> list[int]:
        """Return the rows of those that are here."""
        wanted = {number for number in numbers if self.low <= number <= self.high}
        if not wanted:
            return []
        if len(wanted) > _SEARCHES_MAX:
            rows = range(self.head, len(self.numbers))
            return [row for row in rows if self.numbers[row] in wanted]
        found = (self._row_of(number) for number in wanted)
        return [row for row in found if row is not None]

    def _row_of(self, number: int) -> int | None:
        try:
            return self.numbers.index(number, self.head)
        except ValueError:
            return None

    def first_index(self) -> int:
        """The oldest entry that holds bytes of a message; there must be one."""
        if self._first_index is None:
            if self._spans is not None and self._wheres is None:
                oldest = self.low
            else:
                wheres = self.wheres
                oldest = min(wheres[row] for row in self._live_rows())
            self._first_index = index_and_place(oldest)[0]
        return self._first_index

    def below(self, index: int) -> Iterator[Waiting]:
        """Yield messages whose bytes stand in an entry before `index`."""
        end = stage_number(index, 0)
        for row in self._live_rows():
            if self.wheres[row] < end:
                yield self.row(row)

    # Letting go.

    def remove_front(self, numbers: set[int]) -> None:
        """Take the first rows that are in `numbers` out of both."""
        self.sort()
        end = len(self.dues)
        while self.head < end:
            number = self.numbers[self.head]
            if number == _HOLE:
                self.holes -= 1
            elif number in numbers:
                numbers.remove(number)
            else:
                break
            self.head += 1
        self._first_index = None
        self._find_first_due()
        if self.head > len(self.dues) // 2:
            self._drop_front()

    def _drop_front(self) -> None:
        """Give memory back."""
        for column in (self.dues, self.numbers, self._wheres):
            if column is not None:
                del column[: self.head]
        self.head = 0

    def remove(self, rows: Sequence[int]) -> None:
        """Leave holes; those in front are gone at once."""
        if self._wheres is None:
            # A hole has no number, and its bytes would stand nowhere.
            self._wheres = array("q", self.numbers)
        for row in rows:
            self.numbers[row] = _HOLE
        self.holes += len(rows)
        self._first_index = None
        if self.is_sorted:
            self.remove_front(set())

    def move_bytes(self, row: int, where: int) -> None:
        """The bytes of a message stand elsewhere from now on."""
        if self._wheres is None:
            self._wheres = array("q", self.numbers)
        self._wheres[row] = where
        self._first_index = None

    # Snapshots.

    def saved(self) -> _SavedRun:
        """Return the run without its holes."""
        self.drop_holes()
        return _SavedRun(
            is_sorted=self.is_sorted,
            has_moved=self.has_moved,
            first_due=self.first_due,
            low=self.low,
            high=self.high,
            dues=view_numbers(self.dues),
            spans=self._spans,
            numbers=view_numbers(self._numbers),
            wheres=view_numbers(array("q") if self._wheres is None else self._wheres),
        )

    @classmethod
    def restored(cls, saved: _SavedRun) -> "_Run":
        """Return the run that was saved."""
        run = cls()
        run.dues = unpack_numbers(saved.dues)
        run._spans = saved.spans
        run._numbers = unpack_numbers(saved.numbers)
        run._wheres = unpack_numbers(saved.wheres) if saved.wheres else None
        run.is_sorted = saved.is_sorted
        run.has_moved = saved.has_moved
        run.first_due = saved.first_due
        run.low, run.high = saved.low, saved.high
        return run


class Stage:
    """The messages of one partition that wait for their time."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    @property
    def next_due_ms(self) -> int | None:
        """When the earliest message is due, at the earliest."""
        return min((run.first_due for run in self._runs), default=None)

    @property
    def first_index(self) -> int | None:
        """The oldest entry that is still needed for the bytes of a message."""
        return min((run.first_index() for run in self._runs), default=None)

    def add(self, index: int, dues: "array[int]") -> None:
        """Take in the messages that entry `index` brings."""
        self._open_run().add(dues, stage_number(index, 0))

    def _open_run(self) -> _Run:
        if not self._runs or self._runs[-1].is_full:
            self._join_small()
            self._runs.append(_Run())
        return self._runs[-1]

    def _join_small(self) -> None:
        """Keep runs few: the last two become one unless it is large or the first twice as long."""
        while len(self._runs) > 1:
            before, last = self._runs[-2:]
            if len(before) > 2 * len(last) or len(before) + len(last) > _RUN_ROWS:
                break
            before.absorb(self._runs.pop())

    def in_order(self, after: tuple[int, int] = (-1, -1)) -> Iterator[Waiting]:
        """Yield messages by time and number, after a given pair of both.

        The stage must not change meanwhile. Runs are sorted when the first of their messages
        comes, so whoever stops early spares the others.
        """
        # What stands for a run: the earliest that may come, and after the first look all of it.
        nothing: Iterator[Waiting] = iter(())
        heap = [
            (max(run.first_due, after[0]), -1, number, Waiting(0, _HOLE, 0), nothing)
            for number, run in enumerate(self._runs)
        ]
        heapify(heap)
        while heap:
            _, _, number, found, rows = heap[0]
            if found.number == _HOLE:
                rows = self._runs[number].rows_after(*after)
            else:
                yield found
            following = next(rows, None)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (*following[:2], number, following, rows))

    def due(
        self, now_ms: int, *, count_max: int, except_for: AbstractSet[int] = frozenset()
    ) -> list[Waiting]:
        """Return the messages whose time has come, the earliest first."""
        found: list[Waiting] = []
        if self.next_due_ms is None or self.next_due_ms > now_ms:
            return found
        for waiting in self.in_order():
            if waiting.due_ms > now_ms or len(found) >= count_max:
                break
            if waiting.number not in except_for:
                found.append(waiting)
        return found

    def release(self, numbers: Iterable[int]) -> None:
        """Forget messages that are in the log; they are the first ones, as a rule."""
        ordered = sorted(numbers)
        left = set(ordered)
        for run in self._runs:
            following = bisect_left(ordered, run.low)
            if left and following < len(ordered) and ordered[following] <= run.high:
                run.remove_front(left)
        self._remove(left)
        self._drop_empty()

    def cancel(self, numbers: Sequence[int]) -> list[bool]:
        """Forget messages; say of each whether it was waiting."""
        found = self._remove(set(numbers))
        self._drop_empty()
        return [number in found for number in numbers]

    def move(self, numbers: Sequence[int], due_ms: int) -> list[bool]:
        """Give messages another time; say of each whether it was waiting."""
        found = self._remove(set(numbers))
        self._drop_empty()
        if found:
            moved = sorted(found)
            self._open_run().extend(
                array("q", [due_ms]) * len(moved),
                array("q", moved),
                array("q", [found[number] for number in moved]),
            )
        return [number in found for number in numbers]

    def _remove(self, numbers: set[int]) -> dict[int, int]:
        """Leave holes; return those that were there and where their bytes stand."""
        found: dict[int, int] = {}
        for run in self._runs:
            if rows := run.rows_of(numbers):
                found |= {run.numbers[row]: run.wheres[row] for row in rows}
                run.remove(rows)
        return found

    def _drop_empty(self) -> None:
        self._runs = [run for run in self._runs if len(run)]

    def numbers(self) -> list[int]:
        """Return the numbers of all messages, in no order."""
        return [number for run in self._runs for number in run.live_numbers()]

    def find(self, number: int) -> Waiting | None:
        """Return a message that waits."""
        for run in self._runs:
            for row in run.rows_of({number}):
                return Waiting(run.dues[row], number, run.wheres[row])
        return None

    def below(self, index: int, *, count_max: int) -> list[Waiting]:
        """Return messages whose bytes stand in an entry before `index`."""
        found: list[Waiting] = []
        for run in self._runs:
            if len(found) < count_max and run.first_index() < index:
                found += islice(run.below(index), count_max - len(found))
        return found

    def restage(self, index: int, numbers: Sequence[int]) -> None:
        """The bytes of messages stand in entry `index` from now on, in this order."""
        wheres = {number: stage_number(index, place) for place, number in enumerate(numbers)}
        wanted = set(numbers)
        for run in self._runs:
            for row in run.rows_of(wanted):
                run.move_bytes(row, wheres[run.numbers[row]])

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return _encode([run.saved() for run in self._runs])

    def restore(self, payload: Buffer) -> None:
        """Replace the state by that of a snapshot."""
        self._runs = [_Run.restored(saved) for saved in _decode(payload)]
