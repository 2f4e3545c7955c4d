"""Messages of one key, one behind the other.

For each key that is under way there is a *line*:

    out       messages that are out with a consumer
    resting   messages that came back, are dying, or were told that it is their turn
    held      those of them that were ready, and were sent away until it is their turn
    parked    messages that never were out, were met, and wait for those before

A message may go out when none of its key is out, and none rests before it. Where several may go out
together, those that follow it in its line may come along: they are one delivery. What comes back
goes to the front again, so a message that failed keeps later ones from passing it.

Whenever a line has nobody out, its first message is either resting, and will come by itself when it
is ready or settled, or it is told that it is its turn. So no line stands still.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from penstock.delivery.ledger import Ledger

# Messages that wait for the one before are remembered, up to so many.
PARKED_MAX = 100_000


class BlockedKey(NamedTuple):
    """A key whose messages wait for one of them to be settled."""

    key: int
    blocker: int
    waiting: int


class _Line:
    """The messages of one key that are under way."""

    __slots__ = ("held", "out", "parked", "resting", "turn")

    def __init__(self) -> None:
        self.out: set[int] = set()
        self.resting: set[int] = set()
        self.held: set[int] = set()
        # A heap.
        self.parked: list[int] = []
        # The pick that those who are out went with.
        self.turn = 0

    def is_next(self, offset: int) -> bool:
        """True when nobody of the line comes before this message: those who rest go first."""
        if self.resting:
            return offset == min(self.resting)
        return not self.parked or offset <= self.parked[0]


class KeyOrder:
    """The lines of all keys."""

    def __init__(self, ledger: Ledger, *, goes_together: bool) -> None:
        self._ledger = ledger
        self._goes_together = goes_together
        self._turn = 0
        self._lines: dict[int, _Line] = {}
        self._keys = dict(ledger.keys)
        self.parked_count = 0
        leased = set(ledger.leased()) if ledger.keys else set()
        for offset, key in ledger.keys.items():
            line = self._line(key)
            (line.out if offset in leased else line.resting).add(offset)

    def _line(self, key: int) -> _Line:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        return line

    @property
    def is_full(self) -> bool:
        """True when no more messages are to be looked at before some have gone."""
        return self.parked_count >= PARKED_MAX

    def key_of(self, offset: int) -> int | None:
        """Return the key of a message that is under way."""
        return self._keys.get(offset)

    def begin_pick(self) -> None:
        """What is admitted from now on goes out together."""
        self._turn += 1

    def admit(self, offset: int, key: int) -> bool:
        """True when a message may go out, and is out from then on; else it waits in its line."""
        line = self._line(key)
        has_room = not line.out or (self._goes_together and line.turn == self._turn)
        if not (has_room and line.is_next(offset)):
            self._send_away(line, offset)
            return False
        line.turn = self._turn
        line.resting.discard(offset)
        line.out.add(offset)
        self._keys[offset] = key
        return True

    def _send_away(self, line: _Line, offset: int) -> None:
        if offset in line.resting:
            line.held.add(offset)
        else:
            heappush(line.parked, offset)
            self.parked_count += 1

    def follower(self, key: int) -> int | None:
        """Take the next message of a key that was sent away and may come along."""
        return self._take_next(self._lines[key]) if self._goes_together else None

    def _take_next(self, line: _Line) -> int | None:
        if line.resting:
            first = min(line.resting)
            if first not in line.held:
                # It is not ready yet, or is on its way already.
                return None
            line.held.remove(first)
            return first
        while line.parked:
            self.parked_count -= 1
            first = heappop(line.parked)
            if not self._ledger.is_settled(first):
                return first
        return None

    def put_back(self, offset: int) -> None:
        """A message was picked and is not handed out after all."""
        key = self._keys.get(offset)
        if key is not None:
            self._lines[key].out.discard(offset)
            self._lines[key].resting.add(offset)

    def came_back(self, offsets: Iterable[int]) -> list[int]:
        """Messages are not out any more; return those whose turn it is now."""
        keys = set()
        for offset in offsets:
            key = self._keys.get(offset)
            if key is not None:
                self.put_back(offset)
                keys.add(key)
        return self._call_first(keys)

    def settled(self, offsets: Iterable[int]) -> list[int]:
        """Messages are done with; return those whose turn it is now."""
        keys = set()
        for offset in offsets:
            key = self._keys.pop(offset, None)
            if key is not None:
                line = self._lines[key]
                line.out.discard(offset)
                line.resting.discard(offset)
                line.held.discard(offset)
                keys.add(key)
        return self._call_first(keys)

    def _call_first(self, keys: Iterable[int]) -> list[int]:
        called = []
        for key in keys:
            line = self._lines[key]
            first = None if line.out else self._take_next(line)
            if first is not None:
                line.resting.add(first)
                self._keys[first] = key
                called.append(first)
            elif not (line.out or line.resting or line.parked):
                del self._lines[key]
        return called

    def blocked(self, count_max: int) -> list[BlockedKey]:
        """Name keys that have messages waiting, and the message that each waits for."""
        found: list[BlockedKey] = []
        for key, line in self._lines.items():
            if len(found) == count_max:
                break
            waiting = len(line.parked) + len(line.held)
            if waiting:
                found.append(BlockedKey(key, min(line.out | line.resting), waiting))
        return found
