"""Loops over the messages of a queue group, whose leases are renewed until they are settled."""

import asyncio
import contextlib
import logging
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar

from penstock.client.deliveries import Leased, Refusal
from penstock.client.forks import watch_forks
from penstock.client.renewal import Renewal
from penstock.clock import SystemClock
from penstock.errors import PenstockError

L = TypeVar("L", bound=Leased)

Extend = Callable[[Sequence[Leased], float], list[Refusal[Leased]]]
AsyncExtend = Callable[[Sequence[Leased], float], Awaitable[list[Refusal[Leased]]]]

# A thread keeps its client, so it must end where nobody closes that; most begin again at once.
_IDLE_S = 10.0

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())


class LeaseKeeper:
    """Extends leases from a thread, which ends when nothing was held for a while."""

    def __init__(self, extend: Extend, *, idle_s: float = _IDLE_S) -> None:
        self._extend = extend
        self._idle_s = idle_s
        self._clock = SystemClock()
        self._is_closed = False
        self.begin_anew()
        watch_forks(self)

    def begin_anew(self) -> None:
        """Hold nothing; what a parent process holds, it renews itself."""
        self._renewal: Renewal = Renewal()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def hold(self, messages: Sequence[Leased], *, lease_s: float, owner: object) -> None:
        """Renew the leases of messages from now on."""
        with self._changed:
            now_s = self._clock.steady_s()
            self._renewal.hold(messages, lease_s=lease_s, now_s=now_s, owner=owner)
            self._changed.notify_all()
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(
                    target=self._run, name="penstock-leases", daemon=True
                )
                self._thread.start()

    def drop(self, messages: Sequence[Leased]) -> None:
        """Leave the leases of messages alone."""
        with self._changed:
            self._renewal.drop(messages)

    def drop_all_of(self, owner: object) -> None:
        """Leave alone what is held on behalf of `owner`."""
        with self._changed:
            self._renewal.drop_all_of(owner)

    def is_held(self, message: Leased) -> bool:
        """Whether a lease is renewed; not any more when it was settled, dropped or lost."""
        with self._changed:
            return message in self._renewal

    def close(self) -> None:
        """Let all leases run out."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                now_s = self._clock.steady_s()
                due_s = self._renewal.next_due_s()
                if due_s is None:
                    if not self._changed.wait(self._idle_s) and not self._renewal:
                        self._thread = None
                        return
                    continue
                if due_s > now_s:
                    self._changed.wait(due_s - now_s)
                    continue
                due = self._renewal.take_due(now_s)
            for lease_s, messages in due.items():
                try:
                    refusals = self._extend(messages, lease_s)
                except PenstockError as error:
                    logger.warning("leases were not extended: %s", error)
                    continue
                self.drop(lost_of([each for each in refusals if self.is_held(each.message)]))


class AsyncLeaseKeeper:
    """Extends leases from a task, which runs while anything is held."""

    def __init__(self, extend: AsyncExtend) -> None:
        self._extend = extend
        self._renewal: Renewal = Renewal()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def hold(self, messages: Sequence[Leased], *, lease_s: float, owner: object) -> None:
        """Renew the leases of messages from now on."""
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.get_loop() is not loop:
            # The loop of the last one is over, or that of a parent process.
            self._renewal = Renewal()
            self._changed = asyncio.Event()
            self._task = loop.create_task(self._run(), name="leases")
        self._renewal.hold(messages, lease_s=lease_s, now_s=loop.time(), owner=owner)
        self._changed.set()

    def drop(self, messages: Sequence[Leased]) -> None:
        """Leave the leases of messages alone."""
        self._renewal.drop(messages)

    def drop_all_of(self, owner: object) -> None:
        """Leave alone what is held on behalf of `owner`."""
        self._renewal.drop_all_of(owner)

    def is_held(self, message: Leased) -> bool:
        """Whether a lease is renewed; not any more when it was settled, dropped or lost."""
        return message in self._renewal

    async def close(self) -> None:
        """Let all leases run out."""
        if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = self._renewal.next_due_s()
            if due_s is None or due_s > loop.time():
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(due_s):
                        await self._changed.wait()
                continue
            for lease_s, messages in self._renewal.take_due(loop.time()).items():
                try:
                    refusals = await self._extend(messages, lease_s)
                except PenstockError as error:
                    logger.warning("leases were not extended: %s", error)
                    continue
                self.drop(lost_of([each for each in refusals if self.is_held(each.message)]))


def lost_of(refusals: Sequence[Refusal[Leased]]) -> list[Leased]:
    """Return the messages that somebody else may get while they are worked on.

    The others' leases run on, and are extended later: a partition without a leader gets one. What
    was settled while its extension was on its way is refused, too, and is not among `refusals`.
    """
    lost: list[Leased] = []
    for each in refusals:
        if each.error.retryable:
            logger.warning("a lease of %s was not extended: %s", each.message.topic, each.error)
        else:
            logger.warning("a lease of %s was lost: %s", each.message.topic, each.error)
            lost.append(each.message)
    return lost


class Subscription(Generic[L]):
    """Messages one after the other, for ever or until `close`, from any thread.

    Their leases are renewed until they are settled or the subscription is closed. Messages that
    were received and not yet handed out are given back then. One whose lease was lost meanwhile is
    not handed out: it comes back, to this consumer or another.
    """

    def __init__(
        self,
        receive: Callable[[], list[L]],
        keeper: LeaseKeeper,
        give_back: Callable[[Sequence[L]], None],
        *,
        lease_s: float,
    ) -> None:
        self._receive = receive
        self._keeper = keeper
        self._give_back = give_back
        self._lease_s = lease_s
        self._ready: deque[L] = deque()
        self._is_closed = False
        # A loop that was left without `close` must not keep its messages out for ever.
        self._owner = object()
        weakref.finalize(self, keeper.drop_all_of, self._owner)
        watch_forks(self)

    def begin_anew(self) -> None:
        """Leave what was received to the parent process."""
        self._ready.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[L]:
        return self

    def __next__(self) -> L:
        while not self._is_closed:
            try:
                # Looking first would be too early: another thread may take the last one, or close.
                message = self._ready.popleft()
            except IndexError:
                messages = self._receive()
                self._keeper.hold(messages, lease_s=self._lease_s, owner=self._owner)
                self._ready.extend(messages)
            else:
                if self._keeper.is_held(message):
                    return message
        self.close()
        raise StopIteration

    def close(self) -> None:
        """End the loop, also from within another thread; safe to call twice."""
        self._is_closed = True
        unhanded = [self._ready.popleft() for _ in range(len(self._ready))]
        self._keeper.drop_all_of(self._owner)
        if unhanded:
            self._give_back(unhanded)


class AsyncSubscription(Generic[L]):
    """The same on an event loop."""

    def __init__(
        self,
        receive: Callable[[], Awaitable[list[L]]],
        keeper: AsyncLeaseKeeper,
        give_back: Callable[[Sequence[L]], Awaitable[None]],
        *,
        lease_s: float,
    ) -> None:
        self._receive = receive
        self._keeper = keeper
        self._give_back = give_back
        self._lease_s = lease_s
        self._ready: deque[L] = deque()
        self._is_closed = False
        # A loop that was left without `close` must not keep its messages out for ever.
        self._owner = object()
        weakref.finalize(self, keeper.drop_all_of, self._owner)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[L]:
        return self

    async def __anext__(self) -> L:
        while not self._is_closed:
            if self._ready:
                message = self._ready.popleft()
                if self._keeper.is_held(message):
                    return message
            else:
                messages = await self._receive()
                self._keeper.hold(messages, lease_s=self._lease_s, owner=self._owner)
                self._ready.extend(messages)
        await self.close()
        raise StopAsyncIteration

    async def close(self) -> None:
        """End the loop, also from within another task; safe to call twice."""
        self._is_closed = True
        unhanded = list(self._ready)
        self._ready.clear()
        self._keeper.drop_all_of(self._owner)
        if unhanded:
            await self._give_back(unhanded)
