"""How long does a node take to serve when 10 million records are on its disk?

Once in batches of 1,000, once in batches of one record, which is the worst case: a row of the index
for every record. The files are written through `penstock.log`, as a killed node leaves them: the
last snapshot is 50,000 entries old, the last checkpoint a second of publishes.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.answers import Measurement, Target
from benchmarks.clients import stored_count
from benchmarks.workbench import Workbench, cpu_s, create_topic, memory_mb
from penstock.log import (
    LocalDisk,
    LogSettings,
    PartitionLog,
    Snapshot,
    load_snapshot,
    save_snapshot,
)
from penstock.record import Record, RecordBatch, encode_batch, read_header
from tests.processes import NodeProcess

_TOPIC = "stored"
_RECORDS = 10_000_000
_FLUSH_BATCHES = 1_000
_SNAPSHOT_AGE = 50_000
_CHECKPOINT_AGE = 5_000


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Fill a partition, then start a node on it: after a stop, and after a kill."""
    count = bench.count(_RECORDS)
    for records_per_batch in (1_000, 1):
        directory = bench.directory / f"batches-of-{records_per_batch}"
        directory.mkdir()
        node = NodeProcess(directory)
        with node:
            create_topic(node, _TOPIC)
            node.stop()
            _fill(node.data_dir / "topics" / _TOPIC / "0", count, records_per_batch)
            after_kill_s = _start(node)
            if stored_count(node.bootstrap, _TOPIC) != count:
                raise RuntimeError("the node does not know all records")
            memory = memory_mb(node.pid)
            node.stop()
            after_stop_s = _start(node)
            figures = {
                "start_s": after_stop_s,
                "start_cpu_s": cpu_s(node.pid),
                "after_kill_s": after_kill_s,
                "node_mb": memory,
            }
        case = f"{count:,} records in batches of {records_per_batch:,}"
        yield Measurement(case, figures, Target("start_s", most=2))


def _start(node: NodeProcess) -> float:
    begin = time.perf_counter()
    node.start()
    return time.perf_counter() - begin


def _fill(directory: Path, count: int, records_per_batch: int) -> None:
    disk = LocalDisk()
    log = PartitionLog(disk, directory, LogSettings(sync_records=False))
    batches = count // records_per_batch
    after_snapshot = min(batches // 2, _SNAPSHOT_AGE)
    after_checkpoint = min(batches // 2, _CHECKPOINT_AGE)
    _append(log, batches - after_snapshot, records_per_batch)
    # Records without a producer leave the state as it was when the topic was created.
    created = load_snapshot(disk, directory)
    assert created is not None
    save_snapshot(disk, directory, Snapshot(log.next_index, log.last_term, created.payload))
    _append(log, after_snapshot - after_checkpoint, records_per_batch)
    checkpoint = log.take_checkpoint()
    assert checkpoint is not None
    checkpoint.run()
    log.finish_checkpoint(checkpoint)
    _append(log, after_checkpoint, records_per_batch)


def _append(log: PartitionLog, batches: int, records_per_batch: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    batch = _batch(records_per_batch, now_ms)
    term = log.last_term
    for first in range(0, batches, _FLUSH_BATCHES):
        for _ in range(min(_FLUSH_BATCHES, batches - first)):
            copy = RecordBatch(batch.header, memoryview(bytearray(batch.data)))
            log.append_records(copy, term=term, now_ms=now_ms)
        flush = log.take_flush()
        assert flush is not None
        flush.run()
        log.finish(flush)


def _batch(records: int, now_ms: int) -> RecordBatch:
    data = encode_batch([Record(number, now_ms, None, bytes(100)) for number in range(records)])
    return RecordBatch(read_header(data), memoryview(data))
