"""A simulated machine for the tests of this room: its disk, its clock, and threads on a leash."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, TypeVar

from penstock.cluster import ClusterMetadata, Machine, Partition, ReplicatedLog, Workplace
from penstock.cluster.cluster import Cluster
from penstock.config import NodeOptions
from penstock.ids import TopicPartition
from penstock.log import LogSettings, PartitionLog
from penstock.record import (
    Record,
    RecordBatch,
    decode_records,
    encode_batch,
    read_header,
    split_batches,
)
from penstock.testing import SimClock, SimDisk

T = TypeVar("T")

DATA = Path("/data")
DIRECTORY = DATA / "topics" / "orders" / "0"
PLACE = TopicPartition("orders", 0)
# Work runs inside `submit`, so anything that still moves does so within a few turns of the loop.
_TURNS = 300


class LeashedExecutor(Executor):
    """Runs work at once, or when the test lets it: `hold` it, then `run_next` or `release`."""

    def __init__(self) -> None:
        self._held: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._is_holding = False

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Take work."""
        future: Future[Any] = Future()
        self._held.append((future, lambda: work(*args, **options)))
        if not self._is_holding:
            self.run_next()
        return future

    @property
    def held(self) -> int:
        """How many pieces of work wait."""
        return len(self._held)

    def hold(self) -> None:
        """Keep all further work until it is released."""
        self._is_holding = True

    def run_next(self) -> None:
        """Run the oldest piece of work."""
        future, work = self._held.pop(0)
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 (a thread pool hands on whatever was raised)
            future.set_exception(error)
        else:
            future.set_result(result)

    def release(self) -> None:
        """Run all that was held, and hold no more."""
        self._is_holding = False
        while self._held:
            self.run_next()


class SimMachine:
    """One machine over several lives of its process."""

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.disk = SimDisk(capacity_bytes)
        self.clock = SimClock()
        self.executor = LeashedExecutor()

    def workplace(self) -> Workplace:
        """What the logs of the running process share."""
        return Workplace(asyncio.get_running_loop(), self.executor, self.disk, self.clock)

    def replicated_log(self, machine: Machine, **settings: Any) -> ReplicatedLog:
        """Open the log of one partition."""
        log = PartitionLog(self.disk, DIRECTORY, LogSettings(**settings))
        return ReplicatedLog("orders-0", log, machine, self.workplace())

    def partition(self, **settings: Any) -> Partition:
        """Open one partition."""
        return Partition.open(
            PLACE,
            DIRECTORY,
            LogSettings(**settings),
            producer_expiry_ms=86_400_000,
            workplace=self.workplace(),
        )

    def cluster(self, **options: Any) -> Cluster:
        """Open all logs of a node without consumer groups of interest."""
        node = NodeOptions(data_dir=DATA, group_shards=1, **options)
        return Cluster(node, self.workplace(), lambda _: ClusterMetadata())


def batch(*values: bytes | None, key: bytes | None = None, timestamp: int = 0) -> RecordBatch:
    """Return a batch with one record for each value."""
    records = [Record(number, timestamp, key, value) for number, value in enumerate(values)]
    return split_batches(encode_batch(records))[0]


def numbered_batch(
    sequence: int, *values: bytes, producer_id: int = 7, epoch: int = 0
) -> RecordBatch:
    """Return a batch as an idempotent producer numbers it."""
    records = [Record(number, 0, None, value) for number, value in enumerate(values)]
    data = encode_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return split_batches(data)[0]


def values(partition: Partition) -> list[bytes | None]:
    """Return the values of all readable records."""
    return [record.value for record in records(partition)]


def records(partition: Partition) -> list[Record]:
    """Return all readable records."""
    found: list[Record] = []
    offset = int(partition.start_offset)
    while (part := partition.read(offset, bytes_max=1 << 20)) is not None:
        view = memoryview(part.read())
        while view:
            header = read_header(view)
            stored = decode_records(view[: header.size_bytes])
            found.extend(each for each in stored if each.offset >= partition.start_offset)
            offset = header.next_offset
            view = view[header.size_bytes :]
    return found


def run(test: Coroutine[Any, Any, T]) -> T:
    """Run a test on an event loop of its own."""
    return asyncio.run(test)


async def settle(awaitable: Awaitable[T]) -> asyncio.Future[T]:
    """Let everything happen that can; the future may still be waiting afterwards."""
    future = asyncio.ensure_future(awaitable)
    await turn(_TURNS, until=future.done)
    return future


async def turn(turns: int = _TURNS, *, until: Callable[[], bool] = lambda: False) -> None:
    """Let the event loop run for some turns."""
    for _ in range(turns):
        if until():
            return
        await asyncio.sleep(0)
