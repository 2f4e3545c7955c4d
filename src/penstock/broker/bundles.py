"""Messages that many callers publish one by one at the same time, and that travel as one batch.

A batch of one costs nearly as much as a batch of many: a header, a checksum, a row and an entry of
its own. The log takes nothing from a partition while its disk is busy, so whoever comes meanwhile
has to wait, and those who wait go together. Who comes alone goes at once.

Two bundles of a partition are under way at most: one that is being written, and one that is ready
when that ends, or is on its way to the followers. All messages of a bundle share what becomes of
it. A caller that does not wait any longer takes nothing back.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from penstock.errors import PenstockError
from penstock.ids import TopicPartition

UNDER_WAY_MAX = 2
RECORDS_MAX = 1_000


class Sized(Protocol):
    """What can be put into a bundle."""

    @property
    def size_bytes(self) -> int:
        """Bytes that it adds to a batch."""


Item = TypeVar("Item", bound=Sized)
Result = TypeVar("Result")


class _Bundle(Generic[Item, Result]):
    """Messages that go together, and who waits for each."""

    __slots__ = ("items", "size_bytes", "waiters")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.size_bytes = 0
        self.waiters: list[asyncio.Future[Result]] = []


class _Lane(Generic[Item, Result]):
    """The bundles of one partition that are not under way yet; the last one takes more."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.under_way = 0
        self.waiting: deque[_Bundle[Item, Result]] = deque()


class Bundles(Generic[Item, Result]):
    """Puts messages together, and hands each bundle to `send`."""

    def __init__(
        self, send: Callable[[TopicPartition, Sequence[Item]], Awaitable[Sequence[Result]]]
    ) -> None:
        self._send = send
        self._lanes: dict[TopicPartition, _Lane[Item, Result]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, place: TopicPartition, item: Item, *, bytes_max: int) -> Result:
        """Send a message with others, `bytes_max` at most together; return what became of it."""
        lane = self._lanes.get(place)
        if lane is None:
            return await self._send_alone(place, item)
        bundle = lane.waiting[-1] if lane.waiting else None
        if (
            bundle is None
            or bundle.size_bytes + item.size_bytes > bytes_max
            or len(bundle.items) >= RECORDS_MAX
        ):
            bundle = _Bundle()
            lane.waiting.append(bundle)
            if lane.under_way < UNDER_WAY_MAX:
                self._begin(place, lane)
        bundle.items.append(item)
        bundle.size_bytes += item.size_bytes
        waiter: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        bundle.waiters.append(waiter)
        return await waiter

    async def _send_alone(self, place: TopicPartition, item: Item) -> Result:
        lane = self._lanes[place] = _Lane()
        lane.under_way = 1
        try:
            (result,) = await self._send(place, [item])
        finally:
            self._end(place, lane)
        return result

    def _begin(self, place: TopicPartition, lane: _Lane[Item, Result]) -> None:
        """Send what waits after this turn of the loop: who comes in it, goes with it."""
        lane.under_way += 1
        task = asyncio.get_running_loop().create_task(self._run(place, lane))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, place: TopicPartition, lane: _Lane[Item, Result]) -> None:
        try:
            while lane.waiting:
                await self._send_bundle(place, lane.waiting.popleft())
        finally:
            self._end(place, lane)

    async def _send_bundle(self, place: TopicPartition, bundle: _Bundle[Item, Result]) -> None:
        try:
            results = await self._send(place, bundle.items)
        except PenstockError as error:
            for waiter in bundle.waiters:
                if not waiter.done():
                    waiter.set_exception(error)
            return
        except BaseException:
            for waiter in bundle.waiters:
                waiter.cancel()
            raise
        for waiter, result in zip(bundle.waiters, results, strict=True):
            if not waiter.done():
                waiter.set_result(result)

    def _end(self, place: TopicPartition, lane: _Lane[Item, Result]) -> None:
        lane.under_way -= 1
        if lane.waiting and not lane.under_way:
            self._begin(place, lane)
        elif not lane.under_way:
            del self._lanes[place]
