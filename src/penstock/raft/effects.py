"""What the core asks its caller to do.

`RaftNode.ready()` gives one bundle. The caller carries it out in this order, in which the first two
may change places, and may take the next bundle before the writes of this one are persisted:

1. `write`: install the snapshot, cut the log, append the entries, save the hard state. When all of
   it and all earlier writes would survive a crash, hand `write.mark` to `RaftNode.persisted()`.
   Writes are carried out in the order in which they were given out.
2. `messages` and `replications`: send. Nothing in them reveals state that is not persisted; what
   has to wait for a write stays inside the core until that write's mark is back.
3. `apply_start`, `apply_end`: apply the entries of this range, at once or later but in order, then
   call `RaftNode.applied()`.
4. The rest: answer reads, fetch a snapshot, take note of a new leader.
"""

from collections.abc import Sequence
from enum import IntEnum

from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft.entries import Entry, Snapshot
from penstock.raft.messages import InstallSnapshot, Message, Replicate
from penstock.raft.values import Value


class Role(IntEnum):
    """What a replica is doing. A learner is a follower that does not campaign."""

    FOLLOWER = 0
    TRIAL_CANDIDATE = 1
    """Asks whether it would win, before it disturbs anyone with a new term."""
    CANDIDATE = 2
    LEADER = 3


class HardState(Value, frozen=True):
    """What must survive a crash beside the log.

    `term` and `vote` are exact. `commit` is a lower bound: saving a newer one is allowed at any
    time and never required.
    """

    term: Term
    vote: NodeId | None
    commit: EntryIndex


class Mark(Value, frozen=True):
    """Names a write when it comes back as persisted. Only the core looks inside."""

    sequence: int
    index: EntryIndex


class Write(Value, frozen=True):
    """Everything that one bundle wants on disk, in the order in which it is carried out."""

    mark: Mark
    snapshot: Snapshot | None
    """Replace the whole log by this fetched snapshot."""
    truncate_from: EntryIndex | None
    """Cut this entry and all after it."""
    entries: Sequence[Entry]
    """Append these."""
    hard_state: HardState | None
    """Save this. It may be persisted before the entries, never after the mark is reported."""


class ReadState(Value, frozen=True):
    """The read `context` may be served now from what is applied up to `index`."""

    context: int
    index: EntryIndex


class Rest(Value, frozen=True):
    """What the members of a resting group agree on: their leader's term and its last entry."""

    term: Term
    index: EntryIndex


class Leadership(Value, frozen=True):
    """Who leads, as far as this replica knows."""

    role: Role
    term: Term
    leader: NodeId | None


class Effects(Value, frozen=True):
    """One bundle; see the module's account for the order of carrying it out."""

    write: Write | None
    messages: Sequence[Message]
    commit_index: EntryIndex
    """Entries up to here are persisted on a majority and may be acknowledged to producers."""
    apply_start: int
    apply_end: int
    """Committed entries to apply, half open. All of them are persisted here, too."""
    has_more: bool = False
    """Whether any field below is set, or another bundle may follow when this is carried out.

    Reads may become ready when entries are applied, and learners get one message with each bundle.
    Everything else waits for something new to happen.
    """
    replications: Sequence[Replicate] = ()
    reads: Sequence[ReadState] = ()
    reads_refused: Sequence[int] = ()
    """Contexts of reads that this replica can no longer answer: ask again."""
    snapshot_wanted: InstallSnapshot | None = None
    """Fetch this aside, then call `snapshot_fetched` or `snapshot_failed`.

    One of the two must follow, because until then no other offer of this leader is taken. A newer
    one replaces it: the older fetch may be given up.
    """
    leadership: Leadership | None = None
    """Set when role, term or leader changed."""
