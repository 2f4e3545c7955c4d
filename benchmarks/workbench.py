"""What every question needs: a node, topics, and what the node costs while it works."""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.machine import touch_memory
from tests.processes import ClusterProcess, NodeProcess

_CREATE_WAIT_S = 60
# More than most questions write into the page cache.
_TOUCHED_BYTES = 2 * 1024 * 1024 * 1024


@dataclass(slots=True)
class Usage:
    """What a process used during a window."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def cpu_pct(self) -> float:
        """Share of one core."""
        return 100 * self.cpu_s / self.wall_s


class Workbench:
    """A directory to work in, and how much work is wanted."""

    def __init__(self, directory: Path, *, is_quick: bool) -> None:
        self.directory = directory
        self.is_quick = is_quick
        directory.mkdir(parents=True)

    def seconds(self, full: float) -> float:
        """Return the length of a window."""
        return full / 4 if self.is_quick else full

    def count(self, full: int) -> int:
        """Return the size of the data."""
        return full // 10 if self.is_quick else full

    @contextmanager
    def node(
        self, *, touched_bytes: int = _TOUCHED_BYTES, program: Sequence[str] = ()
    ) -> Iterator[NodeProcess]:
        """Run an empty node when so much memory was touched, under `program` if there is one."""
        touch_memory(self.directory, touched_bytes)
        directory = self.directory / "node"
        directory.mkdir()
        node = NodeProcess(directory)
        node.program = (*program, *node.program)
        with node:
            yield node
        shutil.rmtree(directory)

    @contextmanager
    def cluster(self, size: int, *, program: Sequence[str] = ()) -> Iterator[ClusterProcess]:
        """Run empty nodes that form a cluster, under `program` where there is one."""
        touch_memory(self.directory, _TOUCHED_BYTES)
        directory = self.directory / "cluster"
        directory.mkdir()
        cluster = ClusterProcess(directory, size)
        for node in cluster.nodes.values():
            node.program = (*program, *node.program)
        with cluster:
            yield cluster
        shutil.rmtree(directory)

    def clean(self) -> None:
        """Remove what is left."""
        shutil.rmtree(self.directory)


@contextmanager
def usage_of(pid: int) -> Iterator[Usage]:
    """Measure what a process uses inside the block."""
    process = psutil.Process(pid)
    usage = Usage()
    cpu_s, begin = _cpu_s_of(process), time.perf_counter()
    yield usage
    usage.wall_s = time.perf_counter() - begin
    usage.cpu_s = _cpu_s_of(process) - cpu_s


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process since its start."""
    return _cpu_s_of(psutil.Process(pid))


def _cpu_s_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    return float(psutil.Process(pid).memory_info().rss) / 1e6


def create_topic(
    node: NodeProcess | ClusterProcess,
    name: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    settings: dict[str, str] | None = None,
) -> None:
    """Create a topic and wait for it."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    topic = NewTopic(name, partitions, replicas, config=settings or {})
    for created in admin.create_topics([topic]).values():
        created.result(_CREATE_WAIT_S)


def leader_of(cluster: ClusterProcess, topic: str) -> int:
    """Return the node that leads the first partition of a topic."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return int(admin.list_topics(topic, timeout=_CREATE_WAIT_S).topics[topic].partitions[0].leader)
