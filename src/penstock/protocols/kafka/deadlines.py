"""When requests that wait for the disk or for other nodes are given up.

Nearly every request is answered long before its deadline. A timer of the event loop for each of
them would cost more than reading the request, so deadlines share timers: each is rounded up to the
next tenth of a second, and there is one timer for each of these that anybody waits for.
"""

import asyncio
from collections.abc import Callable

import msgspec

_TICKS_PER_S = 10


class Due(msgspec.Struct, frozen=True, gc=False):
    """One deadline, by which it can be removed."""

    tick: int
    number: int


class Deadlines:
    """Who is to be called when, unless they are removed before."""

    __slots__ = ("_added", "_by_tick", "_time")

    def __init__(self) -> None:
        self._by_tick: dict[int, dict[int, Callable[[], None]]] = {}
        self._added = 0
        self._time: Callable[[], float] | None = None

    def add(self, after_s: float, call: Callable[[], None]) -> Due:
        """Call `call` in `after_s` seconds, and up to a tenth of a second later."""
        if self._time is None:
            self._time = asyncio.get_running_loop().time
        tick = int((self._time() + after_s) * _TICKS_PER_S) + 1
        calls = self._by_tick.get(tick)
        if calls is None:
            calls = self._by_tick[tick] = {}
            asyncio.get_running_loop().call_at(tick / _TICKS_PER_S, self._pass, tick)
        self._added += 1
        calls[self._added] = call
        return Due(tick, self._added)

    def remove(self, due: Due) -> None:
        """Call no more; one that was called already is fine."""
        calls = self._by_tick.get(due.tick)
        if calls is not None:
            calls.pop(due.number, None)

    def _pass(self, tick: int) -> None:
        for call in tuple(self._by_tick.pop(tick).values()):
            call()
