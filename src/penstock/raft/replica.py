"""What a replica is in every role: its term, its vote, its log, and what it has to say.

The rules of each role stand in a module of their own and are stacked into one class: `Replica`
(shared), `FollowerRules`, `LeaderRules`, `ElectionRules`, `RestRules`, and on top `RaftNode`, the
front door.
Small methods with one decision each (`_holds_back`, `_grants_vote`, `_may_commit_by_counting`, ...)
are where the safety of the algorithm lies; tests override them one at a time to show that the loss
is noticed.

A message is held back while the term or the vote in memory is newer than the persisted one, so no
message reveals what a crash could take back (section 5.1: term and vote are updated on stable
storage before responding). Any message may be lost, so of more than `HELD_MAX` the oldest go.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft.effects import HardState, Leadership, ReadState, Rest, Role
from penstock.raft.entries import Entry, EntryKind, LogView
from penstock.raft.membership import Member, Membership, MembershipHistory
from penstock.raft.messages import InstallSnapshot, Message, Replicate
from penstock.raft.replica_log import ReplicaLog
from penstock.raft.settings import RaftSettings

HELD_MAX = 1_000
_START = EntryIndex(0)
# Looking a member up in its enum costs as much as a call, and this one is asked for at every entry.
_MEMBERSHIP: Final = EntryKind.MEMBERSHIP
_NEW = HardState(Term(0), None, _START)
_NO_DOUBT = (Term(0), _START)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a replica knows when it starts.

    `memberships` are pairs of entry index and membership: the one in force where the stored log
    begins (index 0 for the first of a new group) and every one in the log after it. A replica
    that starts with none belongs to no group: it stores what a leader sends, and neither votes
    nor campaigns until an entry admits its incarnation.

    The first membership of a new group names the incarnations of all its members, so they have to
    ask each other before the group begins. A node that composed it from a configured list alone
    would, after losing its disk, found the group a second time and vote in terms it voted in
    before.

    `doubt` is the term and index of the last entry that the replica may have stored and lost since.
    """

    hard_state: HardState = _NEW
    memberships: tuple[tuple[EntryIndex, Membership], ...] = ()
    applied: EntryIndex = _START
    doubt: tuple[Term, EntryIndex] = _NO_DOUBT


class Replica:
    """State and rules that do not depend on the role."""

    __slots__ = (
        "_applied",
        "_apply_given",
        "_doubt",
        "_durable_sequence",
        "_elapsed",
        "_hard_sequence",
        "_held",
        "_is_hard_changed",
        "_leadership",
        "_log",
        "_memberships",
        "_messages",
        "_node",
        "_randrange",
        "_reads",
        "_reads_refused",
        "_replications",
        "_reported_commit",
        "_settings",
        "_snapshot_wanted",
        "_timeout",
        "commit_index",
        "leader",
        "member",
        "rest",
        "role",
        "term",
        "vote",
    )

    def __init__(
        self,
        *,
        member: Member,
        log: LogView,
        recovered: Recovered,
        settings: RaftSettings,
        randrange: Callable[[int], int],
    ) -> None:
        hard_state = recovered.hard_state
        self._node = member.node
        self._settings = settings
        self._randrange = randrange
        self._log = ReplicaLog(log)
        self._memberships = MembershipHistory(recovered.memberships)
        self.member = member
        self.role = Role.FOLLOWER
        self.term: Term = hard_state.term
        self.vote: NodeId | None = hard_state.vote
        self.leader: NodeId | None = None
        if self._log.last_term > self.term:
            # Entries were persisted and the hard state of the same write was not. Nobody was told
            # of that term by this replica, so it has not voted in it.
            self.term, self.vote = self._log.last_term, None
        self._doubt = recovered.doubt
        self.commit_index: EntryIndex = min(
            max(hard_state.commit, recovered.applied), self._log.last_index
        )
        self._memberships.commit(self.commit_index)
        self._applied: int = recovered.applied
        self._apply_given = recovered.applied
        self._reported_commit = self.commit_index
        self._is_hard_changed = False
        self._hard_sequence = 0
        self._durable_sequence = 0
        self._held: deque[tuple[int, Message]] = deque(maxlen=HELD_MAX)
        self._messages: list[Message] = []
        self._replications: list[Replicate] = []
        self._reads: list[ReadState] = []
        self._reads_refused: list[int] = []
        self._snapshot_wanted: InstallSnapshot | None = None
        self._leadership: Leadership | None = None
        self._elapsed = 0
        self._timeout = self._new_timeout()
        self.rest: Rest | None = None
        """What this replica rests on; None while it is awake. See `resting`."""
        self._prepare()

    def _prepare(self) -> None:
        """Set up what the role rules keep; each layer adds its own."""

    @property
    def membership(self) -> Membership:
        """The members in force, committed or not."""
        return self._memberships.current

    @property
    def membership_index(self) -> EntryIndex:
        """The entry that put them in force; 0 for the first members, whom no entry names."""
        return self._memberships.index

    @property
    def last_index(self) -> EntryIndex:
        """The newest entry, persisted or not."""
        return self._log.last_index

    @property
    def persisted_index(self) -> EntryIndex:
        """The newest entry that is persisted here."""
        return self._log.persisted_index

    def leads(self, term: Term) -> bool:
        """Whether this replica is the leader of `term` right now."""
        return self.role is Role.LEADER and self.term == term

    # Term, vote and role.

    def _follow(self, term: Term, leader: NodeId | None) -> None:
        """Be a follower in `term`; `leader` is None while it is not known."""
        if term > self.term:
            self.term = term
            self.vote = None
            self._is_hard_changed = True
        self._leave_role()
        self._elapsed = 0
        self._timeout = self._new_timeout()
        self._set_role(Role.FOLLOWER, leader)

    def _leave_role(self) -> None:
        """Drop what belongs to the old role; each layer of rules adds its own."""
        self.rest = None

    def _set_role(self, role: Role, leader: NodeId | None) -> None:
        self.role = role
        self.leader = leader
        self._leadership = Leadership(role, self.term, leader)

    def _new_timeout(self) -> int:
        return self._settings.election_ticks + self._randrange(self._settings.election_ticks)

    def _may_vote(self) -> bool:
        """Whether a group has admitted this incarnation, so that its memory is whole.

        A learner may vote: it may be a voter by an entry that it has not received yet, and the
        candidate counts the vote only if so.
        """
        return self._memberships.is_member(self.member)

    def _may_campaign(self) -> bool:
        return self._memberships.is_voter(self.member) and not self._is_in_doubt()

    def _is_in_doubt(self) -> bool:
        """Whether this replica may have acknowledged more than it holds, and others may hold it."""
        own = (self._log.last_term, self._log.last_index)
        return own < self._doubt and self._memberships.current.voters != (self.member,)

    def _end_doubt(self) -> None:
        """Take what was lost for a write that was never acknowledged."""
        self._doubt = _NO_DOUBT

    # Messages.

    def _send(self, message: Message) -> None:
        if self._holds_back():
            sequence = self._log.next_sequence if self._is_hard_changed else self._hard_sequence
            self._held.append((sequence, message))
        else:
            self._messages.append(message)

    def _holds_back(self) -> bool:
        """Whether term or vote are newer in memory than on disk."""
        return self._is_hard_changed or self._hard_sequence > self._durable_sequence

    def _release(self, sequence: int) -> None:
        """All writes up to `sequence` are persisted."""
        self._durable_sequence = max(self._durable_sequence, sequence)
        held = self._held
        while held and held[0][0] <= self._durable_sequence:
            self._messages.append(held.popleft()[1])

    def _changed_hard_state(self) -> HardState:
        """The hard state to write with the next bundle, after term or vote changed."""
        self._is_hard_changed = False
        self._hard_sequence = self._log.next_sequence
        return HardState(self.term, self.vote, self.commit_index)

    # Log and commit.

    def _append(self, entry: Entry) -> None:
        self._log.append(entry)
        if entry.kind is _MEMBERSHIP:
            self._memberships.append(entry.index, Membership.decode(entry.payload))
            self._membership_changed()

    def _membership_changed(self) -> None:
        """The membership in force is another one; the leader's rules act on it."""

    def _commit(self, index: EntryIndex) -> None:
        """Everything up to `index` is committed: it will never change."""
        assert index <= self._log.last_index, "a replica commits only what it holds"
        if index > self.commit_index:
            self.commit_index = index
            self._memberships.commit(index)

    # Reads.

    def _take_reads(self) -> list[ReadState]:
        """Confirmed reads whose index is applied, out of those that wait for it."""
        ready = [read for read in self._reads if read.index <= self._applied]
        if ready:
            self._reads = [read for read in self._reads if read.index > self._applied]
        return ready
