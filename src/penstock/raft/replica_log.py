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

from penstock.ids import EntryIndex, Term
from penstock.raft.effects import HardState, Mark, Write
from penstock.raft.entries import Entry, LogView, Snapshot

# What an append carries: index and term of the entry before, entries, their size in bytes.
Stretch = tuple[EntryIndex, Term, list[Entry], int]


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
        "base_index",
        "has_write",
        "last_index",
        "last_term",
        "persisted_index",
        "tail_bytes",
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
        self.base_index: EntryIndex = view.last_index
        """The entry before the tail: up to here entries have to be read from the stored log."""
        self._base_term: Term = last_term
        """Its term: the one that appends ask for most."""
        self._given_index: int = view.last_index
        self._sequence = 0
        self._valid_sequence = 0
        self._truncate_from: EntryIndex | None = None
        self._snapshot: Snapshot | None = None
        self._is_restoring = False
        self.has_write = False
        """Whether entries, a cut or a snapshot wait to be given out."""

    @property
    def next_sequence(self) -> int:
        """The number that the next write will have."""
        return self._sequence + 1

    def term_at(self, index: int) -> Term | None:
        """The term of an entry; None when the entry is gone or does not exist."""
        offset = index - self.base_index
        if offset == 0:
            return self._base_term
        if offset > 0:
            return self._tail[offset - 1].term if index <= self.last_index else None
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
        self.has_write = True

    def truncate(self, start: int) -> None:
        """Cut the entry at `start` and all after it."""
        if start <= self._given_index:
            self._given_index = start - 1
            self._valid_sequence = self.next_sequence
            if self._truncate_from is None or start < self._truncate_from:
                self._truncate_from = EntryIndex(start)
        last_term = self.term_at(start - 1)
        assert last_term is not None, "the entry before a cut is known to match"
        self.last_index = EntryIndex(start - 1)
        self.last_term = last_term
        if self.last_index <= self.base_index:
            self.base_index, self._base_term = self.last_index, last_term
            self._tail.clear()
        else:
            del self._tail[self.last_index - self.base_index :]
        self.persisted_index = min(self.persisted_index, self.last_index)
        self.tail_bytes = sum(entry.size_bytes for entry in self._tail)
        self.has_write = (
            self._given_index < self.last_index
            or self._truncate_from is not None
            or self._snapshot is not None
        )

    def restore(self, snapshot: Snapshot, commit_index: EntryIndex) -> None:
        """Replace everything by a snapshot.

        Of the old log only the committed part is known to agree with the snapshot, so only that
        part still counts as persisted until the snapshot itself is.
        """
        self.persisted_index = min(self.persisted_index, commit_index)
        self._tail.clear()
        self.tail_bytes = 0
        self._base_term = self.last_term = snapshot.term
        self.last_index = self.base_index = self._given_index = snapshot.index
        self._truncate_from = None
        self._snapshot = snapshot
        self._is_restoring = True
        self._valid_sequence = self.next_sequence
        self.has_write = True

    def take_write(self, hard_state: HardState | None) -> Write:
        """Everything that is not given out yet, if only a hard state."""
        self._sequence += 1
        write = Write(
            Mark(self._sequence, self.last_index),
            self._snapshot,
            self._truncate_from,
            self._tail[self._given_index - self.base_index :],
            hard_state,
        )
        self._given_index = self.last_index
        self._truncate_from = self._snapshot = None
        self.has_write = False
        return write

    def persist(self, mark: Mark) -> bool:
        """Take note of a persisted write; True when more entries are persisted than before."""
        index = mark.index
        if mark.sequence < self._valid_sequence or index <= self.persisted_index:
            return False
        tail = self._tail
        count = index - self.base_index
        if count == len(tail):
            self._base_term = self.last_term
            tail.clear()
            self.tail_bytes = 0
            self.base_index = index
        elif count > 0:
            self._base_term = tail[count - 1].term
            self.tail_bytes -= sum(entry.size_bytes for entry in tail[:count])
            del tail[:count]
            self.base_index = index
        self.persisted_index = index
        self._is_restoring = False
        return True

    def stretch_from(self, start: int, bytes_max: int) -> Stretch:
        """Entries of the tail from `start` on: at least one, then up to a limit of bytes."""
        position = start - self.base_index - 1
        if position:
            previous = self._tail[position - 1]
            prev_index, prev_term = previous.index, previous.term
            entries = self._tail[position:]
        else:
            prev_index, prev_term = self.base_index, self._base_term
            entries = self._tail.copy()
        size_bytes = entries[0].size_bytes
        if len(entries) > 1:
            for count in range(1, len(entries)):
                grown_bytes = size_bytes + entries[count].size_bytes
                if grown_bytes > bytes_max:
                    del entries[count:]
                    break
                size_bytes = grown_bytes
        return prev_index, prev_term, entries, size_bytes

    def stored_end(self, start: int, bytes_max: int) -> EntryIndex:
        """Where a run of stored entries from `start` on ends, within a limit of bytes."""
        end = EntryIndex(self.base_index + 1)
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
