"""Real nodes as real processes, for tests that start, stop and kill them."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 20.0


class NodeProcess:
    """`penstock serve` on free ports, with its data under `directory`."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.flags = flags
        self.kafka_port = 0
        self.http_port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    @property
    def bootstrap(self) -> str:
        """The address for Kafka clients."""
        return f"127.0.0.1:{self.kafka_port}"

    @property
    def http_url(self) -> str:
        """The address for HTTP clients."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def pid(self) -> int:
        """The process id of the node."""
        assert self._process is not None
        return self._process.pid

    @property
    def log_path(self) -> Path:
        """Where the node's output goes, over all its starts."""
        return self.directory / "node.log"

    def start(self) -> None:
        """Start the node and wait until it serves; a restart keeps the ports of the first start."""
        log = self.log_path.open("ab")
        begin = log.tell()
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "penstock.cli", "serve",
                "--data-dir", str(self.data_dir),
                "--kafka-port", str(self.kafka_port),
                "--http-port", str(self.http_port),
                "--peer-port", "0",
                "--log-format", "json",
                *self.flags,
            ],
            stdout=log,
            stderr=log,
            env=_plain_environment(),
        )  # fmt: skip
        log.close()
        self._wait_until_serving(begin)

    def _wait_until_serving(self, begin: int) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            for line in self.log_lines(begin):
                if line.get("message") == "node is serving":
                    self.kafka_port = int(str(line["kafka"]).rsplit(":", 1)[1])
                    self.http_port = int(str(line["http"]).rsplit(":", 1)[1])
                    return
            if self._process is not None and self._process.poll() is not None:
                break
            time.sleep(0.01)
        raise RuntimeError(f"the node did not start:\n{self.log_path.read_text()}")

    def log_lines(self, begin: int = 0) -> list[dict[str, object]]:
        """Return the node's structured log lines from byte `begin` on."""
        lines = self.log_path.read_bytes()[begin:].decode(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def kill(self) -> None:
        """Kill the node as a crash would: SIGKILL, nothing is flushed by the process."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_DEADLINE_S)

    def stop(self) -> int:
        """Ask the node to stop and return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_DEADLINE_S)

    def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body of an HTTP request."""
        try:
            with urllib.request.urlopen(self.http_url + path, timeout=10) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


def _plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
