"""The log as one replica's core sees it: what is stored, and a tail that is not persisted yet.

Indexes, from old to new:

    ... stored, seen through the LogView ... | tail: given out to be written | tail: not given out
                                  persisted_index                      _given_index      last_index

The tail holds the entries themselves until they are persisted; a leader replicates from there
without reading anything back.

A write is reported as persisted by its mark. Entries may be cut while their write is under way, and
the same index and even the same term may then be written again (A, then B, then A once more). The
report of the first write must not vouch for the last. Marks are therefore numbered in the order of
writing, and after a cut only marks from the write that carries the cut onwards say anything about
entries. Writes are carried out in order, so such a mark vouches for everything before it.
"""

from collections.abc import Sequence

from penstock.ids import EntryIndex, Term
from penstock.raft.effects import HardState, Mark, Write
from penstock.raft.entries import Entry, LogView, Snapshot
from penstock.raft.values import Value


class Stretch(Value, frozen=True):
    """Entries from `start` on, as one append carries them, and what comes before."""

    start: int
    end: int
    prev_index: EntryIndex
    prev_term: Term | None
    entries: Sequence[Entry]
    size_bytes: int


class ReplicaLog:
    """Terms and positions of all entries, and what has to be written next."""

    __slots__ = (
        "_base_term",
        "_given_index",
        "_is_restoring",
        "_sequence",
        "_snapshot",
        "_tail",
        "_truncate_from",
        "_valid_sequence",
        "_view",
        "last_index",
        "last_term",
        "persisted_index",
        "tail_bytes",
        "tail_start",
    )

    def __init__(self, view: LogView) -> None:
        last_term = view.term_at(view.last_index)
        assert last_term is not None, "the term of the last entry is always known"
        self._view = view
        self.last_index: EntryIndex = view.last_index
        self.last_term: Term = last_term
        self.persisted_index: EntryIndex = view.last_index
        self.tail_bytes = 0
        self._tail: list[Entry] = []
        self.tail_start: int = view.last_index + 1
        """Entries from here on are at hand; older ones have to be read from the stored log."""
        self._base_term: Term | None = last_term
        """The term of the entry before the tail: the one that appends ask for most."""
        self._given_index: int = view.last_index
        self._sequence = 0
        self._valid_sequence = 0
        self._truncate_from: int | None = None
        self._snapshot: Snapshot | None = None
        self._is_restoring = False

    @property
    def next_sequence(self) -> int:
        """The number that the next write will have."""
        return self._sequence + 1

    def term_at(self, index: int) -> Term | None:
        """The term of an entry; None when the entry is gone or does not exist."""
        offset = index - self.tail_start
        if offset >= 0:
            return self._tail[offset].term if index <= self.last_index else None
        if offset == -1:
            return self._base_term
        if self._is_restoring:
            # The stored log may still be the one that the snapshot replaces.
            return None
        return self._view.term_at(EntryIndex(index))

    def append(self, entry: Entry) -> None:
        """Add one entry behind the last one."""
        assert entry.index == self.last_index + 1, "a log has no holes"
        self._tail.append(entry)
        self.tail_bytes += entry.size_bytes
        self.last_index = entry.index
        self.last_term = entry.term

    def truncate(self, start: int) -> None:
        """Cut the entry at `start` and all after it."""
        if start <= self._given_index:
            self._given_index = start - 1
            self._valid_sequence = self.next_sequence
            if self._truncate_from is None or start < self._truncate_from:
                self._truncate_from = start
        if start <= self.tail_start:
            self._base_term = self.term_at(start - 1)
            self._tail.clear()
            self.tail_start = start
        else:
            del self._tail[start - self.tail_start :]
        self.persisted_index = min(self.persisted_index, EntryIndex(start - 1))
        self.tail_bytes = sum(entry.size_bytes for entry in self._tail)
        self.last_index = EntryIndex(start - 1)
        last_term = self.term_at(start - 1)
        assert last_term is not None, "the entry before a cut is known to match"
        self.last_term = last_term

    def restore(self, snapshot: Snapshot, commit_index: EntryIndex) -> None:
        """Replace everything by a snapshot.

        Of the old log only the committed part is known to agree with the snapshot, so only that
        part still counts as persisted until the snapshot itself is.
        """
        self.persisted_index = min(self.persisted_index, commit_index)
        self._tail.clear()
        self.tail_start = snapshot.index + 1
        self.tail_bytes = 0
        self._base_term = self.last_term = snapshot.term
        self.last_index = self._given_index = snapshot.index
        self._truncate_from = None
        self._snapshot = snapshot
        self._is_restoring = True
        self._valid_sequence = self.next_sequence

    def take_write(self, hard_state: HardState | None) -> Write | None:
        """Everything that is not given out yet; None when there is nothing to write."""
        if self._given_index < self.last_index:
            entries: Sequence[Entry] = self._tail[self._given_index + 1 - self.tail_start :]
        elif hard_state is None and self._snapshot is None and self._truncate_from is None:
            return None
        else:
            entries = ()
        self._sequence += 1
        self._given_index = self.last_index
        truncate_from = self._truncate_from
        snapshot = self._snapshot
        self._truncate_from = self._snapshot = None
        return Write(
            Mark(self._sequence, self.last_index),
            snapshot,
            None if truncate_from is None else EntryIndex(truncate_from),
            entries,
            hard_state,
        )

    def persist(self, mark: Mark) -> bool:
        """Take note of a persisted write; True when more entries are persisted than before."""
        index = mark.index
        if mark.sequence < self._valid_sequence or index <= self.persisted_index:
            return False
        tail = self._tail
        count = index - self.tail_start + 1
        if count == len(tail):
            self._base_term = self.last_term
            tail.clear()
            self.tail_bytes = 0
            self.tail_start = index + 1
        elif count > 0:
            self._base_term = tail[count - 1].term
            self.tail_bytes -= sum(entry.size_bytes for entry in tail[:count])
            del tail[:count]
            self.tail_start = index + 1
        self.persisted_index = index
        self._is_restoring = False
        return True

    def stretch_from(self, start: int, bytes_max: int) -> Stretch:
        """Entries of the tail from `start` on: at least one, then up to a limit of bytes."""
        position = start - self.tail_start
        prev_term = self._tail[position - 1].term if position else self._base_term
        entries = self._tail[position:]
        size_bytes = entries[0].size_bytes
        if len(entries) > 1:
            for count in range(1, len(entries)):
                grown_bytes = size_bytes + entries[count].size_bytes
                if grown_bytes > bytes_max:
                    del entries[count:]
                    break
                size_bytes = grown_bytes
        end = start + len(entries)
        return Stretch(start, end, EntryIndex(start - 1), prev_term, entries, size_bytes)

    def stored_end(self, start: int, bytes_max: int) -> EntryIndex:
        """Where a run of stored entries from `start` on ends, within a limit of bytes."""
        end = EntryIndex(self.tail_start)
        return self._view.end_within(EntryIndex(start), end, bytes_max)

    def snapshot(self) -> Snapshot | None:
        """What the stored log offers to followers that are too far behind."""
        return self._view.snapshot()

    def newest_common(self, index: int, term: int, floor: int) -> tuple[EntryIndex, Term]:
        """The newest entry in [floor, index] whose term is at most `term`, and its term.

        If the other log holds an entry of `term` at `index`, no entry above the answer can be
        common to both logs: terms never fall along a log (section 5.3).
        """
        low, high = floor, max(floor, index)
        while low < high:
            middle = (low + high + 1) // 2
            found = self.term_at(middle)
            if found is None or found <= term:
                low = middle
            else:
                high = middle - 1
        return EntryIndex(low), self.term_at(low) or Term(0)
