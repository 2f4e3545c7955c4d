"""A simulated computer: it runs one process at a time, and a process has one life.

What happens inside a process belongs to its life and ends with it; what comes from outside, a
message, reaches whatever process runs when it arrives.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.loop import SimLoop

ANY_LIFE = -1


class SimMachine:
    """Is on or off, and may be paused."""

    __slots__ = ("halted", "is_on", "life", "name", "process", "wakes_us")

    def __init__(self, name: int, halted: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.life = 0
        self.is_on = False
        self.wakes_us = 0
        """Nothing happens on the machine before this moment."""
        self.process: SimLoop | None = None
        self.halted = halted
        """Called when its disk stopped the machine in the middle of something."""

    def start(self, process: "SimLoop") -> None:
        """Begin a life."""
        self.is_on = True
        self.process = process

    def stop(self) -> None:
        """End the life: nothing that was begun in it happens any more."""
        self.is_on = False
        self.life += 1
        self.wakes_us = 0
