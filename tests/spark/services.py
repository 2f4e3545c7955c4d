"""Commands of Penstock that run until they are told to end, in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.processes import NodeProcess
from tests.spark.spark_daemons import ENVIRON

DEADLINE_S = 240.0


class Service:
    """A command in a process group of its own, as a shell or a supervisor would start it."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli", *arguments],
                stdout=out, stderr=out, env=ENVIRON, start_new_session=True,
            )  # fmt: skip

    def told(self) -> str:
        return self._log.read_text()

    def signal(self, number: int) -> None:
        """Signal the command alone, as a container's runtime does."""
        self._process.send_signal(number)

    def signal_all(self, number: int) -> None:
        """Signal all of its processes, as Ctrl-C in a terminal and some supervisors do."""
        os.killpg(self._process.pid, number)

    def has_ended_well(self) -> bool:
        """Wait for the end of the command and of all that it started; tell whether it was 0."""
        return self.exit_code() == 0

    def exit_code(self) -> int:
        """Wait for the end of the command and of all that it started."""
        code = self._process.wait(DEADLINE_S)
        wait_for(self._is_alone, "Spark is gone, too")
        return code

    def kill(self) -> None:
        if not self._is_alone():
            os.killpg(self._process.pid, signal.SIGKILL)

    def _is_alone(self) -> bool:
        self._process.poll()
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return True
        return False


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"it never happened that {what}"
        time.sleep(0.1)


def ends_of(node: NodeProcess, topic: str) -> int:
    partitions = json.loads(node.get(f"/v1/topics/{topic}")[1])["partitions"]
    return sum(each["end"] for each in partitions)
