"""One replicated log: proposals in, commits out.

A write is a proposal. On the leader, proposals wait while the disk is busy; then all of them become
entries, records first, and share the next flush, while they are sent to the followers. When a
majority has them on disk they are committed: the machine applies them in order, the high watermark
moves, and those who proposed them get their answer. Readers see committed entries only. A group of
one is the same with a majority of one.

Crash cases: before the commit nobody was told, and the entries may or may not survive; after it a
majority finds them again. A leader that is deposed fails the proposals in flight with `NotLeader`:
their entries may still commit under the next leader. A sync that fails closes this replica for good
and leaves the group to the others.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from penstock.cluster.applied_waiters import AppliedWaiters
from penstock.cluster.current_reads import CurrentReads
from penstock.cluster.in_flight import InFlight, refuse
from penstock.cluster.learner_pace import LearnerPace
from penstock.cluster.log_view import StoredLog
from penstock.cluster.machine import EntryReader, Machine
from penstock.cluster.pace import Pace
from penstock.cluster.proposal import Proposal
from penstock.cluster.proposal_queue import ProposalQueue, sharing_an_entry
from penstock.cluster.replica_identity import ReplicaIdentity, Transport
from penstock.cluster.replica_state import (
    ReplicaState,
    check_continues,
    check_remembers,
    found_replica,
    load_state,
    recovered_from,
)
from penstock.cluster.replica_storage import RAFT_KINDS, ReplicaStorage
from penstock.cluster.suspicion import Suspicion
from penstock.cluster.transfer import finish_interrupted_transfer
from penstock.cluster.workplace import Workplace
from penstock.errors import (
    Corruption,
    DiskFull,
    NotLeader,
    OffsetOutOfRange,
    PenstockError,
    StorageFailed,
    Unavailable,
)
from penstock.ids import EntryIndex, NodeId, Offset, Term
from penstock.log import (
    EntryKind,
    FileRange,
    HardStateFile,
    LogSettings,
    PartitionLog,
    StateEntry,
    save_snapshot,
)
from penstock.raft import (
    Append,
    Effects,
    Entry,
    FollowerStatus,
    InstallSnapshot,
    Mark,
    Membership,
    Message,
    RaftNode,
    RaftSettings,
    Recovered,
    Replicate,
    Rest,
    Role,
    Write,
)
from penstock.raft import EntryKind as RaftKind
from penstock.raft import Snapshot as RaftSnapshot
from penstock.record import RecordBatch, batch_without_records, read_header, stamp

logger = logging.getLogger(__name__)

# Looking a member up in its enum costs as much as a call.
_LEADER: Final = Role.LEADER
_QUEUED_BYTES_MAX = 256 * 1024 * 1024
# An entry that nobody waits for is flushed by itself after this time.
_SOON_S = 0.02


class ReplicatedLog:
    """A replica: its log, the machine that committed entries drive, and those who wait."""

    def __init__(
        self,
        identity: ReplicaIdentity,
        directory: Path,
        log_settings: LogSettings,
        machine: Machine,
        workplace: Workplace,
        *,
        transport: Transport,
        raft_settings: RaftSettings,
    ) -> None:
        """Open the replica's files, recovering them when a crash cut them short."""
        self.identity = identity
        self.machine = machine
        finish_interrupted_transfer(workplace.disk, directory)
        self.log = PartitionLog(workplace.disk, directory, log_settings)
        self.failure: PenstockError | None = None
        self.suspicion = Suspicion()
        self.on_leadership: Callable[[], None] = lambda: None
        self.entry_reader: EntryReader | None = None
        self.on_snapshot_wanted: Callable[[InstallSnapshot], None] = self.snapshot_failed
        self._learner_pace: LearnerPace | None = None
        # Until then the files of the last snapshot are being copied by a follower.
        self.held_until_s = 0.0
        self._workplace = workplace
        self._transport = transport
        self._queue = ProposalQueue()
        self._soon: asyncio.TimerHandle | None = None
        self._in_flight = InFlight()
        # Entries that were written in this run and are not applied yet.
        self._unapplied: deque[Entry] = deque()
        self._is_closed = False
        self.is_serving = False
        """True on a leader that has applied everything that was committed before its term."""
        self._watchers: dict[Callable[[], None], None] = {}
        self._applied_waiters = AppliedWaiters(workplace.loop)
        self._current_reads = CurrentReads(workplace.loop)
        self.is_snapshotting = False
        hard_state_file = HardStateFile(workplace.disk, directory)
        self._storage = ReplicaStorage(
            self.log,
            hard_state_file,
            workplace,
            on_persisted=self._persisted,
            on_hard_state=self._hard_state_persisted,
            on_installed=self._installed,
            on_full=self._disk_is_full,
            on_failed=self.fail,
            on_idle=self._drain,
            has_queued=lambda: bool(self._queue),
        )
        self.keeping_files = self._storage.keeping_files
        self.run_exclusive = self._storage.run_exclusive
        recovered = self._recover(hard_state_file)
        self.applied_index = EntryIndex(recovered.applied)
        # What consensus has given out to be applied and is not yet, half open.
        self._apply_start = self._apply_end = recovered.applied + 1
        self._is_apply_planned = False
        self.high_watermark = self._offset_after(recovered.applied)
        self._reign_start = 0
        self.raft = RaftNode(
            member=identity.member,
            log=StoredLog(self.log, lambda: self._snapshot),
            recovered=recovered,
            settings=raft_settings,
            randrange=workplace.randrange,
        )

    @staticmethod
    def found(
        workplace: Workplace, directory: Path, membership: Membership, machine: Machine
    ) -> None:
        """Put a replica on disk that belongs to a new group. Runs file operations."""
        found_replica(workplace.disk, directory, membership, machine)

    # Recovery.

    def _recover(self, hard_state_file: HardStateFile) -> Recovered:
        snapshot, state = load_state(self._workplace.disk, self.log.directory, self.machine)
        check_continues(self.log, snapshot)
        self.snapshot_bytes = len(snapshot.payload)
        self.machine.restore(state.machine, snapshot.index)
        if self.log.is_empty:
            self.log.begin_at(
                index=snapshot.index, offset=Offset(state.next_offset), term=snapshot.term
            )
        self._membership = state.members
        self._snapshot = RaftSnapshot(
            EntryIndex(snapshot.index - 1), snapshot.term, self._membership
        )
        self._membership_index = EntryIndex(state.membership_index)
        recovered = recovered_from(self.log, hard_state_file, snapshot, state)
        voters = recovered.memberships[-1][1].voters
        check_remembers(self.log, hard_state_file, is_alone=voters == (self.identity.member,))
        return recovered

    def check_readable(self) -> None:
        """Raise `Corruption` when an entry cannot be read that is not in the snapshot."""
        for _, _, index in self.log.rows(self.snapshot_index):
            self.log.payload_at(index)

    def _offset_after(self, index: int) -> Offset:
        if index < self.log.first_index:
            return self.log.first_offset
        return Offset(self.log.row_at(index).next_offset)

    # Who leads.

    @property
    def name(self) -> str:
        """What the log is called in messages."""
        return self.identity.name

    def rename(self, name: str) -> None:
        """Be told of under another name."""
        self.identity = replace(self.identity, name=name)

    @property
    def term(self) -> Term:
        """The newest term that this replica knows."""
        return self.raft.term

    @property
    def leader(self) -> NodeId | None:
        """The node that leads, as far as this replica knows."""
        return self.raft.leader

    def _may_serve(self) -> bool:
        is_leading = self.raft.role is _LEADER and self.applied_index >= self._reign_start
        return is_leading and self.failure is None and not self._is_closed

    @property
    def is_alone(self) -> bool:
        """True in a group of one."""
        return len(self.raft.membership.members) == 1

    def check_serving(self) -> None:
        """Raise when this replica cannot answer for the log."""
        if not self.is_serving:
            self.check_open()
            raise NotLeader(f"{self.name} is led by node {self.raft.leader}, not by this one")

    def check_open(self) -> None:
        """Raise when the replica cannot be used on this node."""
        if self.failure is not None:
            raise self.failure
        if self._is_closed:
            raise NotLeader(f"{self.name} is closed on this node")

    def followers(self) -> list[FollowerStatus]:
        """What a leader knows about the other members."""
        return self.raft.followers()

    # Writing.

    def propose_records(
        self,
        batch: RecordBatch,
        *,
        waits_for_commit: bool = True,
        on_settled: Callable[[], None] | None = None,
    ) -> asyncio.Future[Offset]:
        """Append a batch; the future gives the offset of its first record.

        It is done when the batch is committed, or else when the leader has it on disk. `on_settled`
        is called when the future is done, never before this returns, and sooner than what is added
        to the future: one who waits for the commit hears of it in the same turn of the loop.
        """
        waiter = self._new_waiter()
        proposal = Proposal(waiter, batch, b"", len(batch.data), waits_for_commit)
        if on_settled is not None and waits_for_commit:
            proposal.on_committed = on_settled
        elif on_settled is not None:
            waiter.add_done_callback(lambda _: on_settled())
        self._queue.add_records(proposal)
        self.flush_waiting()
        return waiter

    def propose_state(self, payload: bytes, *, is_sequenced: bool = False) -> asyncio.Future[Any]:
        """Append a state entry; the future gives what the machine answers once it is committed.

        One that is sequenced stands for a batch of a producer, and no later batch overtakes it.
        """
        waiter = self._new_waiter()
        proposal = Proposal(waiter, None, payload, len(payload))
        self._queue.add_state(proposal, is_sequenced=is_sequenced)
        self.flush_waiting()
        return waiter

    def propose_state_soon(self, payload: bytes) -> asyncio.Future[Any]:
        """Append a state with the next flush, or by itself when none comes in a moment.

        It may share its entry with others of the same flush.
        """
        waiter = self._new_waiter()
        self._queue.add_state(Proposal(waiter, None, payload, len(payload), may_share=True))
        if self._soon is None:
            self._soon = self._workplace.loop.call_later(_SOON_S, self._drain_soon)
        return waiter

    def _drain_soon(self) -> None:
        self._soon = None
        self.flush_waiting()

    def flush_waiting(self) -> None:
        """Write what waits now, or when the flush that is under way ends."""
        if self._storage.is_idle:
            self._drain()

    @property
    def is_idle(self) -> bool:
        """True when no proposal waits or is being written."""
        return not (self._in_flight or self._queue)

    def _new_waiter(self) -> asyncio.Future[Any]:
        """Return what the proposer of one more entry waits for; raise when it cannot be taken."""
        self.check_writable()
        if self._queue.size_bytes > _QUEUED_BYTES_MAX:
            raise Unavailable(
                f"{self.name} has {self._queue.size_bytes} bytes waiting for the disk,"
                f" more than {_QUEUED_BYTES_MAX}"
            )
        return self._workplace.loop.create_future()

    def check_writable(self) -> None:
        """Raise when nothing can be proposed, or earlier proposals may still come true."""
        if not self.is_serving:
            self.check_serving()
        if self.raft.transferee is not None:
            raise NotLeader(f"{self.name} is being handed to node {self.raft.transferee}")
        if self._storage.is_full or self.applied_index < self._in_flight.doubtful_index:
            # A producer that was told so sends again. It is heard when the fate of the first copy
            # is known, so that the second one is recognised.
            raise DiskFull(f"the disk of {self.name} is full")

    def _drain(self) -> None:
        if self._queue and self.raft.role is _LEADER:
            self._enter(self._queue.take())

    def _enter(self, taken: deque[Proposal]) -> None:
        """Turn proposals into entries."""
        offset = self.log.next_offset
        try:
            while taken:
                proposal = taken[0]
                batch = proposal.batch
                if proposal.may_share and len(taken) > 1:
                    self._propose_bundle(taken)
                    continue
                if batch is None:
                    proposal.index = self.raft.propose(RaftKind.STATE, proposal.payload)
                else:
                    stamp(batch.data, offset, self.raft.term)
                    proposal.index = self.raft.propose(RaftKind.RECORDS, batch.data)
                    proposal.offset = offset
                    offset = Offset(offset + batch.header.last_offset_delta + 1)
                self._in_flight.add(taken.popleft())
        except Unavailable as error:
            # Leadership is being handed over; what became an entry already is on its way.
            for proposal in taken:
                proposal.fail(error)
            self._queue.fail(error)
        self._pump()

    def _propose_bundle(self, taken: deque[Proposal]) -> None:
        """Turn the first proposals, as many as may share an entry, into one."""
        bundle = sharing_an_entry(taken)
        first = bundle[0]
        payload = first.payload
        if len(bundle) > 1:
            payload = self.machine.bundle([proposal.payload for proposal in bundle])
            first.sharing = bundle
        first.index = self.raft.propose(RaftKind.STATE, payload)
        self._in_flight.add(first)
        for _ in bundle:
            taken.popleft()

    def _persisted(self, mark: Mark) -> None:
        self._in_flight.persisted(mark.index)
        self.raft.persisted(mark)
        self._pump()

    def _hard_state_persisted(self, mark: Mark) -> None:
        self.raft.hard_state_persisted(mark)
        self._pump()

    def _disk_is_full(self) -> None:
        error = DiskFull(f"the disk ran full while {self.name} was written")
        self._in_flight.doubt(error)
        self._queue.fail(error)

    def _fail_proposals(self, error: PenstockError) -> None:
        self._in_flight.fail(error)
        self._queue.fail(error)

    # Driving consensus.

    def tick(self) -> None:
        """Let one tick of time pass."""
        if self.failure is None and not self._is_closed:
            self.raft.tick()
            self._pump()

    @property
    def rest(self) -> Rest | None:
        """What the replica rests on; None when it is awake, or cannot be used."""
        return self.raft.rest if self.failure is None and not self._is_closed else None

    def follow_rest(self, leader: NodeId, rest: Rest) -> None:
        """Let the replica rest if it is in step with its leader, which does."""
        if self.failure is None and not self._is_closed and self.raft.follow_rest(leader, rest):
            self._pump()

    def wake(self, silent_ticks: int = 0) -> None:
        """Let time pass again, beginning with that of a silence."""
        self.raft.wake(silent_ticks)

    def step(self, message: Message) -> None:
        """Take in a message of another replica."""
        if self.failure is None and not self._is_closed:
            try:
                self.raft.step(message)
            except Corruption as damage:
                self.fail(damage)
            self._pump()

    def campaign(self) -> None:
        """Stand for election at once, where nobody is disturbed by it."""
        if self.failure is None and not self._is_closed:
            self.raft.campaign()
            self._pump()

    def announce_commit(self) -> None:
        """Let followers apply what is committed without waiting for the next heartbeat."""
        self.raft.announce_commit()
        self._pump()

    def unreachable(self, node: NodeId) -> None:
        """The link to a node broke."""
        self.raft.unreachable(node)

    def _pump(self) -> None:
        """Carry out what consensus wants, until it wants nothing more.

        Consensus asks for terms of stored entries. A row that has rotted ends the replica here
        before anything rests on it.
        """
        try:
            while self.failure is None and (effects := self.raft.ready()) is not None:
                self._carry_out(effects)
                if not effects.has_more:
                    break
        except Corruption as damage:
            self.fail(damage)

    def _carry_out(self, effects: Effects) -> None:
        has_more = effects.has_more
        if has_more and effects.leadership is not None:
            self._leadership_changed()
        # Followers have the longer way to go. What has to wait for a write, the core holds back.
        for message in effects.messages:
            self._transport.send(self.identity.group, message)
            if has_more and self._learner_pace is not None and isinstance(message, Append):
                self._learner_pace.sent(message)
        write = effects.write
        if write is not None:
            if write.truncate_from is not None or write.snapshot is not None:
                self._apply()
                self._take_back_cut(write)
            self._unapplied.extend(write.entries)
            self._storage.write(write)
        if has_more:
            for order in effects.replications:
                self._replicate(order)
        if effects.apply_start < effects.apply_end:
            assert effects.apply_start == self._apply_end, "entries are given out in order"
            self._apply_end = effects.apply_end
            if write is None or has_more or self.raft.role is _LEADER:
                self._apply()
            elif not self._is_apply_planned:
                # A follower's disk is waited for, and what it applies is not.
                self._is_apply_planned = True
                self._workplace.loop.call_soon(self._apply_after_flush)
        if has_more:
            self._carry_out_rest(effects)

    def _carry_out_rest(self, effects: Effects) -> None:
        if effects.reads or effects.reads_refused:
            self._current_reads.settle(effects)
        if effects.snapshot_wanted is not None:
            self.on_snapshot_wanted(effects.snapshot_wanted)

    def _take_back_cut(self, write: Write) -> None:
        """Forget entries that are not to be applied, because others take their place."""
        if write.snapshot is not None:
            # The whole log is replaced, also behind the snapshot: a leader that was deposed may
            # have entries there that the group never agreed on.
            self._unapplied.clear()
        cut = write.truncate_from
        while cut is not None and self._unapplied and self._unapplied[-1].index >= cut:
            self._unapplied.pop()

    def _replicate(self, order: Replicate) -> None:
        """Send entries that consensus no longer holds; dropping them is always safe."""
        try:
            entries = [
                self._stored_entry(index) for index in range(order.prev_index + 1, order.end)
            ]
        except (OSError, PenstockError) as damage:
            self._damaged(damage)
            return
        if self.raft.leads(order.term):
            message = order.with_entries(entries)
            self._transport.send(self.identity.group, message)
            if self._learner_pace is not None:
                self._learner_pace.sent(message)

    def _stored_entry(self, index: int) -> Entry:
        row, payload = self.log.payload_at(index)
        kind = RAFT_KINDS[EntryKind(row.kind)]
        if row.kind == EntryKind.RECORDS and row.size == 0:
            # Compaction has removed all records of the batch; its offsets stay taken.
            payload = bytes(batch_without_records(row.first_offset, row.records, row.term))
        return Entry(EntryIndex(index), Term(row.term), kind, len(payload), payload)

    def pace_learners(self, pace: Pace) -> None:
        """Fill learners at a speed that is shared with other logs; without it as fast as can be."""

        def pump() -> None:
            if not self._is_closed:
                self._pump()

        self._learner_pace = LearnerPace(self.raft, pace, self._workplace.loop, pump)

    def _leadership_changed(self) -> None:
        self._storage.is_leading = self.raft.role is _LEADER
        if self.raft.role is _LEADER:
            # The first entry of the term is the one that consensus appends when it wins.
            self._reign_start = self.raft.last_index
        else:
            self._fail_proposals(NotLeader(f"{self.name} is led by node {self.raft.leader}"))
        self._notice_leadership()
        self._wake_watchers()

    def _notice_leadership(self) -> None:
        self.is_serving = self._may_serve()
        self.on_leadership()

    @property
    def is_installing(self) -> bool:
        """True while a copied snapshot waits to take the place of the log."""
        return self._storage.complete_copy is not None

    def snapshot_fetched(self, offer: InstallSnapshot, complete: Callable[[], None]) -> None:
        """All files of the offered snapshot lie beside the log.

        Only when consensus still wants them does `complete` make the swap final, right before it
        is carried out: a copy that came too late must not replace a newer log at the next start.
        """
        if not self._is_closed and self.failure is None and self.raft.snapshot_fetched(offer):
            self._storage.complete_copy = complete
            self._pump()

    def snapshot_failed(self, offer: InstallSnapshot) -> None:
        """The offered snapshot cannot be had; the leader may offer another one."""
        if not self._is_closed and self.failure is None:
            self.raft.snapshot_failed(offer)

    def _installed(self, snapshot: RaftSnapshot) -> None:
        """The log was replaced by a snapshot: go on from its state."""
        found, state = load_state(self._workplace.disk, self.log.directory, self.machine)
        assert found.index == snapshot.index + 1, "a snapshot is swapped in with its state"
        self.machine.restore(state.machine, found.index)
        self.snapshot_bytes = len(found.payload)
        self._snapshot = snapshot
        self._membership = snapshot.membership
        self._membership_index = EntryIndex(state.membership_index)
        self.applied_index = EntryIndex(snapshot.index)
        self._apply_start = self._apply_end = snapshot.index + 1
        self.high_watermark = Offset(state.next_offset)
        logger.info("snapshot installed", extra={"log": self.name, "index": snapshot.index})
        for notify in tuple(self._watchers):
            notify()

    def change_membership(self, membership: Membership) -> None:
        """Change the members of the group; raises when another change is under way."""
        self.check_serving()
        self.raft.propose_membership(membership)
        self._pump()

    def transfer_leader(self, to: NodeId) -> None:
        """Hand leadership to another voter, with the leases of all messages that are out."""
        self.check_serving()
        # Those that wait for a flush would be refused afterwards, as everything else is.
        self._enter(self._queue.take_sharing())
        self.raft.transfer_leader(to)
        self._pump()

    # Applying.

    def _apply_after_flush(self) -> None:
        """Apply when the flush that was asked for before has run, if it runs on the loop."""
        self._is_apply_planned = False
        if self.failure is None and not self._is_closed:
            self._apply()
            if self.raft.waits_to_read:
                self._pump()

    def _apply(self) -> None:
        start, end = self._apply_start, self._apply_end
        if start == end:
            return
        self._apply_start = end
        for index in range(start, end):
            try:
                entry = self._entry_to_apply(index)
            except (OSError, PenstockError) as damage:
                self._damaged(damage)
                self._in_flight.tell_committed()
                return
            self._apply_entry(entry)
        self.applied_index = EntryIndex(end - 1)
        self.raft.applied(self.applied_index)
        if not self.is_serving and self._may_serve():
            self._notice_leadership()
        # Those who publish wait for this; everybody else can wait for them.
        self._in_flight.tell_committed()
        if self.is_serving:
            self._wake_watchers()
            if not self.is_alone:
                self._workplace.pace.committed()
        if self._applied_waiters:
            self._applied_waiters.tell(self.applied_index)

    def _entry_to_apply(self, index: int) -> Entry:
        unapplied = self._unapplied
        while unapplied and unapplied[0].index <= index:
            entry = unapplied.popleft()
            if entry.index == index:
                return entry
        return self._stored_entry(index)

    def _apply_entry(self, entry: Entry) -> None:
        proposal = self._in_flight.take(entry.index)
        if entry.kind is RaftKind.RECORDS:
            self._apply_records(entry, proposal)
        elif entry.kind is RaftKind.STATE:
            self._apply_state(entry, proposal)
        elif entry.kind is RaftKind.MEMBERSHIP:
            self._membership = Membership.decode(entry.payload)
            self._membership_index = entry.index

    def _apply_records(self, entry: Entry, proposal: Proposal | None) -> None:
        if proposal is not None and proposal.batch is not None:
            # Its header was read when it came in, before it got its offset.
            header, offset = proposal.batch.header, proposal.offset
        else:
            header = read_header(entry.payload)
            offset = Offset(header.base_offset)
        self.high_watermark = Offset(offset + header.last_offset_delta + 1)
        self.machine.apply_records(header, offset, entry.payload)
        if proposal is not None:
            self._in_flight.records_applied(proposal)

    def _apply_state(self, entry: Entry, proposal: Proposal | None) -> None:
        state = StateEntry(entry.index, entry.term, self.high_watermark, bytes(entry.payload))
        try:
            result = self.machine.apply_state(state)
        except PenstockError as refusal:
            if proposal is not None:
                refuse(proposal, refusal)
        else:
            if proposal is not None:
                self._in_flight.state_applied(proposal, result)

    async def wait_applied(self, index: int) -> None:
        """Wait until this replica has applied the entry at `index`; raise when it never will."""
        if self.applied_index >= index:
            return
        self.check_open()
        await self._applied_waiters.add(index)

    # Reading.

    async def wait_current(self) -> None:
        """Wait until it is certain that nobody was told of anything that is not applied here.

        What was told after this was called does not count. Raises when another node may lead.
        """
        self.check_serving()
        if not self.is_alone:
            await self._current_reads.wait(self._ask_to_read)
            self.check_serving()

    def _ask_to_read(self, number: int) -> None:
        self.raft.read_index(number)
        self._pump()

    def read(self, offset: int, *, start_offset: int, bytes_max: int) -> FileRange | None:
        """Return committed batches from the one that holds `offset`, or None at the end."""
        self.check_serving()
        if not start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.name} lies outside {start_offset} to"
                f" {self.high_watermark}"
            )
        if offset == self.high_watermark:
            return None
        return self.log.read(offset, end_offset=self.high_watermark, bytes_max=bytes_max)

    def watch(self, notify: Callable[[], None]) -> None:
        """Call `notify` after each commit of a leader, and when reading ends, until `unwatch`."""
        self._watchers[notify] = None

    def unwatch(self, notify: Callable[[], None]) -> None:
        """Undo `watch`."""
        self._watchers.pop(notify, None)

    def _wake_watchers(self) -> None:
        for notify in tuple(self._watchers):
            notify()

    # Snapshots.

    @property
    def snapshot_index(self) -> EntryIndex:
        """Entries below are not needed to rebuild the machine."""
        return EntryIndex(self._snapshot.index + 1)

    @property
    def is_held(self) -> bool:
        """True while a follower copies the files of the last snapshot."""
        return self._workplace.loop.time() < self.held_until_s

    async def checkpoint(self) -> None:
        """Note how far the files are durable, so that a restart reads less of them."""
        await self._storage.run_checkpoint()

    async def save_snapshot(self) -> None:
        """Save the machine's state as of the last applied entry."""
        index = EntryIndex(self.applied_index + 1)
        if index == self.snapshot_index or self.is_snapshotting or self.is_held:
            return
        # Nothing awaits between these lines: the machine has applied exactly the entries below.
        state = ReplicaState(
            self._membership.encode(),
            self._membership_index,
            self.high_watermark,
            memoryview(self.machine.snapshot()),
        )
        membership = self._membership
        snapshot = state.as_of(index, self.log.term_at(index - 1))
        disk, directory = self._workplace.disk, self.log.directory
        self.is_snapshotting = True
        try:
            # Records that are not synced one by one must not end below their own snapshot.
            await self._storage.run_checkpoint(lambda: save_snapshot(disk, directory, snapshot))
        finally:
            self.is_snapshotting = False
        self._snapshot = RaftSnapshot(EntryIndex(index - 1), snapshot.term, membership)
        self.snapshot_bytes = len(snapshot.payload)

    # The end.

    def fail(self, failure: PenstockError) -> None:
        """Close the replica on this node: neither reads nor writes can be trusted any more."""
        if self.failure is not None:
            return
        self.failure = failure
        self.is_serving = False
        logger.error("replica failed", extra={"log": self.name, "reason": str(failure)})
        self._storage.fail(failure)
        self._fail_proposals(failure)
        self._fail_readers(failure)
        self.on_leadership()
        self._wake_watchers()

    def _damaged(self, damage: OSError | PenstockError) -> None:
        if isinstance(damage, PenstockError):
            self.fail(damage)
        else:
            self.fail(StorageFailed(f"{self.name} cannot be read: {damage}"))

    def _fail_readers(self, error: PenstockError) -> None:
        self._current_reads.refuse_all(error)
        self._applied_waiters.fail(error)

    async def close(self) -> None:
        """Wait for what is being written, save a snapshot and release the files."""
        if self._is_closed:
            return
        self._is_closed = True
        self.is_serving = False
        await self._storage.stop()
        closed = NotLeader(f"{self.name} is closed on this node")
        self._fail_proposals(closed)
        self._fail_readers(closed)
        if self.failure is None:
            await self.save_snapshot()
            await self._workplace.loop.run_in_executor(self._workplace.executor, self.log.close)
        self._storage.close()
        self._wake_watchers()
