"""What must hold after every event, whatever was lost, repeated, delayed, torn or forgotten.

The referee sees the real replicas from outside. It remembers which entries were ever written, which
were committed, who led which term and what clients were told; every new fact is compared with what
is remembered, so that a check costs nothing while nothing changes.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from penstock.cluster.machine import Machine
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.transfer import finish_interrupted_transfer
from penstock.errors import PenstockError
from penstock.ids import Offset
from penstock.log import EntryKind, LogSettings, PartitionLog, StateEntry
from penstock.log.state import read_state_entry
from penstock.raft import Effects, Entry, Message, Role, VoteRequest, VoteResponse
from penstock.raft import EntryKind as RaftKind
from penstock.record import read_header
from penstock.record.batch import CRC_POSITION, checksum_matches
from tests.simulation.compacted import NewestOfKeys
from tests.simulation.states import state_of

if TYPE_CHECKING:
    from tests.simulation.books import Books
    from tests.simulation.governors import MetadataBooks
    from tests.simulation.members import GroupsBooks
    from tests.simulation.node import Node

# No producer is silent for long enough to be forgotten.
EXPIRY_MS = 1 << 50
_LEADER = Role.LEADER
# States are compared whenever a replica has applied as many entries again.
_STATE_EVERY = 64
# Two slots, each twice, of a sequence number, term, vote and commit index, and a checksum.
_SLOT = struct.Struct("<qqqq")
_SLOTS_AT = (0, 512, 1024, 1536)
_CRC = struct.Struct("<I")


class Violation(AssertionError):
    """An invariant does not hold."""


def require(holds: bool, claim: str, *facts: object) -> None:
    """Raise when a claim is not true."""
    if not holds:
        raise Violation(f"{claim}: {', '.join(map(str, facts))}" if facts else claim)


class Referee:
    """Watches all nodes of one group."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.committed: list[Entry] = []
        self.graves: list[Node] = []
        """Nodes that lost their disks: what they acknowledged before may still be counted."""
        self.nodes: dict[int, Node] = {}
        self.new_machine: Callable[[], Machine]
        """Makes what the entries are told to."""
        self.batches: dict[int, bytes] = {}
        """Committed record batches by their first offset."""
        self._bases: list[int] = []
        self.compacts = False
        """Whether batches may lose records that newer ones replace."""
        self.installs = 0
        self.books: Books | None = None
        """What the entries mean for messages, in histories that have consumers."""
        self.metadata_books: MetadataBooks | None = None
        self.groups_books: GroupsBooks | None = None
        self._states: dict[int, tuple[Any, ...]] = {}
        self._newest = NewestOfKeys()
        self._deleted: dict[int, int] = {}
        """Up to where records were deleted on request, by the term in which that was answered."""
        self.rotten_reads = 0
        self._reigns: list[int] = []
        """For each committed entry, the term of the leader that committed it."""
        self._written: dict[tuple[int, int], tuple[Entry, int]] = {}
        self._shown_terms: list[int] = []
        self._shown_marks: list[int] = []

    # What replicas do.

    def check(self, node: "Node") -> None:
        """Look at one node after an event."""
        log = node.log
        if log is None:
            return
        raft = log.raft
        if raft.commit_index != node.commit_seen:
            self._commit_moved(node)
        if raft.role is _LEADER and raft.term != node.led_term:
            self._check_new_leader(node)
        if log.high_watermark != node.watermark_seen:
            require(
                log.high_watermark > node.watermark_seen,
                "the high watermark of a replica fell",
                log.high_watermark,
                node.watermark_seen,
            )
            node.watermark_seen = log.high_watermark
        if log.log.first_index != node.first_seen and not log.is_installing:
            self._check_removal(node)

    def _check_removal(self, node: "Node") -> None:
        """Entries go from the oldest on, when a snapshot covers them and somebody allows it."""
        assert node.log is not None
        log = node.log.log
        settings = log.settings
        is_deleted = log.first_offset <= node.log.machine.start_offset
        is_excess = settings.retention_bytes >= 0 and log.size_bytes >= settings.retention_bytes
        is_allowed = settings.deletes and (settings.retention_ms >= 0 or is_excess)
        require(log.first_index > node.first_seen, "the log of a replica grew at its beginning")
        require(
            log.first_index <= node.log.snapshot_index,
            "entries are gone that no snapshot covers",
            node.name,
            log.first_index,
            node.log.snapshot_index,
        )
        require(is_deleted or is_allowed, "records are gone that nobody gave up", log.first_offset)
        node.first_seen = log.first_index
        self._note_removal(node)

    def _note_removal(self, node: "Node") -> None:
        if self.books is not None:
            assert node.log is not None
            first_offset = node.log.log.first_offset
            self.books.removed_before = max(self.books.removed_before, first_offset)

    def check_installed(self, node: "Node", index: int) -> None:
        """A copied snapshot holds committed entries only, and the state that follows from them."""
        assert node.log is not None
        self.installs += 1
        require(index > node.applied_seen, "a snapshot takes a replica back", node.name, index)
        require(index <= len(self.committed), "a snapshot is ahead of all commits", index)
        node.applied_seen = index
        node.first_seen = node.log.log.first_index
        self._note_removal(node)
        state = state_of(node.log.machine)
        require(state == self.state_after(index), "a snapshot has another state", node.name, index)

    def check_state(self, node: "Node", index: int) -> None:
        """Replicas that have applied the same entries have the same state, live or replayed.

        Where compaction has taken batches, whoever gets entries from there hears of a producer's
        newest ones alone, and has the same state when it has come to those.
        """
        assert node.log is not None
        machine = node.log.machine
        if isinstance(machine, ClusterMetadata) and self.metadata_books is not None:
            self.metadata_books.check_applied(machine, index)
        if index % _STATE_EVERY or self.compacts:
            return
        state = state_of(machine)
        known = self._states.setdefault(index, state)
        require(state == known, "replicas come to different states", node.name, index)

    def state_after(self, index: int) -> tuple[Any, ...]:
        """The state of a machine that has applied the committed entries up to one."""
        machine = self.new_machine()
        offset = Offset(0)
        for entry in self.committed[:index]:
            if entry.kind is RaftKind.RECORDS:
                header = read_header(entry.payload)
                offset = Offset(header.next_offset)
                machine.apply_records(header, Offset(header.base_offset), entry.payload)
            elif entry.kind is RaftKind.STATE:
                payload = bytes(entry.payload)
                with suppress(PenstockError):
                    machine.apply_state(StateEntry(entry.index, entry.term, offset, payload))
        return state_of(machine)

    def is_same(self, entry: Entry, known: Entry) -> bool:
        """Whether two entries are one, but for what compaction may have taken from a batch."""
        if entry.payload == known.payload:
            return True
        return (
            self.compacts
            and entry.kind is known.kind is RaftKind.RECORDS
            and entry.index <= len(self.committed)
            and self._newest.may_leave(bytes(known.payload), bytes(entry.payload))
        )

    def check_effects(self, node: "Node", effects: Effects) -> None:
        """Look at what a replica is about to do."""
        self.check(node)
        write = effects.write
        if write is None or not write.entries:
            return
        assert node.log is not None
        first = write.entries[0]
        prev_term = node.log.raft._log.term_at(first.index - 1)
        for entry in write.entries:
            self._check_log_matching(entry, prev_term)
            prev_term = entry.term

    def check_applied(self, node: "Node", entry: Entry) -> None:
        """Every replica applies the committed entries, each once and in order."""
        require(entry.index == node.applied_seen + 1, "an entry is skipped or repeated", entry)
        node.applied_seen = entry.index
        require(
            entry.index <= len(self.committed), "an entry is applied before it commits", entry.index
        )
        known = self.committed[entry.index - 1]
        require(
            known.term == entry.term and self.is_same(entry, known),
            "replicas apply different entries",
            node.name,
            entry,
            known,
        )

    def check_sent(self, node: "Node", message: Message) -> None:
        """A term or a vote is on disk before any message reveals it (section 5.1)."""
        if isinstance(message, VoteRequest | VoteResponse) and message.is_trial:
            return
        is_vote = isinstance(message, VoteResponse) and message.is_granted
        if message.term <= node.durable_term and not is_vote:
            return
        term, vote = durable_vote(node)
        node.durable_term = max(node.durable_term, term)
        assert node.log is not None
        known = max(term, node.log.log.last_term)
        is_known = message.term <= known or node.is_rotten
        require(is_known, "a term is revealed that is not saved", message, term)
        if is_vote and term <= message.term and not node.is_rotten:
            is_saved = term == message.term and vote == message.to
            require(is_saved, "a vote is revealed that is not saved", message, term, vote)
        node.revealed_term = max(node.revealed_term, message.term)
        if is_vote or isinstance(message, VoteRequest):
            node.revealed_vote = (message.term, message.to if is_vote else message.sender)

    def check_remembers(self, node: "Node") -> None:
        """A replica that starts knows the newest term and vote that its messages have revealed."""
        assert node.log is not None
        raft = node.log.raft
        if node.is_rotten:
            return
        require(
            raft.term >= node.revealed_term, "a revealed term is forgotten", node.name, raft.term
        )
        term, vote = node.revealed_vote
        require(
            raft.term > term or raft.vote == vote, "a revealed vote is forgotten", node.name, term
        )

    def _check_log_matching(self, entry: Entry, prev_term: int | None) -> None:
        """Index and term name an entry and its predecessor; so, by induction, its whole prefix."""
        found = self._written.get((entry.index, entry.term))
        if found is None:
            kept = Entry(
                entry.index, entry.term, entry.kind, entry.size_bytes, bytes(entry.payload)
            )
            self._written[entry.index, entry.term] = (kept, prev_term or 0)
            return
        require(
            self.is_same(entry, found[0]),
            "two entries have the same index and term",
            entry,
            found[0],
        )
        require(
            prev_term is None or found[1] == prev_term, "an entry has two prefixes", entry.index
        )

    def _check_new_leader(self, node: "Node") -> None:
        assert node.log is not None
        raft = node.log.raft
        node.led_term = raft.term
        known = self.leaders.setdefault(raft.term, node.name)
        require(known == node.name, "two leaders in one term", raft.term, known, node.name)
        # Log matching makes the newest entry that an earlier term committed speak for all.
        index = bisect_left(self._reigns, raft.term)
        if index:
            require(
                raft._log.term_at(index) in (None, self.committed[index - 1].term),
                "a leader lacks a committed entry",
                node.name,
                raft.term,
                index,
            )

    # Commits.

    def _commit_moved(self, node: "Node") -> None:
        assert node.log is not None
        raft = node.log.raft
        commit = raft.commit_index
        require(commit > node.commit_seen, "the commit index fell", node.name, commit)
        known = min(commit, len(self.committed))
        if known:
            # Log matching makes this one speak for those before it.
            term = raft._log.term_at(known)
            require(
                term in (None, self.committed[known - 1].term),
                "replicas commit different entries",
                node.name,
                known,
                term,
            )
        node.commit_seen = commit
        if commit > known:
            # A leader that is no voter resigns with the commit that makes its removal final.
            has_led = raft.role is _LEADER or self.leaders.get(raft.term) == node.name
            require(has_led, "a follower commits what no leader has", node.name, commit)
            self._check_new_commits(node, known + 1, commit)

    def _check_new_commits(self, leader: "Node", first: int, last: int) -> None:
        assert leader.log is not None
        raft = leader.log.raft
        require(
            raft._log.term_at(last) == raft.term,
            "a leader counted copies of an older term",
            leader.name,
            last,
        )
        for index in range(first, last + 1):
            term = raft._log.term_at(index)
            assert term is not None
            self._committed(self._written[index, term][0], raft.term)
        self._check_majority(leader, first)

    def _committed(self, entry: Entry, term: int) -> None:
        self.committed.append(entry)
        self._reigns.append(term)
        if entry.kind is RaftKind.RECORDS:
            batch = bytes(entry.payload)
            base_offset = read_header(batch).base_offset
            self.batches[base_offset] = batch
            self._bases.append(base_offset)
            if self.compacts:
                self._newest.add(batch)
        for books in (self.books, self.metadata_books, self.groups_books):
            if books is not None:
                books.commit(entry, term)

    def _check_majority(self, leader: "Node", first: int) -> None:
        """A committed entry survives a power cut on a majority of voters."""
        assert leader.log is not None
        membership = leader.log.raft.membership
        voters = [
            node
            for node in (*self.nodes.values(), *self.graves)
            if node.member in membership.voters
        ]
        voters.sort(key=_is_off)
        for index in range(first, len(self.committed) + 1):
            entry = self.committed[index - 1]
            holders = 0
            for node in voters:
                holders += node.is_rotten or holds_durably(node, entry)
                if holders >= membership.quorum:
                    break
            else:
                require(
                    False,
                    "a committed entry is not durable on a majority",
                    index,
                    f"{holders} of {len(membership.voters)}",
                )

    # What clients see.

    def deleted(self, term: int, offset: int) -> None:
        """A leader has told a client that the records below an offset are gone."""
        self._deleted[term] = max(offset, self._deleted.get(term, 0))

    def check_start(self, term: int, start: int) -> None:
        """What was deleted in this term or before does not come back."""
        gone = max((at for deleted, at in self._deleted.items() if deleted <= term), default=0)
        require(start >= gone, "deleted records came back", term, start, gone)

    def check_watermark(self, term: int, watermark: int) -> None:
        """No leader shows less than leaders of earlier terms have shown."""
        position = bisect_left(self._shown_terms, term)
        before = self._shown_marks[position - 1] if position else 0
        require(watermark >= before, "the high watermark went back", term, watermark, before)
        if position < len(self._shown_terms) and self._shown_terms[position] == term:
            require(
                watermark >= self._shown_marks[position],
                "the high watermark of a leader went back",
                term,
                watermark,
            )
        else:
            self._shown_terms.insert(position, term)
            self._shown_marks.insert(position, watermark)
        self._shown_marks[position] = watermark
        for later in range(position + 1, len(self._shown_marks)):
            self._shown_marks[later] = max(self._shown_marks[later], watermark)

    def check_read(self, node: "Node", data: bytes, *, start: int, watermark: int) -> int:
        """Readers see the committed batches from `start` on, byte for byte, or damage.

        They notice damage by its checksum, except in the fields before it: nobody but the scrub
        notices that. Returns the offset after the first batch.
        """
        position = 0
        number = bisect_right(self._bases, start) - 1
        ends = []
        while position < len(data):
            header = read_header(data, position)
            number = self._skip_compacted(number, header.base_offset)
            require(number < len(self._bases), "a reader got what is not committed", node.name)
            known = self.batches[self._bases[number]]
            batch = data[position : position + (header.size_bytes if self.compacts else len(known))]
            ends.append(read_header(known).next_offset)
            if not self._may_read(known, batch):
                is_rot = node.is_rotten and (
                    self.compacts
                    or batch[CRC_POSITION:] == known[CRC_POSITION:]
                    or not checksum_matches(batch)
                )
                require(is_rot, "a reader got wrong bytes", node.name, start, position)
                self.rotten_reads += 1
                break
            require(ends[-1] <= watermark, "a reader got more than is committed", node.name, ends)
            position += len(batch)
            number += 1
        if not data and start < watermark:
            number = self._skip_compacted(number, watermark)
            is_end = number == len(self._bases) or self._bases[number] >= watermark
            require(is_end or node.is_rotten, "a reader got nothing", node.name, start, watermark)
        return ends[0] if ends else watermark

    def _skip_compacted(self, number: int, base_offset: int) -> int:
        """Pass batches before `base_offset` of which compaction may have left nothing."""
        while (
            self.compacts
            and number < len(self._bases)
            and self._bases[number] < base_offset
            and self._newest.may_remove(self.batches[self._bases[number]])
        ):
            number += 1
        return number

    def _may_read(self, known: bytes, batch: bytes) -> bool:
        return batch == known or (self.compacts and self._newest.may_leave(known, batch))


def holds_durably(node: "Node", entry: Entry) -> bool:
    """Whether a power cut would leave the entry on a node's disk."""
    if node.log is None:
        return _recovers(node, entry)
    log = node.log.log
    if not log.first_index <= entry.index < log.next_index:
        return False
    segment = log._segment_of(entry.index)
    row = segment.table.row(entry.index - segment.first_index)
    if row.kind == EntryKind.RECORDS:
        path = node.path_of(segment, ".log")
        return node.disk.durable(path, row.log_position, row.log_end) == entry.payload
    path = node.path_of(segment, ".state")
    stored = read_state_entry(node.disk.durable(path, row.state_position, row.state_end))
    return (
        stored is not None
        and (stored.index, stored.term) == (entry.index, entry.term)
        and stored.payload == entry.payload
    )


def _recovers(node: "Node", entry: Entry) -> bool:
    """Whether recovery finds the entry on the disk of a machine that is off."""
    disk = node.disk.copy()
    disk.capacity_bytes = None
    finish_interrupted_transfer(disk, node.directory)
    log = PartitionLog(disk, node.directory, LogSettings())
    if log.is_empty or not log.first_index <= entry.index < log.next_index:
        return False
    row, payload = log.payload_at(entry.index)
    return row.term == entry.term and payload == entry.payload


def durable_vote(node: "Node") -> tuple[int, int]:
    """The term and the vote that a power cut would leave."""
    newest = (0, 0, -1, 0)
    for start in _SLOTS_AT:
        data = node.disk.durable(node.directory / "vote", start, start + _SLOT.size + _CRC.size)
        packed, crc = data[: _SLOT.size], data[_SLOT.size :]
        if len(crc) == _CRC.size and _CRC.unpack(crc)[0] == crc32c(packed):
            newest = max(newest, _SLOT.unpack(packed))
    return newest[1], newest[2]


def _is_off(node: "Node") -> bool:
    return node.log is None
