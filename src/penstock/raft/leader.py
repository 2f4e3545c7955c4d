"""How a replica leads: replicating, committing, proving itself, and handing over.

The leader sends entries while its own copy is being written and counts itself only once that copy
is persisted. An index is committed when a majority of voters has it persisted *and* its entry is
of the leader's own term (section 5.4.2); everything before it is committed with it.

Sending happens when a bundle is taken, so all entries proposed between two bundles travel together.
"""

from typing import Final

from penstock.errors import InvalidRequest
from penstock.ids import EntryIndex, NodeId
from penstock.raft.effects import ReadState, Role
from penstock.raft.entries import Entry, EntryKind, Payload
from penstock.raft.follower import FollowerRules
from penstock.raft.membership import Incarnation
from penstock.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    ReadResponse,
    Replicate,
    TimeoutNow,
)
from penstock.raft.progress import Progress, ProgressState
from penstock.raft.reads import ReadQueue

# Looking a member up in its enum costs as much as a call, and these are asked for at every step.
_LEADER: Final = Role.LEADER
_SNAPSHOT: Final = ProgressState.SNAPSHOT


class LeaderRules(FollowerRules):
    """What only a leader does. Its state is empty in every other role."""

    __slots__ = (
        "_heartbeat_elapsed",
        "_is_own_voter",
        "_is_quiet",
        "_majority_at",
        "_progress",
        "_progress_list",
        "_read_queue",
        "_reign_start",
        "_transferee",
        "_voters",
        "_window_index",
    )

    _progress: dict[NodeId, Progress]
    """Every other member."""
    _progress_list: list[Progress]
    _voters: list[Progress]
    """Every other voter."""
    _is_own_voter: bool
    _majority_at: int
    """Where the match that a majority has reached stands among those of all voters, sorted."""
    _reign_start: int
    """The index of the entry that opened the leader's term."""
    _transferee: NodeId | None
    """The member that shall take over; no proposals are accepted meanwhile."""
    _window_index: int
    """The last entry when the leader last counted its quorum."""
    _is_quiet: bool
    """Whether nothing was appended between the last two counts, and all members were heard."""

    def _prepare(self) -> None:
        super()._prepare()
        self._progress = {}
        self._progress_list = []
        self._voters = []
        self._is_own_voter = False
        self._majority_at = 0
        self._reign_start = 0
        self._transferee = None
        self._heartbeat_elapsed = 0
        self._window_index = 0
        self._is_quiet = False
        self._read_queue = ReadQueue()

    def _leave_role(self) -> None:
        super()._leave_role()
        self._reads_refused.extend(self._read_queue.abandon(self._node))
        self._progress = {}
        self._progress_list = []
        self._voters = []
        self._transferee = None
        self._window_index = 0
        self._is_quiet = False

    def _lead(self) -> None:
        """Begin the reign: a majority has elected this replica."""
        self._leave_role()
        self._elapsed = 0
        self._heartbeat_elapsed = 0
        self._set_role(Role.LEADER, self._node)
        self._read_queue = ReadQueue()
        self._reign_start = self._append_own(EntryKind.NOOP, b"")
        self._membership_changed()

    def _append_own(self, kind: EntryKind, payload: Payload) -> EntryIndex:
        index = EntryIndex(self._log.last_index + 1)
        self._append(Entry(index, self.term, kind, len(payload), payload))
        return index

    def _membership_changed(self) -> None:
        """Keep the progress of members that stay, begin with those that are new.

        A new one is probed from the last entry, which the leader has just appended.
        """
        super()._membership_changed()
        if self.role is not _LEADER:
            return
        membership = self._memberships.current
        progress: dict[NodeId, Progress] = {}
        for member in membership.members:
            known = self._progress.get(member.node)
            if member == self.member:
                continue
            if known is None or known.incarnation != member.incarnation:
                known = Progress(member, self._log.last_index, self._settings)
            known.is_voter = member in membership.voters
            progress[member.node] = known
        self._progress = progress
        self._progress_list = list(progress.values())
        self._voters = [known for known in self._progress_list if known.is_voter]
        self._is_own_voter = self.member in membership.voters
        self._majority_at = (len(membership.voters) - 1) // 2
        if self._transferee not in progress:
            self._transferee = None

    # Replication.

    def _replicate(self) -> None:
        """Send each follower what it may be sent now."""
        log = self._log
        last_index = log.last_index
        start = 0
        for progress in self._progress_list:
            while progress.next <= last_index and progress.has_room:
                if progress.next <= log.base_index:
                    self._send_stored(progress)
                else:
                    if progress.next != start:
                        # Followers in step share one slice of the tail.
                        start = progress.next
                        stretch = log.stretch_from(start, self._settings.append_bytes_max)
                        prev_index, prev_term, entries, size_bytes = stretch
                        end = start + len(entries)
                        term, commit = self.term, self.commit_index
                    to = progress.node
                    self._messages.append(
                        Append(self._node, to, term, prev_index, prev_term, commit, entries)
                    )
                    progress.sent(end, size_bytes)
                if not progress.is_voter:
                    # One for each bundle: it may be held after any of them.
                    break
            if progress.is_asking:
                self._ask(progress)

    def _ask(self, progress: Progress) -> None:
        """Send an append without entries, whose answer tells whether something was lost."""
        prev_index = EntryIndex(progress.next - 1)
        prev_term = self._log.term_at(prev_index)
        if prev_term is None:
            self._offer_snapshot(progress)
            return
        commit = self.commit_index
        self._messages.append(
            Append(self._node, progress.node, self.term, prev_index, prev_term, commit, ())
        )
        progress.asked()

    def _send_stored(self, progress: Progress) -> None:
        """Have entries sent that must be read from the log first."""
        log = self._log
        start = progress.next
        prev_term = log.term_at(start - 1)
        if prev_term is None:
            self._offer_snapshot(progress)
            return
        end = log.stored_end(start, self._settings.append_bytes_max)
        self._replications.append(
            Replicate(
                self._node,
                progress.node,
                self.term,
                EntryIndex(start - 1),
                prev_term,
                self.commit_index,
                end,
            )
        )
        # The size of stored entries is not known here; the limit is a safe guess.
        progress.sent(end, self._settings.append_bytes_max)

    def _offer_snapshot(self, progress: Progress) -> None:
        snapshot = self._log.snapshot()
        if snapshot is None or snapshot.index <= progress.match:
            # It is being made. The next heartbeat's answer asks again.
            progress.probe(progress.next)
            progress.pause()
            return
        progress.await_snapshot(snapshot.index)
        self._send(InstallSnapshot(self._node, progress.node, self.term, snapshot))

    def _speaker(self, node: NodeId, incarnation: Incarnation) -> Progress | None:
        """The progress that an answer counts for; None for strangers and former selves.

        None on a replica that does not lead, too: it knows of no progress.
        """
        progress = self._progress.get(node)
        if progress is None or progress.incarnation != incarnation:
            return None
        progress.is_active = True
        return progress

    def _on_append_response(self, message: AppendResponse) -> None:
        progress = self._speaker(message.sender, message.incarnation)
        if progress is None:
            return
        if message.is_refused:
            known = progress.match if progress.match < message.index else 0
            common, _ = self._log.newest_common(
                min(message.hint_index, self._log.last_index), message.hint_term, known
            )
            progress.refused(message.index, common + 1)
        else:
            self._accepted(progress, message.index)

    def _accepted(self, progress: Progress, index: EntryIndex) -> None:
        assert index <= self._log.last_index, "a follower cannot hold more of this term's log"
        if not progress.accepted(index):
            return
        if index > self.commit_index and progress.is_voter:
            self._count()
        if progress.node == self._transferee and index == self._log.last_index:
            self._send(TimeoutNow(self._node, progress.node, self.term))

    # Commit.

    def _count(self) -> None:
        """Commit what a majority of voters has persisted."""
        # Done for every answer to every batch: without the calls of a comprehension or `_majority`.
        matches = [self._own_match()] if self._is_own_voter else []
        for progress in self._voters:
            matches.append(progress.match)  # noqa: PERF401
        matches.sort()
        index = matches[self._majority_at]
        if index > self.commit_index and self._may_commit_by_counting(index):
            was_open = self.commit_index < self._reign_start
            self._commit(index)
            if was_open:
                self._read_queue.begin(index)
            if not self._is_own_voter:
                self._resign_if_removed()

    def _own_match(self) -> EntryIndex:
        """What the leader's own copy is worth: no more than what is persisted."""
        return self._log.persisted_index

    def _may_commit_by_counting(self, index: int) -> bool:
        """Only an entry of the leader's own term is committed by counting copies (5.4.2)."""
        return index >= self._reign_start

    def _resign_if_removed(self) -> None:
        """A leader that is no voter leads until its removal is committed (thesis 4.2.2)."""
        if self._memberships.index > self.commit_index:
            return
        heir = max(self._voters, key=lambda progress: progress.match, default=None)
        if heir is not None:
            self._send(TimeoutNow(self._node, heir.node, self.term))
        self._follow(self.term, None)

    # Heartbeats, quorum and reads.

    def _tick_leader(self) -> None:
        self._elapsed += 1
        self._heartbeat_elapsed += 1
        if self._elapsed >= self._settings.election_ticks:
            self._elapsed = 0
            self._transferee = None
            self._is_quiet = self._was_quiet()
            if not self._has_quorum():
                self._follow(self.term, None)
                return
            self._renew_offers()
        if self._heartbeat_elapsed >= self._settings.heartbeat_ticks:
            self._heartbeat()

    def _was_quiet(self) -> bool:
        """Whether nothing was appended since this was last asked, and all members were heard."""
        last_index = self._log.last_index
        is_unchanged = self._window_index == last_index
        self._window_index = last_index
        return is_unchanged and all(progress.is_active for progress in self._progress_list)

    def _has_quorum(self) -> bool:
        """Whether a majority was heard from since this was last asked (thesis 6.2)."""
        active = int(self._is_own_voter)
        for progress in self._progress_list:
            active += progress.is_active and progress.is_voter
            progress.was_active = progress.is_active
            progress.is_active = False
        return active >= self._memberships.current.quorum

    def _renew_offers(self) -> None:
        """Offer snapshots again: the receiver may have restarted and forgotten the first offer."""
        for progress in self._progress_list:
            if progress.state is ProgressState.SNAPSHOT:
                self._offer_snapshot(progress)

    def _heartbeat(self) -> None:
        self._heartbeat_elapsed = 0
        commit = self.commit_index
        number = self._read_queue.round
        for progress in self._progress_list:
            self._messages.append(Heartbeat(self._node, progress.node, self.term, commit, number))

    def _on_heartbeat_response(self, message: HeartbeatResponse) -> None:
        progress = self._speaker(message.sender, message.incarnation)
        if progress is None:
            return
        if message.index > progress.match:
            self._accepted(progress, message.index)
        elif message.index < progress.match:
            progress.restarted()
        if progress.state is not _SNAPSHOT:
            # An append or its answer may be lost, or the follower may have restarted and wait
            # to hear whether its log equals the leader's.
            progress.resume()
            progress.is_asking = message.index < self._log.last_index
        if message.round > progress.acked_round:
            progress.acked_round = message.round
            self._confirm_reads()

    def _ask_for_read(self, requester: NodeId, context: int) -> None:
        if self.commit_index >= self._reign_start:
            self._read_queue.add(requester, context, self.commit_index)
        else:
            self._read_queue.defer(requester, context)

    def _start_read_round(self) -> None:
        """Prove leadership for the reads that arrived since the last round."""
        self._read_queue.start_round()
        self._heartbeat()
        self._confirm_reads()

    def _confirm_reads(self) -> None:
        for read in self._read_queue.confirm(self._round_of_majority()):
            index = EntryIndex(read.index)
            if read.requester == self._node:
                self._reads.append(ReadState(read.context, index))
            else:
                self._send(ReadResponse(self._node, read.requester, self.term, read.context, index))

    def _round_of_majority(self) -> int:
        """The newest round that a majority of voters has answered."""
        rounds = [progress.acked_round for progress in self._voters]
        if self._is_own_voter:
            rounds.append(self._read_queue.round)
        return _majority(rounds)

    # Handing over.

    def _start_transfer(self, to: NodeId) -> None:
        progress = self._progress.get(to)
        if progress is None or not progress.is_voter:
            raise InvalidRequest(f"node {to} is no voter beside the leader")
        if self._transferee == to:
            return
        self._transferee = to
        # The election timer bounds the transfer, so it starts afresh (thesis 3.10).
        self._elapsed = 0
        if progress.match == self._log.last_index:
            self._send(TimeoutNow(self._node, to, self.term))


def _majority(values: list[int]) -> int:
    """The largest value that more than half of the values reach; 0 when there are none."""
    values.sort()
    return values[(len(values) - 1) // 2] if values else 0
