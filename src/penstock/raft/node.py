"""The front door of the core: what goes in, and the one bundle that comes out.

Terms order everything (section 5.1). A message of a newer term makes this replica a follower in
that term, with two exceptions: a trial changes nothing, and a vote request is ignored while a
leader is being heard from. A message of an older term is answered with the newer one where the
sender needs to know, and otherwise dropped.
"""

from typing import Final

from penstock.errors import Conflict, InvalidRequest, NotLeader, Unavailable
from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft.effects import Effects, Mark, Role
from penstock.raft.entries import Entry, EntryKind, Payload
from penstock.raft.membership import Member, Membership
from penstock.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.progress import ProgressState
from penstock.raft.resting import RestRules
from penstock.raft.values import Value

# Looking a member up in its enum costs as much as a call, and this one is asked for at every step.
_LEADER: Final = Role.LEADER


class FollowerStatus(Value, frozen=True):
    """How far the leader knows one member to be."""

    node: NodeId
    is_voter: bool
    is_active: bool
    match: EntryIndex
    state: ProgressState


class RaftNode(RestRules):
    """One replica of one group.

    Feed it with `step`, `tick`, `propose` and the others, then take bundles from `ready` until it
    gives None or one says that no more will follow. It never waits, reads no clock and touches no
    disk: the same inputs give the same outputs. One task owns it.
    """

    __slots__ = ()

    # Events.

    def tick(self) -> None:
        """Let one tick of time pass; for a replica that rests it does not."""
        if self.rest is not None:
            return
        if self.role is _LEADER:
            self._tick_leader()
        else:
            self._tick_election()

    def step(self, message: Message) -> None:
        """Take in one message of a peer."""
        if self.rest is not None:
            if not self._stirs(message):
                return
            self.wake()
        if message.term != self.term and not self._admit(message):
            return
        if isinstance(message, AppendResponse):
            self._on_append_response(message)
        elif isinstance(message, Append):
            self._on_append(message)
        elif isinstance(message, Heartbeat):
            self._on_heartbeat(message)
        elif isinstance(message, HeartbeatResponse):
            self._on_heartbeat_response(message)
        else:
            self._step_rare(message)

    def _step_rare(
        self,
        message: VoteRequest
        | VoteResponse
        | InstallSnapshot
        | TimeoutNow
        | ReadRequest
        | ReadResponse,
    ) -> None:
        match message:
            case VoteRequest():
                self._on_vote_request(message)
            case VoteResponse():
                self._on_vote_response(message)
            case InstallSnapshot():
                self._on_install_snapshot(message)
            case TimeoutNow():
                self._on_timeout_now(message)
            case ReadRequest():
                self._on_read_request(message)
            case ReadResponse():
                self._on_read_response(message)

    def _admit(self, message: Message) -> bool:
        """Settle a difference in term; False when the message needs nothing more."""
        if message.term < self.term:
            self._answer_stale(message)
            return False
        if isinstance(message, VoteRequest):
            if self._protects_leader(message):
                return False
            if message.is_trial:
                return True
        if isinstance(message, VoteResponse) and message.is_trial and message.is_granted:
            # The answer repeats the term that this replica asked for; it is not in it yet.
            return message.term == self.term + 1
        is_from_leader = isinstance(message, Append | Heartbeat | InstallSnapshot)
        self._follow(message.term, message.sender if is_from_leader else None)
        return True

    def _answer_stale(self, message: Message) -> None:
        """Tell a deposed leader or a late candidate which term it is."""
        if isinstance(message, VoteRequest):
            self._answer_vote(message, self.term, is_granted=False)
        elif isinstance(message, Append | Heartbeat | InstallSnapshot):
            self._send(
                AppendResponse(
                    self._node,
                    message.sender,
                    self.term,
                    EntryIndex(0),
                    True,
                    EntryIndex(0),
                    Term(0),
                    self.member.incarnation,
                )
            )

    def persisted(self, mark: Mark) -> None:
        """The write with this mark, and all before it, would survive a crash.

        Marks may be skipped: a later one stands for all earlier ones.
        """
        if self._hard_sequence > self._durable_sequence:
            self.hard_state_persisted(mark)
        elif mark.sequence > self._durable_sequence:
            self._durable_sequence = mark.sequence
        if self._log.persist(mark):
            if self.role is _LEADER:
                if self._log.persisted_index > self.commit_index:
                    self._count()
            else:
                self._acknowledge()

    def hard_state_persisted(self, mark: Mark) -> None:
        """Term and vote of the write with this mark would survive a crash; its entries may not."""
        if self._hard_sequence > self._durable_sequence:
            self._release(mark.sequence)
            if not self._holds_back():
                self._vote_persisted()

    def applied(self, index: EntryIndex) -> None:
        """Entries up to `index` are applied; reads that waited for them may be served."""
        assert index <= self._apply_given, f"entry {index} was not given out to be applied"
        if index > self._applied:
            self._applied = index

    def unreachable(self, node: NodeId) -> None:
        """The link to a member broke: what is under way to it may be lost.

        A process that ends breaks its links, so a follower does not wait for the rest of its
        timeout to ask the others whether they have lost the leader, too.
        """
        progress = self._progress.get(node)
        if progress is not None:
            self.wake()
            if progress.state is ProgressState.REPLICATE:
                progress.probe(progress.match + 1)
        elif self.role is Role.FOLLOWER and self.leader == node:
            self.wake()
            self._hasten_election()

    def hold(self, node: NodeId) -> None:
        """Send a learner no more entries, until `release`."""
        progress = self._progress.get(node)
        if progress is not None and not progress.is_voter:
            progress.hold()

    def release(self, node: NodeId) -> None:
        """Go on sending to a learner."""
        progress = self._progress.get(node)
        if progress is not None:
            progress.release()

    # Requests.

    def propose(self, kind: EntryKind, payload: Payload) -> EntryIndex:
        """Append one entry to the leader's log and return its index.

        The entry is neither persisted nor committed yet. It is lost if another leader takes over
        before it is on a majority, so answer nobody before `Effects.commit_index` reaches it.
        """
        if self.role is not _LEADER or self._transferee is not None:
            raise self._not_leading()
        if self.rest is not None:
            self.wake()
        log = self._log
        size_bytes = len(payload)
        if log.tail_bytes and log.tail_bytes + size_bytes > self._settings.tail_bytes_max:
            raise Unavailable(f"{log.tail_bytes} bytes wait to be persisted")
        index = EntryIndex(log.last_index + 1)
        log.append(Entry(index, self.term, kind, size_bytes, payload))
        return index

    def propose_membership(self, membership: Membership) -> EntryIndex:
        """Change the members; in force at once, final when committed.

        At most one voter may come or go, one change may be under way, and the leader must have
        committed an entry of its own term (thesis 4.1 and its correction of 2015): otherwise two
        leaders could count majorities that share no voter.
        """
        if self.role is not _LEADER or self._transferee is not None:
            raise self._not_leading()
        current = self._memberships.current
        if not membership.voters:
            raise InvalidRequest("a group needs a voter")
        if current.voters_changed(membership) > 1:
            raise InvalidRequest(f"more than one voter differs: {current} and {membership}")
        if not self._may_change_membership():
            raise Conflict("another membership or an entry of this term is not committed yet")
        for member in membership.voters:
            if member in current.learners and not self._has_been_admitted(member):
                raise Conflict(f"learner {member.node} has not stored its own admission yet")
        self.wake()
        index = self._append_own(EntryKind.MEMBERSHIP, membership.encode())
        self._count()
        return index

    def _has_been_admitted(self, learner: Member) -> bool:
        """Whether a learner knows that it is a member: until then it does not vote.

        Were it made a voter before, a majority could need its vote and never get it.
        """
        if learner == self.member:
            return True
        return self._progress[learner.node].match >= self._memberships.index

    def _may_change_membership(self) -> bool:
        return self.commit_index >= max(self._reign_start, self._memberships.index)

    def announce_commit(self) -> None:
        """Let followers know at once what is committed; otherwise the next heartbeat tells."""
        if self.role is Role.LEADER:
            self.wake()
            self._heartbeat()

    def campaign(self) -> None:
        """Hold a trial now, not after a timeout; ignored while a leader is known or chosen."""
        is_waiting = self.role in (Role.FOLLOWER, Role.TRIAL_CANDIDATE)
        if is_waiting and self.leader is None and self._may_campaign():
            self._hold_trial()

    def transfer_leader(self, to: NodeId) -> None:
        """Hand leadership to a voter once it has everything; given up after an election timeout."""
        if self.role is not _LEADER:
            raise self._not_leading()
        self.wake()
        self._start_transfer(to)

    @property
    def transferee(self) -> NodeId | None:
        """Whom the leader is handing over to; None when it is not, or has given up."""
        return self._transferee

    def read_index(self, context: int) -> None:
        """Ask for a current read; `context` comes back in `Effects.reads` or `.reads_refused`.

        `context` names the read among those of this replica.
        """
        if len(self._read_queue) + len(self._forwarded_reads) >= self._settings.reads_max:
            raise Unavailable(f"{self._settings.reads_max} reads wait already")
        self.wake()
        if self.role is _LEADER:
            self._ask_for_read(self._node, context)
        elif self.leader is not None:
            self._forward_read(self.leader, context)
        else:
            raise NotLeader(f"no leader is known in term {self.term}")

    @property
    def waits_to_read(self) -> bool:
        """Whether reads are confirmed that may be served when more is applied."""
        return bool(self._reads)

    def _on_read_request(self, message: ReadRequest) -> None:
        if self.role is _LEADER and len(self._read_queue) < self._settings.reads_max:
            self._ask_for_read(message.sender, message.context)

    def _not_leading(self) -> NotLeader:
        if self._transferee is not None:
            return NotLeader(f"leadership is being handed to node {self._transferee}")
        return NotLeader(f"node {self.leader} leads, not {self._node}")

    def followers(self) -> list[FollowerStatus]:
        """What a leader knows about the other members; empty elsewhere."""
        return [
            FollowerStatus(
                progress.node,
                progress.is_voter,
                progress.is_active or progress.was_active,
                progress.match,
                progress.state,
            )
            for progress in self._progress_list
        ]

    # Effects.

    def ready(self) -> Effects | None:
        """Everything there is to do since the last call; None when there is nothing."""
        if self.role is _LEADER:
            if self._read_queue.is_round_wanted:
                self._start_read_round()
            if self._progress_list:
                self._replicate()
        log = self._log
        write = None
        if log.has_write or self._is_hard_changed:
            hard_state = self._changed_hard_state() if self._is_hard_changed else None
            write = log.take_write(hard_state)
        commit_index = apply_last = self.commit_index
        if log.persisted_index < apply_last:
            apply_last = log.persisted_index
        if apply_last <= self._apply_given:
            if write is None and not self._has_news():
                return None
            apply_last = self._apply_given
        messages, self._messages = self._messages, []
        apply_start = self._apply_given + 1
        self._apply_given = apply_last
        self._reported_commit = commit_index
        if not (
            self._replications
            or self._reads
            or self._reads_refused
            or self._snapshot_wanted
            or self._leadership
            or self._memberships.current.learners
        ):
            return Effects(write, messages, commit_index, apply_start, apply_last + 1)
        effects = Effects(
            write,
            messages,
            commit_index,
            apply_start,
            apply_last + 1,
            True,
            self._replications,
            self._take_reads(),
            self._reads_refused,
            self._snapshot_wanted,
            self._leadership,
        )
        self._replications = []
        self._reads_refused = []
        self._snapshot_wanted = self._leadership = None
        return effects

    def _has_news(self) -> bool:
        return bool(
            self._messages
            or self._replications
            or self.commit_index != self._reported_commit
            or self._leadership
            or self._reads_refused
            or self._snapshot_wanted
            or (self._reads and any(read.index <= self._applied for read in self._reads))
        )
