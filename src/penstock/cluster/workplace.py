"""What every log of a node shares: the loop, the threads, the disk, the clock, chance."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from penstock.clock import Clock
from penstock.cluster.flush_pace import FlushPace
from penstock.log import Disk

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Workplace:
    """Everything here can be replaced by a simulation."""

    loop: asyncio.AbstractEventLoop
    executor: Executor
    disk: Disk
    clock: Clock
    randrange: Callable[[int], int]
    pace: FlushPace

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do what waits for the disk in a thread."""
        return await self.loop.run_in_executor(self.executor, work)
