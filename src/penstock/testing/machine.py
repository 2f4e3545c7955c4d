"""A simulated computer: it runs one process at a time, and a process has one life.

What happens inside a process belongs to its life and ends with it; what comes from outside, a
message, reaches whatever process runs when it arrives.
"""

import asyncio
from collections.abc import Callable

ANY_LIFE = -1


class Process(asyncio.AbstractEventLoop):
    """What runs on a machine during one life."""

    def run_ready(self) -> None:
        """Run what was called soon, until nothing is left."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Forget what was called soon: the life is over, or nobody looks on any more."""
        raise NotImplementedError


class SimMachine:
    """Is on or off, and may be paused."""

    __slots__ = ("halted", "is_on", "life", "name", "process", "wakes_us")

    def __init__(self, name: int, halted: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.life = 0
        self.is_on = False
        self.wakes_us = 0
        """Nothing happens on the machine before this moment."""
        self.process: Process | None = None
        self.halted = halted
        """Called when its disk stopped the machine in the middle of something."""

    def start(self, process: Process) -> None:
        """Begin a life."""
        self.is_on = True
        self.process = process

    def stop(self) -> None:
        """End the life: nothing that was begun in it happens any more."""
        self.is_on = False
        self.life += 1
        self.wakes_us = 0
        if self.process is not None:
            self.process.abandon()
