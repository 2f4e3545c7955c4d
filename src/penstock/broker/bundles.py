"""Messages that many callers publish one by one at the same time, and that travel as one batch.

A batch of one costs nearly as much as a batch of many: a header, a checksum, a row and an entry of
its own. The log takes nothing from a partition while its disk is busy, so whoever comes meanwhile
has to wait, and those who wait go together. Who comes alone goes at once.

One bundle of a partition is under way at a time. Were there a second one, ready when the first
ends, both would be smaller, and a flush that others wait for goes through a thread: on a quick disk
that takes longer than the flush. All messages of a bundle share what becomes of it. A caller that
does not wait any longer takes nothing back.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from penstock.errors import PenstockError
from penstock.ids import TopicPartition

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


class Bundles(Generic[Item, Result]):
    """Puts messages together, and hands each bundle to `send`."""

    def __init__(
        self, send: Callable[[TopicPartition, Sequence[Item]], Awaitable[Sequence[Result]]]
    ) -> None:
        self._send = send
        # What waits behind the bundle that is under way; the last one takes more.
        self._waiting: dict[TopicPartition, deque[_Bundle[Item, Result]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, place: TopicPartition, item: Item, *, bytes_max: int) -> Result:
        """Send a message with others, `bytes_max` at most together; return what became of it."""
        waiting = self._waiting.get(place)
        if waiting is None:
            return await self._send_alone(place, item)
        bundle = waiting[-1] if waiting else None
        if (
            bundle is None
            or bundle.size_bytes + item.size_bytes > bytes_max
            or len(bundle.items) >= RECORDS_MAX
        ):
            bundle = _Bundle()
            waiting.append(bundle)
        bundle.items.append(item)
        bundle.size_bytes += item.size_bytes
        waiter: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        bundle.waiters.append(waiter)
        return await waiter

    async def _send_alone(self, place: TopicPartition, item: Item) -> Result:
        self._waiting[place] = deque()
        try:
            (result,) = await self._send(place, [item])
        finally:
            self._go_on(place)
        return result

    def _go_on(self, place: TopicPartition) -> None:
        """Send what waits after this turn of the loop: who comes in it, goes with it."""
        if not self._waiting[place]:
            del self._waiting[place]
            return
        task = asyncio.get_running_loop().create_task(self._send_next(place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_next(self, place: TopicPartition) -> None:
        bundle = self._waiting[place].popleft()
        try:
            results = await self._send(place, bundle.items)
        except PenstockError as error:
            for waiter in bundle.waiters:
                if not waiter.done():
                    waiter.set_exception(error)
        else:
            for waiter, result in zip(bundle.waiters, results, strict=True):
                if not waiter.done():
                    waiter.set_result(result)
        finally:
            # Whoever still waits would do so for good after a fault of ours.
            for waiter in bundle.waiters:
                waiter.cancel()
            self._go_on(place)
