"""Real nodes as real processes, for tests that start, stop and kill them."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 120.0
# Below the range from which the system takes ports for outgoing connections, so that a port is
# still free when its node starts again.
_FIXED_PORTS = range(20_000, 32_000)
# Of the processes that share the tests each has ports of its own: one that is free for a moment,
# because its node is down, is not free for others.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_own_ports = random.sample(_FIXED_PORTS[_WORKER::_WORKERS], len(_FIXED_PORTS) // _WORKERS)
_choosing = threading.Lock()


class NodeProcess:
    """`penstock serve` on free ports, with its data under `directory`."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.flags = flags
        self.program: tuple[str, ...] = ("penstock.cli",)
        """The module to run, and what comes before the command."""
        self.kafka_port = 0
        self.http_port = 0
        self._begin = 0
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
        if self.is_running:
            self.kill()

    @property
    def is_running(self) -> bool:
        """True from the start of the process to its end, also while it is suspended."""
        return self._process is not None and self._process.poll() is None

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
        has_ports = self.kafka_port > 0
        self.launch()
        try:
            self.wait_until_serving()
        except RuntimeError as failure:
            # Somebody else who runs tests here may have been faster; then it takes other ports.
            if has_ports or "another process listens there" not in str(failure):
                raise
            self.kafka_port = 0
            self.start()

    def launch(self) -> None:
        """Start the node's process without waiting for anything."""
        if not self.kafka_port:
            self.kafka_port, self.http_port = free_ports(2)
        self.directory.mkdir(parents=True, exist_ok=True)
        log = self.log_path.open("ab")
        self._begin = log.tell()
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", *self.program, "serve",
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

    def wait_until_serving(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Wait until the node says that it serves; a node of a cluster needs a majority for it."""
        deadline = time.monotonic() + deadline_s
        while time.monotonic() < deadline:
            for line in self.log_lines(self._begin):
                if line.get("message") == "node is serving":
                    self.kafka_port = int(str(line["kafka"]).rsplit(":", 1)[1])
                    self.http_port = int(str(line["http"]).rsplit(":", 1)[1])
                    return
            if self._process is not None and self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(f"the node did not start:\n{self.log_path.read_text()[-4000:]}")

    @property
    def has_served(self) -> bool:
        """True when the node has said so since its last start; before, a signal just ends it."""
        return any(line["message"] == "node is serving" for line in self.log_lines(self._begin))

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

    def suspend(self) -> None:
        """Freeze the process; its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a suspended process go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body of an HTTP request."""
        try:
            with urllib.request.urlopen(self.http_url + path, timeout=120) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


class ClusterProcess:
    """Several nodes on loopback that were given each other's addresses.

    Their ports stay the same over restarts. `nodes` maps node ids, from 1 on, to processes.
    """

    def __init__(self, directory: Path, size: int, *flags: str) -> None:
        self.directory = directory
        ports = free_ports(3 * size)
        ids = range(1, size + 1)
        self.peer_ports = dict(zip(ids, ports, strict=False))
        self.nodes: dict[int, NodeProcess] = {}
        for node_id in ids:
            node = NodeProcess(directory / f"node-{node_id}", *self.flags_of(node_id), *flags)
            node.kafka_port, node.http_port = ports[size + 2 * (node_id - 1) :][:2]
            self.nodes[node_id] = node

    def flags_of(self, node_id: int) -> tuple[str, ...]:
        """Who a node is and where its peers are."""
        peers = ",".join(f"{peer}=127.0.0.1:{port}" for peer, port in self.peer_ports.items())
        return ("--node-id", str(node_id), "--peers", peers)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            # Nobody else ends the nodes that did start.
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def __getitem__(self, node_id: int) -> NodeProcess:
        return self.nodes[node_id]

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes for Kafka clients."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def running(self) -> list[int]:
        """The nodes whose processes run."""
        return [node_id for node_id, node in self.nodes.items() if node.is_running]

    def start(self) -> None:
        """Start all nodes that do not run and wait until they serve."""
        starting = [node for node in self.nodes.values() if not node.is_running]
        for node in starting:
            node.launch()
        for node in starting:
            node.wait_until_serving()

    def kill(self) -> None:
        """Kill all nodes at once."""
        for node_id in self.running:
            os.kill(self.nodes[node_id].pid, signal.SIGKILL)
        for node in self.nodes.values():
            if node.is_running:
                node.kill()

    def stop(self) -> None:
        """Ask all nodes to stop and wait until they have."""
        running = self.running
        for node_id in running:
            os.kill(self.nodes[node_id].pid, signal.SIGTERM)
        for node_id in running:
            self.nodes[node_id].stop()


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on and that no outgoing connection will take.

    Each is given once: a node may take a while before it listens, and be down for a while later.
    """
    found: list[int] = []
    with _choosing:
        while len(found) < count:
            port = _own_ports.pop()
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            found.append(port)
    return found


def _plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
