"""How a replica follows a leader: accepting entries, and answering when they are persisted.

An append is accepted when the entry before it is the same in both logs (section 5.3). Entries that
are present already are kept, a conflicting one is cut with all after it, new ones are appended. The
answer says how far the follower's log is *known to equal the leader's and persisted*, so it waits
for the disk; appends that arrive during one sync share one answer.

A leader holds whatever is committed (section 5.4), as long as a majority keeps what it has
acknowledged. Disks that confirm what a power cut then takes break that: those who have lost
entries can elect one of themselves, while another replica holds the entries and has applied them.
What is applied cannot be taken back, so that replica cannot follow. It says so by `Corruption`
instead of staying another than the rest for good.
"""

from collections.abc import Sequence
from typing import Final

from penstock.errors import Corruption
from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft.effects import ReadState, Role
from penstock.raft.entries import Entry, Snapshot
from penstock.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    ReadRequest,
    ReadResponse,
)
from penstock.raft.replica import Replica

# Looking a member up in its enum costs as much as a call, and this one is asked for at every step.
_FOLLOWER: Final = Role.FOLLOWER
_NO_INDEX: Final = EntryIndex(0)
_NO_TERM: Final = Term(0)


class FollowerRules(Replica):
    """Handles what a leader sends. Every message here has the replica's own term."""

    __slots__ = ("_fetching", "_forwarded_reads", "_verified_index")

    _verified_index: EntryIndex
    """Up to here the log equals that of the leader of this term; 0 before its first append."""
    _fetching: InstallSnapshot | None
    """The snapshot that is being fetched."""
    _forwarded_reads: set[int]
    """Reads that the leader has been asked about."""

    def _prepare(self) -> None:
        super()._prepare()
        self._verified_index = _NO_INDEX
        self._fetching = None
        self._forwarded_reads = set()

    def _leave_role(self) -> None:
        super()._leave_role()
        self._verified_index = _NO_INDEX
        self._reads_refused.extend(self._forwarded_reads)
        self._forwarded_reads.clear()

    def _heard_from_leader(self, leader: NodeId) -> None:
        """Whoever sends entries or heartbeats in a term is its one leader (section 5.2)."""
        if self.role is _FOLLOWER and self.leader == leader:
            self._elapsed = 0
        else:
            assert self.role is not Role.LEADER, f"two leaders in term {self.term}"
            self._follow(self.term, leader)

    # Appends.

    def _on_append(self, message: Append) -> None:
        self._heard_from_leader(message.sender)
        log = self._log
        prev_index = message.prev_index
        entries = message.entries
        if prev_index < self.commit_index:
            # The leader holds every committed entry (section 5.4), so whatever the message says
            # about them is known to match, even where the terms are compacted away.
            entries = entries[self.commit_index - prev_index :]
            prev_index = min(self.commit_index, EntryIndex(prev_index + len(message.entries)))
            count = prev_index - message.prev_index
            term = message.entries[count - 1].term if count else message.prev_term
            self._check_committed(prev_index, term)
        elif log.term_at(prev_index) != message.prev_term:
            self._refuse(message)
            return
        self._accept(entries)
        last_index = entries[-1].index if entries else prev_index
        if last_index > self._verified_index:
            self._verified_index = last_index
        self._commit_up_to(message.commit)
        if self._verified_index <= log.persisted_index:
            self._acknowledge()

    def _check_committed(self, index: EntryIndex, term: Term) -> None:
        """Raise `Corruption` when the leader has another entry where one is committed here."""
        known = self._log.term_at(index)
        if known is not None and known != term:
            raise Corruption(
                f"entry {index} is committed here with term {known}, the leader of term"
                f" {self.term} has one of term {term} there: a majority has lost what it confirmed"
            )

    def _accept(self, entries: Sequence[Entry]) -> None:
        """Append what is new, after cutting what conflicts."""
        position = self._first_new(entries)
        if position == len(entries):
            return
        index = entries[position].index
        if index <= self._log.last_index:
            assert index > self.commit_index, f"entry {index} is committed and must not be cut"
            self._log.truncate(index)
            if self._memberships.truncate(index):
                self._membership_changed()
        for entry in entries[position:] if position else entries:
            self._append(entry)

    def _first_new(self, entries: Sequence[Entry]) -> int:
        """The position of the first entry that the log does not hold.

        A late or repeated append holds fewer entries than the log: what it does not mention
        must stay, because the leader may have counted it already (section 5.3).
        """
        log = self._log
        for position, entry in enumerate(entries):
            if entry.index > log.last_index or log.term_at(entry.index) != entry.term:
                return position
        return len(entries)

    def _commit_up_to(self, leader_commit: EntryIndex) -> None:
        """Follow the leader's commit index as far as the logs are known to be equal."""
        index = min(leader_commit, self._verified_index)
        if index > self.commit_index:
            self._commit(index)

    def _refuse(self, message: Append) -> None:
        hint_index, hint_term = self._log.newest_common(
            min(message.prev_index, self._log.last_index), message.prev_term, self.commit_index
        )
        self._send(
            AppendResponse(
                self._node,
                message.sender,
                self.term,
                message.prev_index,
                True,
                hint_index,
                hint_term,
                self.member.incarnation,
            )
        )

    def _ackable_index(self) -> EntryIndex:
        """How much may be acknowledged: equal to the leader's log, and persisted."""
        return min(self._verified_index, self._log.persisted_index)

    def _acknowledge(self) -> None:
        index = self._ackable_index()
        if index > 0 and self.leader is not None:
            self._send(
                AppendResponse(
                    self._node,
                    self.leader,
                    self.term,
                    index,
                    False,
                    _NO_INDEX,
                    _NO_TERM,
                    self.member.incarnation,
                )
            )

    # Heartbeats.

    def _on_heartbeat(self, message: Heartbeat) -> None:
        self._heard_from_leader(message.sender)
        self._commit_up_to(message.commit)
        self._send(
            HeartbeatResponse(
                self._node,
                message.sender,
                self.term,
                message.round,
                self._ackable_index(),
                self.member.incarnation,
            )
        )

    # Snapshots.

    def _on_install_snapshot(self, message: InstallSnapshot) -> None:
        self._heard_from_leader(message.sender)
        if not self._lacks(message.snapshot):
            self._check_committed(message.snapshot.index, message.snapshot.term)
            self._verify(message.snapshot)
            self._acknowledge()
        elif self._fetching is None or self._fetching.term < message.term:
            self._fetching = self._snapshot_wanted = message

    def _lacks(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot holds entries that this log does not."""
        return (
            snapshot.index > self.commit_index
            and self._log.term_at(snapshot.index) != snapshot.term
        )

    def _verify(self, snapshot: Snapshot) -> None:
        """A snapshot holds committed entries only, so it equals the log of any later leader."""
        self._commit(max(snapshot.index, self.commit_index))
        self._verified_index = max(self._verified_index, snapshot.index)

    def snapshot_fetched(self, message: InstallSnapshot) -> bool:
        """The snapshot is complete and lies aside; True when the next write installs it.

        False means that it came too late and shall be thrown away: the log has moved on, or the
        offer has been replaced.
        """
        if message is not self._fetching:
            return False
        self._fetching = None
        snapshot = message.snapshot
        if self.role is not Role.FOLLOWER or not self._lacks(snapshot):
            return False
        self._log.restore(snapshot, self.commit_index)
        self._memberships.restart(snapshot.index, snapshot.membership)
        self._apply_given = max(self._apply_given, snapshot.index)
        self._applied = max(self._applied, snapshot.index)
        self._verify(snapshot)
        return True

    def snapshot_failed(self, message: InstallSnapshot) -> None:
        """The snapshot could not be fetched; its leader may offer another one."""
        if message is not self._fetching:
            return
        self._fetching = None
        if message.term == self.term and self.leader == message.sender:
            self._send(
                AppendResponse(
                    self._node,
                    message.sender,
                    self.term,
                    message.snapshot.index,
                    True,
                    self.commit_index,
                    _NO_TERM,
                    self.member.incarnation,
                )
            )

    # Reads.

    def _forward_read(self, leader: NodeId, context: int) -> None:
        self._forwarded_reads.add(context)
        self._send(ReadRequest(self._node, leader, self.term, context))

    def _on_read_response(self, message: ReadResponse) -> None:
        if message.context in self._forwarded_reads:
            self._forwarded_reads.discard(message.context)
            self._reads.append(ReadState(message.context, message.index))
