"""One replicated log: proposals in, commits out.

A write is a proposal. Proposals wait while a flush runs; then all of them become entries, records
first, and share the next flush. When it has returned they are committed: the high watermark moves,
the machine applies them in order, and those who proposed them get their answer. Readers see
committed entries only.

Crash cases: before the flush returns nobody was told, and recovery may keep or cut the entries;
after it they are found again. A write that fails (the disk is full) takes back its flush
and fails the proposals that follow, because they may build on it. A sync that fails closes the
partition on this node for good.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from penstock.clock import Clock
from penstock.cluster.machine import Machine
from penstock.errors import (
    DiskFull,
    OffsetOutOfRange,
    PenstockError,
    StorageFailed,
    Unavailable,
)
from penstock.ids import EntryIndex, Offset, Term
from penstock.log import (
    Disk,
    EntryKind,
    FileRange,
    Flush,
    PartitionLog,
    Snapshot,
    StateEntry,
    load_snapshot,
    save_snapshot,
)
from penstock.record import RecordBatch, read_header

logger = logging.getLogger(__name__)

# What one flush takes at most, so that a burst does not make everyone wait for one huge write.
_FLUSH_BYTES_MAX = 32 * 1024 * 1024
_QUEUED_BYTES_MAX = 256 * 1024 * 1024
# Replay after a restart reads at most about this many entries.
_SNAPSHOT_ENTRIES = 50_000


@dataclass(frozen=True, slots=True)
class Workplace:
    """What every partition of a node shares."""

    loop: asyncio.AbstractEventLoop
    executor: Executor
    disk: Disk
    clock: Clock


class _Proposal:
    """What somebody wants to append, and where it went once it is an entry."""

    __slots__ = ("batch", "index", "offset", "payload", "waiter")

    def __init__(
        self, waiter: asyncio.Future[Any], batch: RecordBatch | None, payload: bytes
    ) -> None:
        self.waiter = waiter
        self.batch = batch
        self.payload = payload
        self.index = EntryIndex(-1)
        self.offset = Offset(-1)

    @property
    def size_bytes(self) -> int:
        return len(self.batch.data) if self.batch else len(self.payload)


class ReplicatedLog:
    """A log, the machine that its entries drive, and those who wait for either."""

    def __init__(
        self, name: str, log: PartitionLog, machine: Machine, workplace: Workplace
    ) -> None:
        self.name = name
        self.log = log
        self.machine = machine
        self.term = Term(max(1, log.last_term))
        self.high_watermark = log.next_offset
        self.failure: PenstockError | None = None
        self._workplace = workplace
        self._records: list[_Proposal] = []
        self._states: list[_Proposal] = []
        self._queued_bytes = 0
        self._in_flight: list[_Proposal] = []
        self._is_busy = False
        self._is_closed = False
        self._exclusive: list[Callable[[], None]] = []
        self._watchers: set[Callable[[], None]] = set()
        self._snapshot_index = self._replay()
        self.is_snapshotting = False

    # Writing.

    def propose_records(self, batch: RecordBatch) -> asyncio.Future[Offset]:
        """Append a batch; the future gives the offset of its first record once it is committed."""
        return self._propose(self._records, batch, b"")

    def propose_state(self, payload: bytes) -> asyncio.Future[Any]:
        """Append a state entry; the future gives what the machine answers once it is committed."""
        return self._propose(self._states, None, payload)

    @property
    def is_idle(self) -> bool:
        """True when no proposal waits or is being written."""
        return not (self._in_flight or self._records or self._states)

    def _propose(
        self, queue: list[_Proposal], batch: RecordBatch | None, payload: bytes
    ) -> asyncio.Future[Any]:
        self.check_open()
        if self._queued_bytes > _QUEUED_BYTES_MAX:
            raise Unavailable(
                f"{self.name} has {self._queued_bytes} bytes waiting for the disk,"
                f" more than {_QUEUED_BYTES_MAX}"
            )
        proposal = _Proposal(self._workplace.loop.create_future(), batch, payload)
        queue.append(proposal)
        self._queued_bytes += proposal.size_bytes
        self._advance()
        return proposal.waiter

    def check_open(self) -> None:
        """Raise when the partition can neither be written nor read."""
        if self.failure is not None:
            raise self.failure
        if self._is_closed:
            raise Unavailable(f"{self.name} is closed on this node")

    def _advance(self) -> None:
        """Start the next flush, or work that must not run beside one."""
        if self._is_busy:
            return
        if self._exclusive:
            self._is_busy = True
            self._exclusive.pop(0)()
        elif self._records or self._states:
            self._append_queued()
            flush = self.log.take_flush()
            assert flush is not None
            self._is_busy = True
            self._workplace.executor.submit(self._run_flush, flush)

    def _append_queued(self) -> None:
        """Turn proposals into entries, records before state entries as `Flush` demands."""
        now_ms = self._workplace.clock.now_ms()
        size_bytes = 0
        taken = 0
        for proposal in self._records:
            if taken and size_bytes + proposal.size_bytes > _FLUSH_BYTES_MAX:
                break
            assert proposal.batch is not None
            proposal.index = self.log.next_index
            proposal.offset = self.log.append_records(proposal.batch, term=self.term, now_ms=now_ms)
            size_bytes += proposal.size_bytes
            taken += 1
        self._in_flight = self._records[:taken] + self._states
        del self._records[:taken]
        for proposal in self._states:
            proposal.offset = self.log.next_offset
            proposal.index = self.log.append_state(proposal.payload, term=self.term, now_ms=now_ms)
            size_bytes += proposal.size_bytes
        self._states.clear()
        self._queued_bytes -= size_bytes

    def _run_flush(self, flush: Flush) -> None:
        """Run in a thread; the outcome is handled on the loop."""
        error: Exception | None = None
        try:
            flush.run()
        except (OSError, PenstockError) as failure:
            error = failure
        self._workplace.loop.call_soon_threadsafe(self._after_flush, flush, error)

    def _after_flush(self, flush: Flush, error: Exception | None) -> None:
        self._is_busy = False
        if error is not None:
            self._flush_failed(flush, error)
            return
        self.log.finish(flush)
        committed, self._in_flight = self._in_flight, []
        high_watermark = self.log.next_offset
        # The disk works on the next flush while this one's answers are given.
        self._advance()
        for proposal in committed:
            self._commit(proposal)
        self.high_watermark = high_watermark
        for notify in tuple(self._watchers):
            notify()

    def _commit(self, proposal: _Proposal) -> None:
        waiter = proposal.waiter
        if proposal.batch is not None:
            self.machine.apply_records(proposal.batch.header, proposal.offset)
            if not waiter.done():
                waiter.set_result(proposal.offset)
            return
        entry = StateEntry(proposal.index, self.term, proposal.offset, proposal.payload)
        try:
            result = self.machine.apply_state(entry)
        except PenstockError as refusal:
            if not waiter.done():
                waiter.set_exception(refusal)
        else:
            if not waiter.done():
                waiter.set_result(result)

    def _flush_failed(self, flush: Flush, error: Exception) -> None:
        if isinstance(error, OSError):
            try:
                self.log.abandon(flush)
            except (OSError, PenstockError) as second:
                error = StorageFailed(f"{self.name} could not take back a failed write: {second}")
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            failure: PenstockError = DiskFull(f"the disk ran full while {self.name} was written")
            logger.warning("disk ran full", extra={"log": self.name})
        else:
            failure = StorageFailed(f"{self.name} is closed on this node: {error}")
            self.fail(failure)
        self._fail_proposals(failure)
        self._advance()

    def fail(self, failure: PenstockError) -> None:
        """Close the partition on this node: neither reads nor writes can be trusted any more."""
        self.failure = failure
        logger.error("partition failed", extra={"log": self.name, "reason": str(failure)})

    def _fail_proposals(self, failure: PenstockError) -> None:
        failed = [*self._in_flight, *self._records, *self._states]
        self._in_flight.clear()
        self._records.clear()
        self._states.clear()
        self._queued_bytes = 0
        for proposal in failed:
            if not proposal.waiter.done():
                proposal.waiter.set_exception(failure)

    # Reading.

    def read(self, offset: int, *, start_offset: int, bytes_max: int) -> FileRange | None:
        """Return committed batches from the one that holds `offset`, or None at the end."""
        self.check_open()
        if not start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.name} lies outside {start_offset} to"
                f" {self.high_watermark}"
            )
        if offset == self.high_watermark:
            return None
        return self.log.read(offset, end_offset=self.high_watermark, bytes_max=bytes_max)

    def watch(self, notify: Callable[[], None]) -> None:
        """Call `notify` after each commit until `unwatch`."""
        self._watchers.add(notify)

    def unwatch(self, notify: Callable[[], None]) -> None:
        """Undo `watch`."""
        self._watchers.discard(notify)

    # Work that must not run beside a flush, and snapshots.

    async def run_exclusive(self, work: Callable[[], Any]) -> Any:
        """Run `work` in a thread while no flush runs; proposals wait meanwhile."""
        done: asyncio.Future[Any] = self._workplace.loop.create_future()

        def start() -> None:
            running = self._workplace.loop.run_in_executor(self._workplace.executor, work)
            running.add_done_callback(finish)

        def finish(running: asyncio.Future[Any]) -> None:
            self._is_busy = False
            if not done.done():
                error = running.exception()
                if error is not None:
                    done.set_exception(error)
                else:
                    done.set_result(running.result())
            self._advance()

        self._exclusive.append(start)
        self._advance()
        return await done

    @property
    def snapshot_index(self) -> EntryIndex:
        """Entries below are not needed to rebuild the machine."""
        return self._snapshot_index

    @property
    def needs_snapshot(self) -> bool:
        """True when a restart would have to replay many entries."""
        return self.log.written_index - self._snapshot_index >= _SNAPSHOT_ENTRIES

    async def save_snapshot(self) -> None:
        """Save the machine's state as of the last committed entry."""
        index = self.log.written_index
        if index == self._snapshot_index or self.is_snapshotting:
            return
        # Nothing awaits between these lines: the machine has applied exactly the entries below.
        term = self.log.term_at(index - 1)
        snapshot = Snapshot(index, term, self.machine.snapshot())
        self.is_snapshotting = True
        try:
            await self._workplace.loop.run_in_executor(
                self._workplace.executor,
                save_snapshot,
                self._workplace.disk,
                self.log.directory,
                snapshot,
            )
        finally:
            self.is_snapshotting = False
        self._snapshot_index = index

    def _replay(self) -> EntryIndex:
        """Rebuild the machine from the newest snapshot and the entries after it."""
        snapshot = load_snapshot(self._workplace.disk, self.log.directory)
        start = EntryIndex(0)
        if snapshot is not None:
            self.machine.restore(snapshot.payload, snapshot.index)
            start = snapshot.index
        states = self.log.state_entries(start)
        for segment in self.log.segments:
            batches = segment.files.log.view()
            for number in range(max(0, start - segment.first_index), segment.table.count):
                row = segment.table.row(number)
                if row.kind == EntryKind.STATE:
                    self._apply_again(next(states))
                elif row.size:
                    header = read_header(batches, row.log_position)
                    self.machine.apply_records(header, Offset(row.first_offset))
        return start

    def _apply_again(self, entry: StateEntry) -> None:
        try:
            self.machine.apply_state(entry)
        except PenstockError as refusal:
            # It was refused when it was first applied, and its proposer was told so.
            logger.debug("entry refused again", extra={"log": self.name, "reason": str(refusal)})

    async def close(self) -> None:
        """Wait for what is in flight, save a snapshot and release the files."""
        self._is_closed = True
        while self._is_busy:
            await self.run_exclusive(lambda: None)
        self._fail_proposals(Unavailable(f"{self.name} is closed on this node"))
        if self.failure is None:
            await self.save_snapshot()
            await self._workplace.loop.run_in_executor(self._workplace.executor, self.log.close)
        for notify in tuple(self._watchers):
            notify()
