"""How long does a node take to serve, and how much memory, when millions of messages are scheduled?

The messages are due at random times of the coming month, so that none comes while the node starts.
The files are written through `penstock.log`, with no snapshot that holds any of the messages: the
first start applies all their entries (`replay`), which no node has to do that runs by itself,
because it saves its state before there is that much to apply. Once it has, it is killed.
"""

import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec

from benchmarks.answers import Measurement, Target
from benchmarks.workbench import Workbench, cpu_s, create_topic, memory_mb
from penstock.delivery import Staged, pack_numbers, pack_records
from penstock.log import LocalDisk, LogSettings, PartitionLog
from penstock.record import Record
from tests.processes import NodeProcess

_TOPIC = "later"
_PER_ENTRY = 1_000
_FLUSH_ENTRIES = 100
_DAY_MS = 24 * 3600 * 1000


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Fill a stage, then start a node on it: as it is, after a kill, and after a stop."""
    for messages, start_s_max in ((1_000_000, 2), (10_000_000, 5)):
        count = bench.count(messages)
        directory = bench.directory / f"scheduled-{messages}"
        directory.mkdir()
        node = NodeProcess(directory)
        with node:
            create_topic(node, _TOPIC)
            empty_mb = memory_mb(node.pid)
            node.stop()
            partition = node.data_dir / "topics" / _TOPIC / "0"
            _fill(partition, count)
            replay_s = _start(node)
            if _scheduled(node) != count:
                raise RuntimeError(f"the node knows of {_scheduled(node)} messages, not {count}")
            replay_cpu_s = cpu_s(node.pid)
            _wait_saved(partition)
            replay_mb = memory_mb(node.pid)
            node.kill()
            after_kill_s = _start(node)
            after_kill_cpu_s, after_kill_mb = cpu_s(node.pid), memory_mb(node.pid)
            begin = time.perf_counter()
            node.stop()
            stop_s = time.perf_counter() - begin
            after_stop_s = _start(node)
            figures = {
                "after_kill_s": after_kill_s,
                "after_kill_cpu_s": after_kill_cpu_s,
                "after_kill_mb": after_kill_mb,
                "start_s": after_stop_s,
                "start_cpu_s": cpu_s(node.pid),
                "stop_s": stop_s,
                "replay_s": replay_s,
                "replay_cpu_s": replay_cpu_s,
                "replay_mb": replay_mb,
                "empty_mb": empty_mb,
            }
        yield Measurement(f"{count:,} messages", figures, Target("after_kill_s", most=start_s_max))


def _start(node: NodeProcess) -> float:
    begin = time.perf_counter()
    node.start()
    while _scheduled(node) is None:
        time.sleep(0.01)
    return time.perf_counter() - begin


def _wait_saved(partition: Path) -> None:
    """Wait until a snapshot holds the messages, each of which takes eight bytes and more there."""
    while max(path.stat().st_size for path in partition.glob("snapshot-*")) < 1 << 20:
        time.sleep(0.05)


def _scheduled(node: NodeProcess) -> int | None:
    """What the leader of the partition tells; None while nobody leads it."""
    for line in node.get("/metrics")[1].decode().splitlines():
        if line.startswith("penstock_partition_scheduled{"):
            return int(float(line.rpartition(" ")[2]))
    return None


def _fill(directory: Path, count: int) -> None:
    log = PartitionLog(LocalDisk(), directory, LogSettings())
    now_ms = time.time_ns() // 1_000_000
    random = Random(1)
    records = pack_records([Record(0, now_ms, None, bytes(100))] * _PER_ENTRY)
    for number in range(count // _PER_ENTRY):
        times = (now_ms + _DAY_MS + random.randrange(30 * _DAY_MS) for _ in range(_PER_ENTRY))
        dues = array("q", times)
        event = Staged(dues=pack_numbers(dues), records=records, at_ms=now_ms)
        log.append_state(msgspec.msgpack.encode(event), term=log.last_term, now_ms=now_ms)
        if number % _FLUSH_ENTRIES == _FLUSH_ENTRIES - 1:
            _flush(log)
    _flush(log)


def _flush(log: PartitionLog) -> None:
    flush = log.take_flush()
    if flush is not None:
        flush.run()
        log.finish(flush)
