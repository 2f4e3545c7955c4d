"""When something must happen unless it is put off."""

from enum import StrEnum
from heapq import heappop, heappush
from typing import NamedTuple


class Matter(StrEnum):
    """What a deadline is about."""

    JOIN = "join"
    SYNC = "sync"
    SESSION = "session"
    REVOCATION = "revocation"


class Timer(NamedTuple):
    """One deadline of a group; `member_id` is empty where the whole group is meant."""

    matter: Matter
    member_id: str = ""


class Deadlines:
    """At most one deadline per timer of a group.

    Putting a deadline off is one dictionary write, because heartbeats do little else: the heap
    keeps the earlier time and finds out when it gets there. So `next_ms` may be early, never late.
    """

    def __init__(self) -> None:
        self._wanted: dict[str, dict[Timer, int]] = {}
        self._queued: dict[tuple[str, Timer], int] = {}
        self._heap: list[tuple[int, str, Timer]] = []

    def set(self, group_id: str, timer: Timer, when_ms: int) -> None:
        """Let `timer` fire at `when_ms` and at no other time."""
        self._wanted.setdefault(group_id, {})[timer] = when_ms
        queued_ms = self._queued.get((group_id, timer))
        if queued_ms is None or queued_ms > when_ms:
            self._queue(group_id, timer, when_ms)

    def cancel(self, group_id: str, timer: Timer) -> None:
        """Let `timer` not fire."""
        wanted = self._wanted.get(group_id)
        if wanted is not None:
            wanted.pop(timer, None)

    def cancel_group(self, group_id: str) -> None:
        """Let no timer of the group fire."""
        self._wanted.pop(group_id, None)

    def next_ms(self) -> int | None:
        """The earliest time at which something may be due."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> tuple[str, Timer] | None:
        """A timer whose time has come, the earliest first; it does not fire again.

        Timers are popped one by one because acting on one may put off or cancel the next.
        """
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, group_id, timer = heappop(self._heap)
            if self._queued.get((group_id, timer)) != queued_ms:
                continue
            del self._queued[group_id, timer]
            when_ms = self._wanted.get(group_id, {}).get(timer)
            if when_ms is None:
                continue
            if when_ms <= now_ms:
                del self._wanted[group_id][timer]
                return group_id, timer
            self._queue(group_id, timer, when_ms)
        return None

    def _queue(self, group_id: str, timer: Timer, when_ms: int) -> None:
        self._queued[group_id, timer] = when_ms
        heappush(self._heap, (when_ms, group_id, timer))
