"""Time that moves only when a test or a simulation moves it."""

from penstock.testing.schedule import Schedule

_START_MS = 1_700_000_000_000


class SimClock:
    """A clock that is advanced by hand; the wall clock can also jump, the steady one cannot."""

    __slots__ = ("_now_ms", "_steady_ms")

    def __init__(self, now_ms: int = _START_MS) -> None:
        self._now_ms = now_ms
        self._steady_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def steady_s(self) -> float:
        """Seconds that never jump."""
        return self._steady_ms / 1000

    def advance(self, milliseconds: int) -> None:
        """Let time pass."""
        assert milliseconds >= 0, "time does not run backwards; `jump` moves the wall clock"
        self._now_ms += milliseconds
        self._steady_ms += milliseconds

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward or back, as an operator or a time server may."""
        self._now_ms += milliseconds


class DriftingClock:
    """The clock of a machine in a simulation: it follows the schedule at a rate of its own."""

    __slots__ = ("_offset_ms", "_schedule", "rate")

    def __init__(self, schedule: Schedule, rate: float = 1.0) -> None:
        self.rate = rate
        self._schedule = schedule
        self._offset_ms = _START_MS

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._offset_ms + int(self._schedule.now_us * self.rate) // 1000

    def steady_s(self) -> float:
        """Seconds that never jump."""
        return self._schedule.now_us * self.rate / 1e6

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward or back."""
        self._offset_ms += milliseconds
