"""Who works on the files of a log behind the traffic, and when it may be closed.

Files are found by their path. Once a topic is deleted and another of its name is created, the same
paths lead to the files of the new one, and work that still goes on for the old one would touch
them: retention would remove segments of the new topic. So a log is closed only when nobody works on
its files any more, and nobody begins to after that.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from weakref import WeakSet

from penstock.cluster.replicated_log import ReplicatedLog
from penstock.errors import Unavailable

T = TypeVar("T")


class Upkeep:
    """The logs that are being worked on, and those that must not be any more."""

    def __init__(self) -> None:
        self._workers: dict[ReplicatedLog, int] = {}
        self._left: dict[ReplicatedLog, asyncio.Event] = {}
        self._ended: WeakSet[ReplicatedLog] = WeakSet()

    def check(self, log: ReplicatedLog) -> None:
        """Raise when the log is being closed and must be left alone."""
        if log in self._ended:
            raise Unavailable(f"{log.name} is being closed")

    @contextmanager
    def working_on(self, log: ReplicatedLog) -> Iterator[None]:
        """Keep a log from being closed; raise when that has begun already."""
        self.check(log)
        self._workers[log] = self._workers.get(log, 0) + 1
        try:
            yield
        finally:
            self._workers[log] -= 1
            if self._workers[log] == 0:
                del self._workers[log]
                if log in self._left:
                    self._left.pop(log).set()

    async def end(self, log: ReplicatedLog) -> None:
        """Let nobody begin to work on a log, and wait for those who do."""
        self._ended.add(log)
        if log in self._workers:
            await self._left.setdefault(log, asyncio.Event()).wait()


async def undisturbed(work: Awaitable[T]) -> T:
    """Wait for work in a thread to its end, also when the waiting task is cancelled.

    A thread cannot be cancelled. Were the task to end before it, the files would change hands
    while the thread still writes to them.
    """
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
