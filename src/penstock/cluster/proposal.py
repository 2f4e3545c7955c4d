"""What waits to become an entry of a log, and who waits for it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.ids import EntryIndex, Offset
from penstock.record import RecordBatch


class Proposal(msgspec.Struct, eq=False):
    """What somebody wants to append, and where it went once it is an entry."""

    waiter: asyncio.Future[Any]
    batch: RecordBatch | None
    payload: bytes
    size_bytes: int
    """What it adds to the log."""
    waits_for_commit: bool = True
    may_share: bool = False
    """Whether its entry may hold other states, too."""
    on_committed: Callable[[], None] | None = None
    """Called in the same turn of the loop in which the waiter gets its result."""
    index: EntryIndex = EntryIndex(-1)
    offset: Offset = Offset(-1)
    sharing: "Sequence[Proposal]" = ()
    """All whose states are in its entry, on the first of them; none when it has one for itself."""

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
