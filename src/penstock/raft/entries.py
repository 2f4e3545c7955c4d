"""Log entries, and the window through which the core looks at the stored log.

The log itself lies outside this room. The core holds an entry only from the moment it is appended
until the moment it is reported as persisted; for everything older it asks a `LogView`.
"""

from enum import IntEnum
from typing import Protocol

from penstock.ids import EntryIndex, Term
from penstock.raft.membership import Membership
from penstock.raft.values import Value

Payload = bytes | bytearray | memoryview


class EntryKind(IntEnum):
    """What an entry holds. The core looks inside a MEMBERSHIP entry and no other."""

    NOOP = 0
    """Opens a leader's term, so that entries of earlier terms can be committed."""
    MEMBERSHIP = 1
    """The members of the group from this entry on."""
    RECORDS = 2
    """One batch of records."""
    STATE = 3
    """A change of replicated state that is not a batch of records."""


class Entry(Value, frozen=True):
    """One entry of the log; `payload` is passed along by reference and never copied."""

    index: EntryIndex
    term: Term
    kind: EntryKind
    size_bytes: int
    payload: Payload


class Snapshot(Value, frozen=True):
    """Stands for all entries up to `index`; the bulk of its data travels outside this room."""

    index: EntryIndex
    term: Term
    membership: Membership


class LogView(Protocol):
    """The stored log, as far as the core needs to see it.

    It must show every entry reported as persisted; it may show entries that are written and not
    yet persisted. Of indexes that the core has asked to cut and not yet heard of again, it may
    show anything. Calls are cheap: no waiting for a disk.
    """

    @property
    def first_index(self) -> EntryIndex:
        """The oldest entry that can still be read; `last_index` + 1 when there is none."""
        ...

    @property
    def last_index(self) -> EntryIndex:
        """The newest entry; 0 for a log that never held one."""
        ...

    def term_at(self, index: EntryIndex) -> Term | None:
        """The term of an entry, or None when it cannot be known any more.

        It is known from `first_index` - 1 (or the snapshot's index) to `last_index`; the term at
        index 0 is 0.
        """
        ...

    def end_within(self, start: EntryIndex, end: EntryIndex, bytes_max: int) -> EntryIndex:
        """The largest `e` <= `end` such that entries [start, e) hold at most `bytes_max` bytes.

        Always greater than `start`: an entry larger than the limit travels alone.
        """
        ...

    def snapshot(self) -> Snapshot | None:
        """What a follower can be given in place of entries that are gone; None while making it."""
        ...
