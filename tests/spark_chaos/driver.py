"""The driver as a process with all that it starts: Java, executors, and their Python workers."""

import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_STOP_S = 120.0


class DriverProcess:
    """Runs `tests.spark_chaos.job`; what it prints goes to one file over all its starts."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._arguments = arguments
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._started: dict[int, psutil.Process] = {}

    @property
    def is_running(self) -> bool:
        """True until the process has ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the driver without waiting for anything."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark_chaos.job", *self._arguments],
                stdout=log,
                stderr=log,
            )

    def wait(self, deadline_s: float) -> int:
        """Wait until the driver has ended and return its exit code."""
        assert self._process is not None
        return self._process.wait(deadline_s)

    def kill(self) -> bool:
        """Kill the driver alone: its executors find out by themselves."""
        assert self._process is not None
        for child in self._look():
            if child.name == "java" and _EXECUTOR not in child.command:
                _kill(child.process)
        self._process.kill()
        self._process.wait(_STOP_S)
        return True

    def kill_executor(self, chance: random.Random) -> bool:
        """Kill one executor; False when there is none at the moment."""
        executors = [each.process for each in self._look() if _EXECUTOR in each.command]
        return bool(executors) and _kill(chance.choice(executors))

    def clean(self) -> None:
        """Kill the driver and whatever it has started and that is still there."""
        self._look()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(_STOP_S)
        for process in self._started.values():
            _kill(process)

    def _look(self) -> list["_Child"]:
        """Return the processes below the driver, and remember them: they may outlive it."""
        assert self._process is not None
        if self._process.poll() is not None:
            return []
        found = psutil.Process(self._process.pid).children(recursive=True)
        living: list[_Child] = []
        for each in found:
            # It may end between any two of these questions.
            with suppress(psutil.NoSuchProcess):
                if each.status() != psutil.STATUS_ZOMBIE:
                    living.append(_Child(each, each.name(), each.cmdline()))
        self._started |= {child.process.pid: child.process for child in living}
        return living


class _Child(NamedTuple):
    """A process below the driver, as it was when it was looked at."""

    process: psutil.Process
    name: str
    command: list[str]


def _kill(process: psutil.Process) -> bool:
    """Kill a process; False when it has ended by itself."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True
