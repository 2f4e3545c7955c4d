"""What a log is a log of: the state that its committed entries build."""

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.ids import EntryIndex, Offset
from penstock.log import StateEntry
from penstock.record import BatchHeader, Buffer


class Machine(Protocol):
    """State that is rebuilt by applying committed entries in order.

    The same entries give the same state on every node and after every restart.
    """

    @property
    def start_offset(self) -> Offset:
        """Records below are not wanted any more."""

    @property
    def remembered(self) -> frozenset[int]:
        """First offsets of batches whose headers the state was built from and still holds."""

    def archived_offset(self, archive: str) -> Offset:
        """Records below are kept in this archive, too."""

    def apply_records(self, header: BatchHeader, offset: Offset, batch: Buffer) -> None:
        """Take note of a committed batch of records at `offset`; `batch` is all of its bytes.

        The header may have been read before the batch got its offset.
        """

    def apply_state(self, entry: StateEntry) -> Any:
        """Apply a committed state entry; the result goes to the one who proposed it.

        A `PenstockError` may be raised, always under the same conditions; it goes there too. For a
        bundle the result is a list, which holds such errors in place of results.
        """

    def bundle(self, payloads: Sequence[bytes]) -> bytes:
        """Return one state entry in place of several that may share one."""

    def snapshot(self) -> bytes:
        """Return the whole state."""

    def restore(self, payload: Buffer, index: EntryIndex) -> None:
        """Replace the state by that of a snapshot."""


class RecordlessMachine:
    """What a machine says about records when its log holds state entries alone."""

    @property
    def start_offset(self) -> Offset:
        """There are no records."""
        return Offset(0)

    @property
    def remembered(self) -> frozenset[int]:
        """Nor any batches to remember."""
        return frozenset()

    def archived_offset(self, archive: str) -> Offset:
        """Nor any to archive."""
        del archive
        return Offset(0)

    def apply_records(self, header: BatchHeader, offset: Offset, batch: Buffer) -> None:
        """Nor do any come."""
        size_bytes, name = len(batch), type(self).__name__
        raise AssertionError(f"{size_bytes} bytes of records at {offset} of {name}: {header}")

    def bundle(self, payloads: Sequence[bytes]) -> bytes:
        """Nor do states share entries."""
        raise AssertionError(f"{len(payloads)} states of {type(self).__name__} share an entry")


class EntryReader(Protocol):
    """Reads entries again after they were applied, so they cannot be deleted at will."""

    @property
    def first_index(self) -> int | None:
        """The oldest entry that is still read."""

    async def restage_below(self, index: int) -> None:
        """Do without the entries before `index`, where this node can bring that about."""

    async def entries_removed(self) -> None:
        """Old entries are gone: forget what is known about their records."""
