"""Those who wait until a replica has applied an entry."""

import asyncio

from penstock.errors import PenstockError


class AppliedWaiters:
    """Futures by the entry that they wait for, the lowest first."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def add(self, index: int) -> "asyncio.Future[None]":
        """Return what is done when the entry at `index` is applied."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((index, waiter))
        self._waiting.sort(key=lambda pair: pair[0])
        return waiter

    def tell(self, applied_index: int) -> None:
        """Entries up to this one are applied."""
        while self._waiting and self._waiting[0][0] <= applied_index:
            waiter = self._waiting.pop(0)[1]
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, error: PenstockError) -> None:
        """Nothing will be applied any more."""
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(error)
        self._waiting.clear()
