"""The stored log as consensus looks at it."""

from collections.abc import Callable

from penstock.ids import EntryIndex, Term
from penstock.log import PartitionLog
from penstock.raft import Snapshot


class StoredLog:
    """Shows rows of the index; nothing here waits for a disk."""

    def __init__(self, log: PartitionLog, snapshot: Callable[[], Snapshot | None]) -> None:
        self._log = log
        self._snapshot = snapshot

    @property
    def first_index(self) -> EntryIndex:
        """The oldest entry that can still be read."""
        return self._log.first_index

    @property
    def last_index(self) -> EntryIndex:
        """The newest entry that is appended."""
        return EntryIndex(self._log.next_index - 1)

    def term_at(self, index: EntryIndex) -> Term | None:
        """The term of an entry, or None when it cannot be known any more."""
        if not self._log.first_index - 1 <= index < self._log.next_index:
            return None
        return self._log.term_at(index)

    def end_within(self, start: EntryIndex, end: EntryIndex, bytes_max: int) -> EntryIndex:
        """The end of a run of entries from `start` that hold at most `bytes_max` bytes."""
        size_bytes = 0
        index = int(start)
        while index < end:
            size_bytes += self._log.row_at(index).size
            if size_bytes > bytes_max and index > start:
                break
            index += 1
        return EntryIndex(index)

    def snapshot(self) -> Snapshot | None:
        """What a follower can be given in place of entries that are gone."""
        return self._snapshot()
