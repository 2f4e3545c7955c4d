"""Reads that must know of everything that others were told before.

A leader may have been replaced without knowing it: its process was suspended, or its links are cut.
What it would answer then is older than what clients of the next leader have seen. So a read that
must be current waits until a majority has answered the leader since the read came in (ReadIndex,
thesis 6.4); consensus says when that is, and which reads it can no longer answer for.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable

from penstock.errors import NotLeader, PenstockError, Unavailable
from penstock.raft import Effects

# A leader that hears nothing from a majority has given up by then.
_WAIT_S = 4.0


class CurrentReads:
    """Those who wait to hear that a replica still leads."""

    __slots__ = ("_loop", "_numbers", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def wait(self, ask: Callable[[int], None]) -> None:
        """Give consensus the number of a read, and wait for its word."""
        number = next(self._numbers)
        waiter = self._waiting[number] = self._loop.create_future()
        try:
            ask(number)
            async with asyncio.timeout(_WAIT_S):
                await waiter
        except TimeoutError as error:
            raise Unavailable(f"no majority has answered within {_WAIT_S:g} s") from error
        finally:
            del self._waiting[number]

    def settle(self, effects: Effects) -> None:
        """Take the word of consensus."""
        for read in effects.reads:
            waiter = self._waiting.get(read.context)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
        if effects.reads_refused:
            self._refuse(effects.reads_refused, NotLeader("another node may lead by now"))

    def refuse_all(self, error: PenstockError) -> None:
        """Nothing is read here any more."""
        self._refuse(self._waiting, error)

    def _refuse(self, numbers: Iterable[int], error: PenstockError) -> None:
        for number in numbers:
            waiter = self._waiting.get(number)
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
