"""Watch a cluster lose its leader: `make demo-failover`, or `python examples/failover.py`.

Three nodes run on this machine, a program writes two hundred numbered records a second, another one
reads them. Then the node that leads is killed. Each line is half a second; the bar is what was
acknowledged in it. In the end the records are counted: each is there once, in order.
"""

import itertools
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

TOPIC = "stream"
RECORDS_PER_S = 200
LINE_S = 0.5
CALM_S, FAILED_S, BACK_S = 3.0, 6.0, 4.0
DEADLINE_S = 120.0
PORTS = range(20_000, 32_000)
QUIET: dict[str, object] = {"log_level": 0, "topic.metadata.refresh.interval.ms": 2_000}

console = Console(highlight=False, width=96)


class Nodes:
    """Three nodes that were given each other's addresses."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(9)
        self.kafka_ports = dict(enumerate(ports[3:6], start=1))
        self._directory = directory
        self._http_ports = dict(enumerate(ports[6:], start=1))
        self._peers = ",".join(
            f"{node}=127.0.0.1:{port}" for node, port in enumerate(ports[:3], start=1)
        )
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        """Where clients find the cluster; any node will do."""
        return ",".join(f"127.0.0.1:{port}" for port in self.kafka_ports.values())

    def start(self, node: int) -> None:
        """Start one node."""
        command = [
            sys.executable, "-m", "penstock.cli", "serve",
            "--data-dir", str(self._directory / f"node-{node}"),
            "--node-id", str(node),
            "--peers", self._peers,
            "--kafka-port", str(self.kafka_ports[node]),
            "--http-port", str(self._http_ports[node]),
        ]  # fmt: skip
        with (self._directory / f"node-{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(  # noqa: S603 (all of it is ours)
                command, stdout=log, stderr=log
            )

    def kill(self, node: int) -> None:
        """Kill a node with SIGKILL: it has no time to say goodbye."""
        self._processes[node].kill()
        self._processes[node].wait()

    def is_running(self, node: int) -> bool:
        """True while the node's process runs."""
        return self._processes[node].poll() is None

    def kill_all(self) -> None:
        """End the demonstration."""
        for node in self._processes:
            self.kill(node)


class Stream:
    """Writes numbered records and reads them back, each in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self.acknowledged = 0
        self.received: list[int] = []
        self._producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 250,
            }
        )
        self._consumer = Consumer(
            {**QUIET, "bootstrap.servers": bootstrap, "group.id": "demo", "fetch.wait.max.ms": 100}
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self._ending = threading.Event()
        self._done = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._write, self._read)]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Write nothing more; return when what was written is read, or after a while."""
        self._ending.set()
        deadline = time.monotonic() + DEADLINE_S
        while len(self.received) < self.sent and time.monotonic() < deadline:
            time.sleep(0.05)
        self.stop()

    def stop(self) -> None:
        """End both threads."""
        self._ending.set()
        self._done.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _write(self) -> None:
        begin_s = time.monotonic()
        while not self._ending.is_set():
            while self.sent < (time.monotonic() - begin_s) * RECORDS_PER_S:
                self._producer.produce(
                    TOPIC, str(self.sent), partition=0, on_delivery=self._delivered
                )
                self.sent += 1
            self._producer.poll(0.01)
        self._producer.flush(DEADLINE_S)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self.acknowledged += error is None

    def _read(self) -> None:
        while not self._done.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.received.append(int(message.value()))
        self._consumer.close()


class Screen:
    """Prints a line for each half second, and what happens in between."""

    def __init__(self, nodes: Nodes, stream: Stream, admin: AdminClient) -> None:
        self._nodes = nodes
        self._stream = stream
        self._admin = admin
        self._begin_s = time.monotonic()
        self._shown = 0

    def show_for(self, seconds: float) -> None:
        """Print lines for so long."""
        for _ in range(round(seconds / LINE_S)):
            time.sleep(LINE_S)
            self._line()

    def say(self, text: str, style: str) -> None:
        """Print an event."""
        console.print(f"{self._now()}  {text}", style=style)

    def _now(self) -> str:
        return f"{time.monotonic() - self._begin_s:5.1f} s"

    def _line(self) -> None:
        acknowledged = self._stream.acknowledged
        fresh, self._shown = acknowledged - self._shown, acknowledged
        bar = "█" * min(24, round(24 * fresh / (2 * RECORDS_PER_S * LINE_S)))
        leader = leader_of(self._admin)
        lights = "  ".join(self._light(node, leader) for node in self._nodes.kafka_ports)
        console.print(
            f"{self._now()}  [green]{bar:<24}[/green] {fresh:4} acknowledged,"
            f" {acknowledged:5} in all   {lights}"
        )

    def _light(self, node: int, leader: int | None) -> str:
        if not self._nodes.is_running(node):
            return f"[bold red]{node} dead[/bold red]"
        return f"[bold cyan]{node} leads[/bold cyan]" if node == leader else f"[dim]{node} up[/dim]"


def leader_of(admin: AdminClient) -> int | None:
    """Return who leads the stream, or None while nobody does."""
    try:
        leader: int = admin.list_topics(TOPIC, timeout=0.3).topics[TOPIC].partitions[0].leader
    except (KafkaException, KeyError):
        return None
    return leader if leader > 0 else None


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, all different."""
    found: list[int] = []
    for port in itertools.islice(PORTS, time.time_ns() % len(PORTS) // 2, None):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
        if len(found) == count:
            break
    return found


def wait_for_cluster(admin: AdminClient) -> None:
    """Create the topic as soon as the cluster has formed."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            topic = NewTopic(TOPIC, num_partitions=1, replication_factor=3)
            admin.create_topics([topic], request_timeout=5)[TOPIC].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def verdict(stream: Stream) -> bool:
    """Count, and say so."""
    is_exact = stream.received == list(range(stream.sent)) and stream.acknowledged == stream.sent
    console.print(
        f"\nsent {stream.sent}, acknowledged {stream.acknowledged}, received {len(stream.received)}"
    )
    if is_exact:
        console.print("Every record is there, once, in order.", style="bold green")
    else:
        console.print("The count is not exact.", style="bold red")
    return is_exact


def main() -> int:
    """Run the demonstration; return 0 when the count is exact."""
    with ExitStack() as cleanup:
        directory = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="penstock-")))
        nodes = Nodes(directory)
        cleanup.callback(nodes.kill_all)
        console.print("Three empty nodes start and form a cluster.", style="bold")
        for node in nodes.kafka_ports:
            nodes.start(node)
        admin = AdminClient({**QUIET, "bootstrap.servers": nodes.bootstrap})
        wait_for_cluster(admin)
        stream = Stream(nodes.bootstrap)
        cleanup.callback(stream.stop)
        show(nodes, stream, admin)
        return 0 if verdict(stream) else 1


def show(nodes: Nodes, stream: Stream, admin: AdminClient) -> None:
    """Let the stream run, kill its leader, and bring it back."""
    screen = Screen(nodes, stream, admin)
    screen.say(f"A stream of {RECORDS_PER_S} records a second begins.", "bold")
    stream.start()
    screen.show_for(CALM_S)
    leader = leader_of(admin) or 1
    nodes.kill(leader)
    screen.say(f"Node {leader}, which leads, is killed.", "bold red")
    screen.show_for(FAILED_S)
    nodes.start(leader)
    screen.say(f"Node {leader} is started again.", "bold green")
    screen.show_for(BACK_S)
    stream.finish()


if __name__ == "__main__":
    sys.exit(main())
