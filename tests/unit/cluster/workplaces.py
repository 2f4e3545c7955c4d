"""A simulated machine for the tests of this room: its disk, its clock, and threads on a leash."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from penstock.cluster import (
    ClusterMetadata,
    FlushPace,
    Machine,
    Partition,
    ReplicatedLog,
    Workplace,
)
from penstock.cluster.cluster import Cluster
from penstock.cluster.deliveries import DeliveryHost
from penstock.cluster.partition_fence import KnownFences
from penstock.cluster.replica_identity import ReplicaIdentity
from penstock.config import Address, NodeOptions
from penstock.delivery import GroupSettings
from penstock.ids import NodeId, TopicPartition
from penstock.log import LogSettings
from penstock.raft import Incarnation, Member, Membership, Message, RaftSettings
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
GROUP = 10_000
MEMBER = Member(NodeId(1), Incarnation(11))
# Work runs inside `submit`, so anything that still moves does so within a few turns of the loop.
_TURNS = 300
PLAIN_GROUP = GroupSettings()
START_MS = 1_700_000_000_000


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
        self._run(*self._held.pop(0))

    def run_last(self) -> None:
        """Run the newest piece of work."""
        self._run(*self._held.pop())

    def _run(self, future: Future[Any], work: Callable[[], Any]) -> None:
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


class ThreadsOnly(FlushPace):
    """Has every flush run in a thread, where tests can hold it."""

    def ended(self, duration_s: float) -> None:
        """Call the disk slow."""
        super().ended(duration_s + 1.0)


class NoPeers:
    """The transport of a group of one."""

    def send(self, group: int, message: Message) -> None:
        """Nobody is there to be sent anything."""
        raise AssertionError(f"a group of one sends nothing: {message}")


class LoopClock:
    """A clock that follows the event loop, whose time jumps when there is nothing to do."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return START_MS + int(asyncio.get_running_loop().time() * 1000)

    def steady_s(self) -> float:
        """Seconds that never jump."""
        return asyncio.get_running_loop().time()


class SimMachine:
    """One machine over several lives of its process."""

    def __init__(
        self, capacity_bytes: int | None = None, *, seed: int = 1, clock: Any = None
    ) -> None:
        self.disk = SimDisk(capacity_bytes)
        self.clock = clock or SimClock()
        self.executor = LeashedExecutor()
        self.pace: FlushPace = ThreadsOnly(self.clock)
        self._random = Random(seed)

    def workplace(self) -> Workplace:
        """What the logs of the running process share."""
        return Workplace(
            asyncio.get_running_loop(),
            self.executor,
            self.disk,
            self.clock,
            self._random.randrange,
            self.pace,
        )

    def open_log(self, machine: Machine, **settings: Any) -> ReplicatedLog:
        """Open the log of one partition, which nobody leads yet."""
        workplace = self.workplace()
        ReplicatedLog.found(workplace, DIRECTORY, Membership.of([MEMBER]), machine)
        return ReplicatedLog(
            ReplicaIdentity(str(PLACE), GROUP, MEMBER),
            DIRECTORY,
            LogSettings(**settings),
            machine,
            workplace,
            transport=NoPeers(),
            raft_settings=RaftSettings(),
        )

    async def replicated_log(self, machine: Machine, **settings: Any) -> ReplicatedLog:
        """Open the log of one partition and lead it."""
        return await led(self.open_log(machine, **settings))

    async def partition(
        self,
        *,
        group_settings: GroupSettings = PLAIN_GROUP,
        fences: KnownFences | None = None,
        **settings: Any,
    ) -> Partition:
        """Open one partition and lead it."""
        workplace = self.workplace()
        membership = Membership.of([MEMBER])
        partition = Partition.open(
            PLACE,
            ReplicaIdentity(str(PLACE), GROUP, MEMBER),
            DIRECTORY,
            LogSettings(**settings),
            found=partial(ReplicatedLog.found, workplace, DIRECTORY, membership),
            producer_expiry_ms=86_400_000,
            workplace=workplace,
            transport=NoPeers(),
            raft_settings=RaftSettings(),
            host=DeliveryHost(lambda _topic, _group: group_settings),
            fences=fences or KnownFences(),
        )
        await led(partition.log)
        return partition

    async def cluster(self, **options: Any) -> Cluster:
        """Start a node that is a cluster of its own, without consumer groups of interest."""
        node = NodeOptions(data_dir=DATA, group_shards=1, peer_port=0, **options)
        cluster = Cluster(node, self.workplace(), lambda _: ClusterMetadata())
        await cluster.start("127.0.0.1")
        await cluster.register(kafka=Address("127.0.0.1", 9092), http_port=8080)
        return cluster


async def led(log: ReplicatedLog) -> ReplicatedLog:
    """Elect the replica of a group of one; it serves unless it fails."""
    log.campaign()
    await turn(until=lambda: log.is_serving or log.failure is not None)
    return log


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


class _ImpatientSelector(selectors.DefaultSelector):
    """Does not wait; it counts the seconds that it was asked to wait for."""

    waited_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now."""
        self.waited_s += timeout or 0.0
        return super().select(None if timeout is None else 0)


class HastyLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer when nothing else is left to do."""

    def __init__(self) -> None:
        self._impatient = _ImpatientSelector()
        super().__init__(self._impatient)

    def time(self) -> float:
        """Seconds that never go back."""
        return super().time() + self._impatient.waited_s


def run(test: Coroutine[Any, Any, T]) -> T:
    """Run a test on an event loop of its own."""
    with asyncio.Runner(loop_factory=HastyLoop) as runner:
        return runner.run(test)


def stop_before_every_step(scene: Callable[[int], Coroutine[Any, Any, bool]]) -> int:
    """Run a scene whose machine stops before one step after another, until it says that none did.

    Returns how many steps there were.
    """
    stop = 0
    with pytest.MonkeyPatch.context() as patch:
        # What the machine does not survive is reported by nobody, as in a real crash.
        patch.setattr(asyncio.BaseEventLoop, "call_exception_handler", lambda *_: None)
        while run(scene(stop)):
            stop += 1
    return stop


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
