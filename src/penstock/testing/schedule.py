"""One order of all that happens, in a time that nobody waits for.

Everything that will happen stands in one queue, ordered by its moment and, within a moment, by when
it was put there. `run` takes one event after another and moves the time to it. An event belongs to
a machine, and then to one life of it or to any, or to the world outside. What belongs to a life
that is over does not happen, what belongs to a paused machine happens when it wakes.

`trace` folds the moment and the number of every event into one value: two runs that have the same
trace have taken the same course.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from penstock.testing.disk import MachineStopped
from penstock.testing.machine import ANY_LIFE, SimMachine

_Event = tuple[int, int, SimMachine | None, int, Callable[..., Any], tuple[Any, ...]]


class Schedule:
    """The queue and the time; `events` counts what has happened."""

    __slots__ = ("_queue", "_sequence", "events", "now_us", "trace")

    def __init__(self) -> None:
        self.now_us = 0
        self.events = 0
        self.trace = 0
        self._queue: list[_Event] = []
        self._sequence = 0

    def later(self, delay_us: int, act: Callable[..., Any], *args: Any) -> None:
        """Let something happen in the world outside."""
        self._sequence += 1
        heappush(self._queue, (self.now_us + delay_us, self._sequence, None, 0, act, args))

    def later_on(
        self, machine: SimMachine, life: int, delay_us: int, act: Callable[..., Any], *args: Any
    ) -> None:
        """Let something happen in one life of a machine, or in any (`ANY_LIFE`)."""
        self._sequence += 1
        heappush(self._queue, (self.now_us + delay_us, self._sequence, machine, life, act, args))

    def run(
        self,
        *,
        until_us: int,
        events_max: int,
        after: Callable[[SimMachine], None] = lambda _: None,
    ) -> None:
        """Let everything happen up to a moment or a number of events.

        `after` is called after every event of a machine. A machine that stops in the middle of an
        event loses the rest of it.
        """
        queue = self._queue
        set_running_loop = asyncio._set_running_loop  # noqa: SLF001 (there is no public one)
        try:
            while queue and queue[0][0] <= until_us and self.events < events_max:
                event = heappop(queue)
                moment_us, sequence, machine, life, act, args = event
                if machine is None:
                    self._begin(moment_us, sequence)
                    act(*args)
                    continue
                if not machine.is_on or (life != machine.life and life != ANY_LIFE):
                    continue
                if machine.wakes_us > moment_us:
                    heappush(queue, (machine.wakes_us, *event[1:]))
                    continue
                self._begin(moment_us, sequence)
                assert machine.process is not None
                set_running_loop(machine.process)
                try:
                    act(*args)
                    machine.process.run_ready()
                except MachineStopped:
                    machine.halted()
                except BaseException:
                    machine.process.abandon()
                    raise
                after(machine)
                set_running_loop(None)
        finally:
            set_running_loop(None)
        if self.events < events_max and (not queue or queue[0][0] > until_us):
            self.now_us = max(self.now_us, until_us)

    def _begin(self, moment_us: int, sequence: int) -> None:
        self.now_us = moment_us
        self.events += 1
        self.trace = hash((self.trace, moment_us, sequence))
