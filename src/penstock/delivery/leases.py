"""Messages that went out together: one lease, one object, one bit for each that is still out."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

import msgspec

from penstock.delivery.events import Leased
from penstock.delivery.runs import Run, count_of, offsets_of

_ONE_RUN = (0,)


class SavedLease(msgspec.Struct, frozen=True, array_like=True):
    """A lease as it stands in a snapshot."""

    delivery: int
    runs: list[Run]
    live: bytes
    until_ms: int
    at_ms: int
    consumer: str
    extended: dict[int, int]


class Lease:
    """The messages of one delivery that are still out, and until when."""

    __slots__ = (
        "_all",
        "_bases",
        "_extended",
        "_live",
        "_runs",
        "at_ms",
        "consumer",
        "live_count",
        "until_ms",
    )

    def __init__(self, event: Leased) -> None:
        self._runs = event.runs
        # The bit of the first offset of each run.
        self._bases = (
            _ONE_RUN
            if len(event.runs) == 1
            else tuple(accumulate((end - start for start, end in event.runs), initial=0))
        )
        self.live_count = count_of(event.runs)
        """How many messages are still out."""
        self._all = self._live = (1 << self.live_count) - 1
        self.until_ms = event.until_ms
        self.at_ms = event.at_ms
        self.consumer = event.consumer
        # Deadlines of messages that were extended by themselves.
        self._extended: dict[int, int] | None = None

    def holds(self, offset: int) -> bool:
        """True when the message is out under this lease."""
        position = self._position(offset)
        return position >= 0 and bool(self._live >> position & 1)

    def live_offsets(self) -> Iterator[int]:
        """Yield the messages that are still out, ascending."""
        live = self._live
        for start, end in self._runs:
            for offset in range(start, end):
                if live & 1:
                    yield offset
                live >>= 1

    def deadline_of(self, offset: int) -> int:
        """Return when the lease of one message ends."""
        return self._extended.get(offset, self.until_ms) if self._extended else self.until_ms

    @property
    def next_deadline_ms(self) -> int:
        """The earliest time at which a message of this lease may be overdue."""
        if not self._extended:
            return self.until_ms
        if len(self._extended) == self.live_count:
            return min(self._extended.values())
        return min(self.until_ms, *self._extended.values())

    def overdue(self, now_ms: int) -> list[int]:
        """Return the messages whose deadline has passed."""
        if not self._extended and self.until_ms > now_ms:
            return []
        return [offset for offset in self.live_offsets() if self.deadline_of(offset) <= now_ms]

    def extend(self, offset: int, until_ms: int) -> None:
        """Move the deadline of one message."""
        if self.live_count == 1:
            self.until_ms = until_ms
            self._extended = None
            return
        if self._extended is None:
            self._extended = {}
        self._extended[offset] = until_ms

    def end(self, runs: list[Run]) -> int | None:
        """End the leases of these messages and say of how many.

        None, and none ends, unless each is out, once.
        """
        # Most consumers are done with all that they got together.
        wanted = self._all if runs == self._runs else self._bits_of(runs)
        if wanted is None or self._live & wanted != wanted:
            return None
        self._live ^= wanted
        count = wanted.bit_count()
        self.live_count -= count
        if self._extended:
            for offset in offsets_of(runs):
                self._extended.pop(offset, None)
        return count

    def _position(self, offset: int) -> int:
        number = bisect_right(self._runs, offset, key=_start) - 1
        if number < 0 or offset >= self._runs[number][1]:
            return -1
        return self._bases[number] + offset - self._runs[number][0]

    def _bits_of(self, runs: list[Run]) -> int | None:
        wanted = 0
        for run in runs:
            mask = self._mask(run)
            if mask is None or wanted & mask:
                return None
            wanted |= mask
        return wanted

    def _mask(self, run: Run) -> int | None:
        first = self._position(run[0])
        last = self._position(run[1] - 1)
        count = run[1] - run[0]
        if first < 0 or last - first != count - 1:
            return None
        return ((1 << count) - 1) << first

    def saved(self, delivery: int) -> SavedLease:
        """Return the lease for a snapshot."""
        size = (self._live.bit_length() + 7) // 8
        return SavedLease(
            delivery,
            self._runs,
            self._live.to_bytes(size, "little"),
            self.until_ms,
            self.at_ms,
            self.consumer,
            self._extended or {},
        )

    @classmethod
    def restore(cls, saved: SavedLease) -> "Lease":
        """Return the lease of a snapshot."""
        event = Leased("", saved.delivery, saved.runs, saved.until_ms, saved.at_ms, saved.consumer)
        lease = cls(event)
        lease._live = int.from_bytes(saved.live, "little")
        lease.live_count = lease._live.bit_count()
        lease._extended = saved.extended or None
        return lease


def _start(run: Run) -> int:
    return run[0]
