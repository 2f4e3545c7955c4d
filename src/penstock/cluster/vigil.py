"""Staying awake for the next flush.

A process that sleeps takes tens of microseconds to wake up, on a virtual machine above all, and
then finds the processor's caches cold, which costs as much again. A client that sends one message
after the other has the next one here within that time. So after a flush on the loop, the loop keeps
turning for a moment instead of going to sleep, and takes the next request when it comes. A leader
that has followers waits twice, for their answer and then for the next request, and stays awake for
both. Followers do not: several of them may share one machine with the leader.

It does so only while that pays:

- what was waited for has come within the moment that it stays awake, on average. A node that
  gets a message now and then sleeps in between, and an idle one sleeps always;
- no flush runs in a thread, which would have to wait for the interpreter.

So a vigil in vain costs the processor a third of a millisecond, and a few of them end it.
"""

import asyncio

from penstock.clock import Clock

_AWAKE_S = 0.0003
# Longer pauses count as this, so that one of them does not outweigh many short ones.
_COUNTED_S_MAX = 0.001
_AVERAGED = 8


class Vigil:
    """Keeps a loop turning for a moment after each flush that it has run."""

    __slots__ = ("_average_s", "_begin_s", "_clock", "_is_awake", "_is_waiting", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        # How long was waited for what came next.
        self._average_s = _COUNTED_S_MAX
        self._begin_s = -1.0
        self._is_waiting = False
        self._is_awake = False

    def flush_comes(self) -> None:
        """A flush is about to run, here or in a thread."""
        self._end_wait(self._clock.steady_s())
        self._is_waiting = False

    def flush_ran_here(self) -> None:
        """The loop has run a flush, and has its outcome to tell or waits for followers."""
        self._begin_wait(self._clock.steady_s())

    def committed(self) -> None:
        """Followers have answered; what comes next is another request."""
        if self._is_waiting:
            now_s = self._clock.steady_s()
            self._end_wait(now_s)
            self._begin_wait(now_s)

    def _end_wait(self, now_s: float) -> None:
        waited_s = min(now_s - self._begin_s, _COUNTED_S_MAX)
        self._average_s += (waited_s - self._average_s) / _AVERAGED

    def _begin_wait(self, now_s: float) -> None:
        self._begin_s = now_s
        self._is_waiting = True
        if self._average_s < _AWAKE_S and not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._is_waiting and self._clock.steady_s() - self._begin_s <= _AWAKE_S:
            self._loop.call_soon(self._turn)
        else:
            self._is_awake = False
