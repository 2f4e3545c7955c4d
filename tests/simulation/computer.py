"""What a simulated node runs on: a machine with a disk, a clock and threads, over many lives."""

from random import Random

from penstock.cluster import FlushPace, Workplace
from penstock.testing import (
    DriftingClock,
    Schedule,
    SimDisk,
    SimExecutor,
    SimLoop,
    SimMachine,
    SimWires,
)


class Computer:
    """One machine; who runs on it begins and ends its lives."""

    def __init__(self, name: int, *, schedule: Schedule, random: Random) -> None:
        self.name = name
        self.disk = SimDisk()
        self.machine = SimMachine(name, self.stop)
        self.clock = DriftingClock(schedule)
        self.is_rotten = False
        """A bit was flipped on this disk; only a new disk makes that good."""
        self.cuts_power = False
        """Whether the next stop takes what was not synced."""
        self.disk_us = 300
        self.flushes_here = 0.0
        """How many of the small flushes run on the loop."""
        self.starts = 0
        self._schedule = schedule
        self._random = random

    @property
    def is_on(self) -> bool:
        return self.machine.is_on

    def stop(self) -> None:
        """End the process; also called when the disk stopped the machine between two operations."""
        raise NotImplementedError

    def _begin_life(self, wires: SimWires | None = None) -> Workplace:
        """Turn the machine on, and return what a process finds there."""
        self.starts += 1
        loop = SimLoop(
            self._schedule,
            self.machine,
            delay_us=self._wake_us,
            rate=self.clock.rate,
            wires=wires,
        )
        executor = SimExecutor(self._schedule, self.machine, self._job_us)
        self.machine.start(loop)
        return Workplace(loop, executor, self.disk, self.clock, self._randrange, DrawnPace(self))

    def _restore_disk(self) -> None:
        """Let the disk be what a process finds that starts after a kill or a power cut."""
        if self.cuts_power and not self.is_rotten:
            # Rot in what was written within a second of a power cut cannot be told from it.
            order = "subset" if self._random.random() < 0.5 else "prefix"
            self.disk.crash(self._random, order)
        else:
            self.disk.kill()
        self.cuts_power = False

    def draws(self, chance: float) -> bool:
        """Let chance decide."""
        return chance > 0 and self._random.random() < chance

    def _wake_us(self) -> int:
        return 20 + int(60 * self._random.random())

    def _job_us(self) -> int:
        return int(self.disk_us * (0.3 + self._random.random()))

    def _randrange(self, count: int) -> int:
        return int(self._random.random() * count)


class DrawnPace(FlushPace):
    """Lets chance decide where a flush runs, as a visit to the disk takes no time here."""

    def __init__(self, computer: Computer) -> None:
        super().__init__(computer.clock)
        self._computer = computer

    def may_run_here(self, log: object) -> bool:
        computer = self._computer
        is_slow = computer.disk_us > 1_000
        return not is_slow and super().may_run_here(log) and computer.draws(computer.flushes_here)

    def ended(self, duration_s: float) -> None:
        super().ended(duration_s)
        self.is_quick = self._computer.flushes_here > 0
