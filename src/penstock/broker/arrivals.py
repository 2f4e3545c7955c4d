"""Waiting until a queue group has something to hand out, wherever its partitions are led.

On this node the partitions' queues wake who waits. On other nodes a watch asks the leader to answer
when something is there; there is one watch for each node, topic and group, however many consumers
wait here, and it ends when the last of them does. Who is woken looks for itself: it may find that
another was faster.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from penstock.broker.calls import Calls
from penstock.cluster import Cluster, PartitionQueue, Waiter
from penstock.errors import PenstockError, ShuttingDown, Unavailable
from penstock.ids import TopicPartition

logger = logging.getLogger(__name__)

# A word about a new leader may get lost; who waits looks anew after this time at the latest.
_SLICE_S = 1.0
_REMOTE_WAIT_MS = 2_000
# After a wake the one who was woken asks for messages; the next look waits for that. The pause
# grows while those who are woken find nothing.
_PAUSE_MIN_S = 0.005
_PAUSE_MAX_S = 0.1


class AwaitArrival(msgspec.Struct, frozen=True):
    """Asks a leader to answer when a group may have something in one of these partitions."""

    topic: str
    group: str
    partitions: list[int]
    wait_ms: int


class _Watch:
    """Waits on another node for all who wait here."""

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Event] = deque()
        self.pause_s = _PAUSE_MIN_S
        self.task: asyncio.Task[None] | None = None

    def wake_one(self) -> bool:
        """Wake the first who waits; each that is woken makes the pause longer until one finds."""
        while self.waiting:
            waiting = self.waiting.popleft()
            if not waiting.is_set():
                waiting.set()
                return True
        return False


class Arrivals:
    """Who waits on this node."""

    def __init__(self, cluster: Cluster, calls: Calls) -> None:
        self._cluster = cluster
        self._calls = calls
        self._watches: dict[tuple[int, str, str], _Watch] = {}
        # In the order in which they came, which is also that in which they are woken.
        self._waiters: dict[Waiter, None] = {}
        # Of those, who waits for a topic that is not there yet, or for a partition's leader.
        self._for_topics: dict[Waiter, None] = {}
        self._for_leaders: dict[Waiter, None] = {}
        self._is_over = False
        cluster.metadata.watch(lambda: _wake(self._for_topics))
        cluster.leaders.watch(lambda: _wake(self._for_leaders))
        calls.serve("queue.arrival", AwaitArrival, self._await_arrival)

    async def wait(
        self,
        wanted: dict[str, dict[int, list[int]]],
        group: str,
        consumer: str,
        *,
        until_s: float,
        awaits_topics: bool = False,
    ) -> None:
        """Return when something may be there, at `until_s`, or when leaders should be looked up.

        Raises `ShuttingDown` when the node stops, so that whoever waits asks another one.
        `wanted` gives the partitions of each topic by the node that leads them. Who waits for
        other topics as well is woken by each change of the metadata.
        """
        arrival = asyncio.Event()
        waiter = Waiter(consumer, arrival.set)
        local: list[PartitionQueue] = []
        watches: list[_Watch] = []
        for topic, by_node in wanted.items():
            for node, partitions in by_node.items():
                if node == self._cluster.member.node:
                    local += self._queues(topic, partitions)
                else:
                    watches.append(self._watch(node, topic, group, partitions))
        if any(self._lacks_leader(topic, by_node) for topic, by_node in wanted.items()):
            self._for_leaders[waiter] = None
        if awaits_topics:
            self._for_topics[waiter] = None
        try:
            await self._wait(arrival, waiter, local, watches, group, until_s=until_s)
        finally:
            self._for_topics.pop(waiter, None)
            self._for_leaders.pop(waiter, None)

    def _lacks_leader(self, topic: str, by_node: dict[int, list[int]]) -> bool:
        known = sum(len(partitions) for partitions in by_node.values())
        return known < len(self._cluster.metadata.topic(topic).replicas)

    async def _wait(
        self,
        arrival: asyncio.Event,
        waiter: Waiter,
        local: list[PartitionQueue],
        watches: list[_Watch],
        group: str,
        *,
        until_s: float,
    ) -> None:
        self._check_open()
        loop = asyncio.get_running_loop()
        self._waiters[waiter] = None
        for queue in local:
            queue.watch(group, waiter)
        for watch in watches:
            watch.waiting.append(arrival)
        timer = loop.call_at(min(until_s, loop.time() + _SLICE_S), waiter.wake)
        try:
            # Something may have come between the last look and now.
            if not any(queue.has_ready(group, waiter.consumer) for queue in local):
                await arrival.wait()
        finally:
            timer.cancel()
            self._waiters.pop(waiter, None)
            for queue in local:
                queue.unwatch(group, waiter)
            for watch in watches:
                with suppress(ValueError):
                    watch.waiting.remove(arrival)
        self._check_open()

    def _check_open(self) -> None:
        if self._is_over:
            raise ShuttingDown("the node is stopping")

    def end_waits(self) -> None:
        """Let nobody wait any more, since the node stops."""
        self._is_over = True
        _wake(self._waiters)

    def found(self, node: int, topic: str, group: str) -> None:
        """Who was woken has found messages on another node."""
        watch = self._watches.get((node, topic, group))
        if watch is not None:
            watch.pause_s = _PAUSE_MIN_S

    def _queues(self, topic: str, partitions: Sequence[int]) -> list[PartitionQueue]:
        queues = []
        for number in partitions:
            with suppress(PenstockError):
                queues.append(self._cluster.partition(TopicPartition(topic, number)).queue)
        return queues

    # Other nodes.

    def _watch(self, node: int, topic: str, group: str, partitions: list[int]) -> _Watch:
        watch = self._watches.get((node, topic, group))
        if watch is None:
            watch = self._watches[node, topic, group] = _Watch()
            watch.task = asyncio.create_task(self._follow(watch, node, topic, group, partitions))
        return watch

    async def _follow(
        self, watch: _Watch, node: int, topic: str, group: str, partitions: list[int]
    ) -> None:
        request = AwaitArrival(topic, group, partitions, _REMOTE_WAIT_MS)
        place = TopicPartition(topic, partitions[0])
        try:
            # The first who waits joins after this task was made.
            await asyncio.sleep(0)
            while watch.waiting:
                try:
                    has_arrived = await self._calls.ask(
                        place, "queue.arrival", request, bool, wait_ms=_REMOTE_WAIT_MS
                    )
                except Unavailable:
                    # Leaders are changing; those who wait look anew by themselves.
                    await asyncio.sleep(_PAUSE_MAX_S)
                    continue
                if has_arrived and watch.wake_one():
                    await asyncio.sleep(watch.pause_s)
                    watch.pause_s = min(watch.pause_s * 2, _PAUSE_MAX_S)
        except PenstockError as error:
            logger.debug("watch ended", extra={"topic": topic, "reason": str(error)})
        finally:
            del self._watches[node, topic, group]
            while watch.wake_one():
                pass

    async def close(self) -> None:
        """End all watches."""
        tasks = [watch.task for watch in self._watches.values() if watch.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _await_arrival(self, request: AwaitArrival) -> bool:
        """Answer another node when something is there, or when the time is over."""
        loop = asyncio.get_running_loop()
        arrival = asyncio.Event()
        queues = self._queues(request.topic, request.partitions)
        until_s = loop.time() + request.wait_ms / 1000
        waiter = Waiter("", arrival.set)
        while loop.time() < until_s:
            if any(queue.has_ready(request.group, "") for queue in queues):
                return True
            await self._wait(arrival, waiter, queues, [], request.group, until_s=until_s)
            arrival.clear()
        return False


def _wake(waiters: Iterable[Waiter]) -> None:
    """Let them look anew."""
    for waiter in list(waiters):
        waiter.wake()
