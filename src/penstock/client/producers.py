"""Publish one message after the other while batches go out behind them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.client.buffers import BufferLimits, PublishBuffer, Waiting
from penstock.client.forks import watch_forks
from penstock.client.publications import Publication, Published, PublishOptions
from penstock.clock import SystemClock
from penstock.errors import InvalidRequest, PenstockError

Results = Sequence[Published | PenstockError]


class BufferedProducer:
    """Publishes to one topic in batches, from a thread of its own.

    `send` returns at once with a future, and waits only while too many messages do. Leaving the
    block waits until everything is answered.
    """

    def __init__(
        self, publish: Callable[[Sequence[Publication]], Results], limits: BufferLimits
    ) -> None:
        self._publish = publish
        self._limits = limits
        self._clock = SystemClock()
        self._is_closed = False
        self.begin_anew()
        watch_forks(self)

    def begin_anew(self) -> None:
        """Begin with nothing to send; what waits in a parent process, it sends itself."""
        self._buffer: PublishBuffer[Future[Published]] = PublishBuffer(self._limits)
        self._changed = threading.Condition()
        self._in_flight = 0
        self._thread = threading.Thread(target=self._run, name="penstock-producer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, value: Any, **options: Unpack[PublishOptions]) -> Future[Published]:
        """Hand a message over; the future tells where it went, or raises why it did not.

        The message is sent as it is now. One that cannot be written into a request raises here.
        """
        told: Future[Published] = Future()
        with self._changed:
            self._changed.wait_for(lambda: self._buffer.has_room or self._is_closed)
            if self._is_closed:
                raise InvalidRequest("the producer is closed and takes no more messages")
            self._buffer.add(Publication(value=value, **options), told, self._clock.steady_s())
            self._changed.notify_all()
        return told

    def flush(self) -> None:
        """Return when everything that was sent is answered, one way or the other."""
        with self._changed:
            self._buffer.hurry()
            self._changed.notify_all()
            self._changed.wait_for(lambda: not len(self._buffer) and not self._in_flight)

    def close(self) -> None:
        """Send what waits, and end; safe to call twice."""
        with self._changed:
            self._is_closed = True
            self._buffer.hurry()
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                results = self._publish([each.publication for each in batch])
            except PenstockError as error:
                results = [error] * len(batch)
            for each, result in zip(batch, results, strict=True):
                tell(each.told, result)
            with self._changed:
                self._in_flight = 0
                self._changed.notify_all()

    def _next_batch(self) -> list[Waiting[Future[Published]]]:
        """Wait for the next batch; nothing more comes after an empty one."""
        with self._changed:
            while True:
                due_s = self._buffer.due_s()
                now_s = self._clock.steady_s()
                if due_s is not None and due_s <= now_s:
                    break
                if due_s is None and self._is_closed:
                    return []
                self._changed.wait(None if due_s is None else due_s - now_s)
            batch = self._buffer.take()
            self._in_flight = len(batch)
            self._changed.notify_all()
        return batch


class AsyncBufferedProducer:
    """The same on an event loop: `send` is awaited for room, the future for the outcome."""

    def __init__(
        self, publish: Callable[[Sequence[Publication]], Awaitable[Results]], limits: BufferLimits
    ) -> None:
        self._publish = publish
        self._buffer: PublishBuffer[asyncio.Future[Published]] = PublishBuffer(limits)
        self._changed = asyncio.Condition()
        self._in_flight = 0
        self._is_closed = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name="producer")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def send(
        self, value: Any, **options: Unpack[PublishOptions]
    ) -> asyncio.Future[Published]:
        """Hand a message over; the future tells where it went, or raises why it did not."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Published] = loop.create_future()
        async with self._changed:
            await self._changed.wait_for(lambda: self._buffer.has_room or self._is_closed)
            if self._is_closed:
                raise InvalidRequest("the producer is closed and takes no more messages")
            self._buffer.add(Publication(value=value, **options), told, loop.time())
            self._changed.notify_all()
        return told

    async def flush(self) -> None:
        """Return when everything that was sent is answered, one way or the other."""
        async with self._changed:
            self._buffer.hurry()
            self._changed.notify_all()
            await self._changed.wait_for(lambda: not len(self._buffer) and not self._in_flight)

    async def close(self) -> None:
        """Send what waits, and end; safe to call twice."""
        async with self._changed:
            self._is_closed = True
            self._buffer.hurry()
            self._changed.notify_all()
        await self._task

    async def _run(self) -> None:
        while batch := await self._next_batch():
            try:
                results = await self._publish([each.publication for each in batch])
            except PenstockError as error:
                results = [error] * len(batch)
            for each, result in zip(batch, results, strict=True):
                tell(each.told, result)
            async with self._changed:
                self._in_flight = 0
                self._changed.notify_all()

    async def _next_batch(self) -> list[Waiting[asyncio.Future[Published]]]:
        loop = asyncio.get_running_loop()
        async with self._changed:
            while True:
                due_s = self._buffer.due_s()
                if due_s is not None and due_s <= loop.time():
                    break
                if due_s is None and self._is_closed:
                    return []
                await self._wait_until(due_s)
            batch = self._buffer.take()
            self._in_flight = len(batch)
            self._changed.notify_all()
        return batch

    async def _wait_until(self, due_s: float | None) -> None:
        try:
            async with asyncio.timeout_at(due_s):
                await self._changed.wait()
        except TimeoutError:
            pass


def tell(
    told: Future[Published] | asyncio.Future[Published], result: Published | PenstockError
) -> None:
    """Give a result to the one who waits for it, unless he has left."""
    if isinstance(told, asyncio.Future):
        has_left = told.cancelled()
    else:
        # From here on he cannot leave any more, which he may do in another thread.
        has_left = not told.set_running_or_notify_cancel()
    if has_left:
        return
    if isinstance(result, PenstockError):
        told.set_exception(result)
    else:
        told.set_result(result)
