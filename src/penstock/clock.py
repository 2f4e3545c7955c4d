"""The one place that reads the time."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock and steady time; the simulator brings its own."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as records and deadlines carry them."""

    def steady_s(self) -> float:
        """Seconds that never jump, for measuring how long something took."""


class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    # Without a method around it: every flush looks at the clock several times.
    steady_s = staticmethod(time.monotonic)
