"""What replicas of one group say to each other.

Every message names its sender, its receiver and a term. Messages may be lost, repeated, delayed and
reordered. Answers that count towards a majority carry the sender's incarnation, because a node that
lost its memory must not speak for its former self.

`Append` is complete and ready for the wire. `Replicate` is what the leader's core gives out for
entries that it no longer holds: the caller reads them from the log and turns it into an `Append`.
"""

from collections.abc import Sequence

from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft.entries import Entry, Snapshot
from penstock.raft.membership import Incarnation
from penstock.raft.values import Value


class VoteRequest(Value, frozen=True):
    """A candidate asks for a vote, and shows how far its log goes.

    With `is_trial` it asks whether it would get one (thesis 9.6); `term` is then the term that it
    would campaign in, and nobody changes its state. With `is_transfer` the old leader wants this
    election, so voters do not protect that leader.
    """

    sender: NodeId
    to: NodeId
    term: Term
    last_index: EntryIndex
    last_term: Term
    is_trial: bool
    is_transfer: bool


class VoteResponse(Value, frozen=True):
    """Grants or refuses. A grant in a trial repeats the requested term; all else the voter's."""

    sender: NodeId
    to: NodeId
    term: Term
    is_granted: bool
    is_trial: bool
    incarnation: Incarnation


class Append(Value, frozen=True):
    """Entries that follow the one at `prev_index`, and how far the leader has committed."""

    sender: NodeId
    to: NodeId
    term: Term
    prev_index: EntryIndex
    prev_term: Term
    commit: EntryIndex
    entries: Sequence[Entry]


class AppendResponse(Value, frozen=True):
    """Accepted: all entries up to `index` equal the leader's and are persisted.

    Refused: the sender does not hold the leader's entry at `index`. The hint is the newest entry
    that may be common to both logs (section 5.3): an index and its term.
    """

    sender: NodeId
    to: NodeId
    term: Term
    index: EntryIndex
    is_refused: bool
    hint_index: EntryIndex
    hint_term: Term
    incarnation: Incarnation


class Heartbeat(Value, frozen=True):
    """The leader lives, and has committed up to `commit`.

    `round` is repeated in the answer; answers to a round prove that no newer leader had been
    elected by a majority when the round began.
    """

    sender: NodeId
    to: NodeId
    term: Term
    commit: EntryIndex
    round: int


class HeartbeatResponse(Value, frozen=True):
    """The sender still follows the leader of this term.

    `index` means the same as in an accepting `AppendResponse`, so a lost one is made good; it is 0
    while the sender has not compared its log with this leader's.
    """

    sender: NodeId
    to: NodeId
    term: Term
    round: int
    index: EntryIndex
    incarnation: Incarnation


class InstallSnapshot(Value, frozen=True):
    """The receiver needs entries that are gone; it shall fetch this snapshot from the sender."""

    sender: NodeId
    to: NodeId
    term: Term
    snapshot: Snapshot


class TimeoutNow(Value, frozen=True):
    """The leader asks the receiver to campaign at once and take over (thesis 3.10)."""

    sender: NodeId
    to: NodeId
    term: Term


class ReadRequest(Value, frozen=True):
    """A follower asks the leader how far it must have applied to serve a current read."""

    sender: NodeId
    to: NodeId
    term: Term
    context: int


class ReadResponse(Value, frozen=True):
    """The answer to the read `context`: serve it once `index` is applied."""

    sender: NodeId
    to: NodeId
    term: Term
    context: int
    index: EntryIndex


Message = (
    Append
    | AppendResponse
    | Heartbeat
    | HeartbeatResponse
    | VoteRequest
    | VoteResponse
    | InstallSnapshot
    | TimeoutNow
    | ReadRequest
    | ReadResponse
)


class Replicate(Value, frozen=True):
    """An append whose entries [prev_index + 1, end) must be read from the log first.

    A leader never cuts its own log, so the range stands as long as the node leads in `term`. Once
    it does not, the range may hold other entries and the message must be dropped: ask
    `RaftNode.leads(term)` after reading and before sending. Dropping is always safe, also when
    the entries have been compacted away meanwhile.
    """

    sender: NodeId
    to: NodeId
    term: Term
    prev_index: EntryIndex
    prev_term: Term
    commit: EntryIndex
    end: EntryIndex

    def with_entries(self, entries: Sequence[Entry]) -> Append:
        """The message to send, once the entries are read."""
        assert len(entries) == self.end - self.prev_index - 1, "the range is sent as a whole"
        return Append(
            self.sender,
            self.to,
            self.term,
            self.prev_index,
            self.prev_term,
            self.commit,
            entries,
        )
