"""What waits to become an entry of a log, and who waits for it."""

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError
from penstock.ids import EntryIndex, Offset
from penstock.record import RecordBatch


class Proposal:
    """What somebody wants to append, and where it went once it is an entry."""

    __slots__ = (
        "batch",
        "index",
        "may_share",
        "offset",
        "on_committed",
        "payload",
        "size_bytes",
        "waiter",
        "waits_for_commit",
    )

    def __init__(
        self,
        waiter: asyncio.Future[Any],
        batch: RecordBatch | None,
        payload: bytes,
        *,
        waits_for_commit: bool,
    ) -> None:
        self.waiter = waiter
        self.batch = batch
        self.payload = payload
        self.size_bytes = len(payload) if batch is None else len(batch.data)
        """What it adds to the log."""
        self.waits_for_commit = waits_for_commit
        # Whether its entry may hold other states, too.
        self.may_share = False
        # Called in the same turn of the loop in which the waiter gets its result.
        self.on_committed: Callable[[], None] | None = None
        self.index = EntryIndex(-1)
        self.offset = Offset(-1)

    def succeed(self, result: Any) -> None:
        """Answer whoever still waits."""
        if not self.waiter.done():
            self.waiter.set_result(result)

    def settle(self, result: Any) -> None:
        """Answer whoever still waits with a result, or refuse with the error that it is."""
        if isinstance(result, PenstockError):
            self.fail(result)
        else:
            self.succeed(result)

    def fail(self, error: PenstockError) -> None:
        """Refuse whoever still waits."""
        if not self.waiter.done():
            call = self.on_committed
            if call is not None:
                self.waiter.add_done_callback(lambda _: call())
            self.waiter.set_exception(error)
