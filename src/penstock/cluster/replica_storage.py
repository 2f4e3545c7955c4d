"""Carries the writes of a replica to its disk, in order, one flush at a time.

Consensus hands out writes faster than the disk takes them. They wait here; everything that waits
while a flush runs shares the next one, as far as `Flush` allows: records, then state entries. Each
write is reported as persisted when all of it, and all before it, is on disk.

What may fail: a write to a full disk is taken back and tried again until there is room. Terms and
votes have their room already and do not wait for it: they are saved ahead of the entries, with the
commit index that was saved before, because after a crash the newer one could speak of entries that
were still to be cut. Messages have revealed them by then, so writes that are older and still wait
no longer save their own: a crash would bring an older term back, and with it a vote that was given
already. A sync that fails ends the replica on this node, and so does damage. From then on nothing
is reported as persisted, not even what is being written: a kernel reports a lost write once, and
whoever synced first has taken the report.

A small flush on a quick disk runs on the loop (`flush_pace`), when the turn of the loop that asked
for it is over: by then the messages that go with the write are on their way, and it is known
whether more waits to be written. If so, a thread runs it, and the loop goes on meanwhile.
"""

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from penstock.cluster.transfer import swap_in
from penstock.cluster.workplace import Workplace
from penstock.errors import PenstockError, StorageFailed, Unavailable
from penstock.ids import EntryIndex
from penstock.log import EntryKind, Flush, HardStateFile, PartitionLog
from penstock.raft import Entry, HardState, Mark, Snapshot, Write
from penstock.raft import EntryKind as RaftKind
from penstock.record import RecordBatch, read_header

logger = logging.getLogger(__name__)

# What one flush takes at most, so that a burst does not make everyone wait for one huge write.
_FLUSH_BYTES_MAX = 32 * 1024 * 1024
# A larger one takes longer to write than a thread takes to wake up.
_HERE_BYTES_MAX = 16 * 1024
_RETRY_S = 0.5
# Looking a member up in its enum costs as much as a call.
_RECORDS: Final = RaftKind.RECORDS

LOG_KINDS = {
    RaftKind.NOOP: EntryKind.NOOP,
    RaftKind.MEMBERSHIP: EntryKind.MEMBERSHIP,
    RaftKind.RECORDS: EntryKind.RECORDS,
    RaftKind.STATE: EntryKind.STATE,
}
RAFT_KINDS = {kind: raft_kind for raft_kind, kind in LOG_KINDS.items()}


class _Job(msgspec.Struct):
    """What one visit to the disk does, and what it proves when it returns."""

    flush: Flush | None = None
    mark: Mark | None = None
    # How many writes it finishes, and how many entries of the one after that it takes.
    writes: int = 0
    entries: int = 0
    hard_states: list[HardState] = []
    install: Snapshot | None = None
    truncate_from: EntryIndex | None = None
    duration_s: float = 0.0
    ran_on_loop: bool = False

    @property
    def is_small(self) -> bool:
        """True for one small batch of records or a few small state entries, and nothing else."""
        flush = self.flush
        return (
            flush is not None
            and not self.hard_states
            and flush.size_bytes <= _HERE_BYTES_MAX
            and flush.is_slight
        )


class ReplicaStorage:
    """The disk of one replica."""

    def __init__(
        self,
        log: PartitionLog,
        hard_state: HardStateFile,
        workplace: Workplace,
        *,
        on_persisted: Callable[[Mark], None],
        on_hard_state: Callable[[Mark], None],
        on_installed: Callable[[Snapshot], None],
        on_full: Callable[[], None],
        on_failed: Callable[[PenstockError], None],
        on_idle: Callable[[], None],
        has_queued: Callable[[], bool],
    ) -> None:
        self._log = log
        self._hard_state = hard_state
        self._workplace = workplace
        self._on_persisted = on_persisted
        self._on_hard_state = on_hard_state
        self._on_installed = on_installed
        self._on_full = on_full
        self._on_failed = on_failed
        self._on_idle = on_idle
        self._has_queued = has_queued
        self._writes: deque[Write] = deque()
        # How many entries of the first write are on their way or done.
        self._taken = 0
        # Makes the copy of a snapshot final; set while its installation waits or runs.
        self.complete_copy: Callable[[], None] | None = None
        self._exclusive: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._is_busy = False
        self._is_cutting = False
        self._checkpoints = 0
        self._keepers = 0
        self._end: PenstockError | None = None
        self._has_failed = False
        self._stopped: asyncio.Future[None] = workplace.loop.create_future()
        self.is_full = False
        self.is_leading = False
        """Whether clients wait for what is written here, and send more when it is done."""
        # The newest write whose hard state was saved ahead of its entries, or could not be.
        self._saved_ahead = -1
        self._ahead: HardState | None = None

    @property
    def is_idle(self) -> bool:
        """True when nothing waits and nothing runs."""
        return not (self._is_busy or self._writes or self._exclusive)

    def write(self, write: Write) -> None:
        """Carry out a write after all earlier ones."""
        self._writes.append(write)
        self._advance()

    async def run_exclusive(self, work: Callable[[], Any]) -> Any:
        """Run `work` in a thread while nothing is being written; raise when the replica ends."""
        done: asyncio.Future[Any] = self._workplace.loop.create_future()
        self._exclusive.append((work, done))
        self._advance()
        return await done

    async def run_checkpoint(self, after: Callable[[], None] = lambda: None) -> None:
        """Note how far the files are durable, then run `after`, both in a thread.

        Flushes go on meanwhile. Cuts wait: a checkpoint that outlived the entries it speaks of
        would have recovery take their loss for damage.
        """
        while self._is_cutting:
            await self.run_exclusive(lambda: None)
        checkpoint = self._log.take_checkpoint()

        def work() -> None:
            if checkpoint is not None:
                checkpoint.run()
            after()

        self._checkpoints += 1
        try:
            await self._workplace.loop.run_in_executor(self._workplace.executor, work)
            if checkpoint is not None:
                self._log.finish_checkpoint(checkpoint)
        finally:
            self._checkpoints -= 1
            self._advance()

    @contextmanager
    def keeping_files(self) -> Iterator[None]:
        """Keep the files of sealed segments for work that removes or replaces them.

        The installation of a snapshot waits meanwhile: its files may have the same names. It is
        refused when one waits already.
        """
        if self.complete_copy is not None:
            raise Unavailable(f"{self._log.directory} is about to be replaced by a snapshot")
        self._keepers += 1
        try:
            yield
        finally:
            self._keepers -= 1
            self._advance()

    def _must_wait(self, write: Write) -> bool:
        """Whether a write takes away what others work with beside the flushes."""
        return bool(
            (self._checkpoints and _is_cut(write)) or (self._keepers and write.snapshot is not None)
        )

    def _advance(self) -> None:
        if self._is_busy:
            return
        if self._end is not None:
            self._finish_end(self._end)
        elif self._exclusive:
            self._run_exclusive(*self._exclusive.popleft())
        elif self.is_full:
            self._save_ahead()
        elif self._writes:
            is_in_use = self._checkpoints or self._keepers
            if not (is_in_use and self._must_wait(self._writes[0])):
                self._begin()
        else:
            self._on_idle()

    def _begin(self) -> None:
        self._is_busy = True
        pace = self._workplace.pace
        pace.plan()
        job = self._next_job()
        if pace.is_quick and job.is_small:
            self._workplace.loop.call_soon(self._run_after_turn, job)
        else:
            self._workplace.executor.submit(self._run, job)

    def _run_after_turn(self, job: _Job) -> None:
        pace = self._workplace.pace
        is_alone = job.writes == len(self._writes) and not self._has_queued()
        if is_alone and pace.may_run_here(self):
            job.ran_on_loop = True
            self._after(job, self._visit_disk(job))
        else:
            self._workplace.executor.submit(self._run, job)

    def _save_ahead(self) -> None:
        """Save the newest term and vote while entries find no room."""
        waiting = [write for write in self._writes if write.hard_state is not None]
        if not waiting or waiting[-1].mark.sequence <= self._saved_ahead:
            return
        newest, mark = waiting[-1].hard_state, waiting[-1].mark
        assert newest is not None
        commit = self._hard_state.newest.commit

        def save() -> None:
            self._hard_state.save(term=newest.term, vote=newest.vote, commit=commit)

        def finish(running: asyncio.Future[None]) -> None:
            self._is_busy = False
            self._saved_ahead = mark.sequence
            self._ahead = newest
            error = running.exception()
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                logger.warning("no room for a vote", extra={"log": str(self._log.directory)})
            elif error is not None:
                self._fail_by(error)
            elif not self._has_failed:
                self._on_hard_state(mark)
            self._advance()

        self._is_busy = True
        running = self._workplace.loop.run_in_executor(self._workplace.executor, save)
        running.add_done_callback(finish)

    def _run_exclusive(self, work: Callable[[], Any], done: asyncio.Future[Any]) -> None:
        def finish(running: asyncio.Future[Any]) -> None:
            self._is_busy = False
            error = running.exception()
            if not done.done():
                if error is not None:
                    done.set_exception(error)
                else:
                    done.set_result(running.result())
            if isinstance(error, StorageFailed):
                # Nothing may follow a sync that failed, and who waits for the work hears of it
                # a turn of the loop later.
                self._fail_by(error)
            self._advance()

        self._is_busy = True
        running = self._workplace.loop.run_in_executor(self._workplace.executor, work)
        running.add_done_callback(finish)

    # Putting a job together.

    def _next_job(self) -> _Job:
        first = self._writes[0]
        if first.truncate_from is not None or first.snapshot is not None:
            # Both must be durable before their place is taken; the entries go with the next job.
            self._is_cutting = True
            self._writes[0] = Write(first.mark, None, None, first.entries, first.hard_state)
            return _Job(install=first.snapshot, truncate_from=first.truncate_from)
        now_ms = self._workplace.clock.now_ms()
        if len(self._writes) == len(first.entries) == 1 and first.hard_state is None:
            # One entry, and nothing else: there is nothing to choose.
            self._append(first.entries[0], now_ms)
            return _Job(flush=self._log.take_flush(), mark=first.mark, writes=1)
        job = _Job()
        self._take_entries(job, now_ms)
        job.flush = self._log.take_flush()
        return job

    def _take_entries(self, job: _Job, now_ms: int) -> None:
        """Append entries of one write after another, as far as one flush can take them.

        The first write cuts nothing.
        """
        size_bytes = 0
        has_state = False
        position = self._taken
        for number, write in enumerate(self._writes):
            if number and _is_cut(write):
                return
            for taken, entry in enumerate(write.entries[position:], start=position):
                is_records = entry.kind is _RECORDS
                if (is_records and has_state) or size_bytes > _FLUSH_BYTES_MAX:
                    job.entries = taken
                    return
                self._append(entry, now_ms)
                has_state = has_state or not is_records
                size_bytes += entry.size_bytes
            position = 0
            job.writes = number + 1
            job.mark = write.mark
            if write.hard_state is not None:
                job.hard_states.append(self._not_before_ahead(write.mark, write.hard_state))

    def _not_before_ahead(self, mark: Mark, own: HardState) -> HardState:
        """Return what a write saves: never an older term or vote than was saved ahead of it."""
        ahead = self._ahead
        if ahead is None or mark.sequence > self._saved_ahead:
            return own
        return HardState(ahead.term, ahead.vote, own.commit)

    def _append(self, entry: Entry, now_ms: int) -> None:
        assert entry.index == self._log.next_index, "consensus and log count alike"
        if entry.kind is _RECORDS:
            data = memoryview(entry.payload)
            batch = RecordBatch(read_header(data), data)
            offset = self._log.append_records(batch, term=entry.term, now_ms=now_ms)
            assert batch.header.base_offset == offset, "replicas count alike"
        else:
            self._log.append_state(
                bytes(entry.payload), term=entry.term, now_ms=now_ms, kind=LOG_KINDS[entry.kind]
            )

    # Running a job.

    def _run(self, job: _Job) -> None:
        """Run in a thread; the outcome is handled on the loop."""
        error = self._visit_disk(job)
        self._workplace.loop.call_soon_threadsafe(self._after, job, error)

    def _visit_disk(self, job: _Job) -> Exception | None:
        begin_s = self._workplace.clock.steady_s()
        try:
            self._carry_out(job)
        except (OSError, PenstockError) as failure:
            return failure
        finally:
            job.duration_s = self._workplace.clock.steady_s() - begin_s
        return None

    def _carry_out(self, job: _Job) -> None:
        if job.install is not None:
            assert self.complete_copy is not None, "a snapshot is copied before it is wanted"
            self.complete_copy()
            swap_in(self._workplace.disk, self._log.directory)
            self._log.reopen()
        if job.truncate_from is not None:
            self._log.truncate(job.truncate_from)
        if job.hard_states:
            newest = job.hard_states[-1]
            self._hard_state.save(term=newest.term, vote=newest.vote, commit=newest.commit)
        if job.flush is not None:
            job.flush.run()

    def _after(self, job: _Job, error: Exception | None) -> None:
        # Those who wait for the disk hear of it before anything else is done.
        if error is None and not self._has_failed:
            self._job_done(job)
        self._is_busy = False
        self._is_cutting = False
        pace = self._workplace.pace
        pace.ended(job.duration_s)
        if job.ran_on_loop:
            pace.ran_here(self, is_leading=self.is_leading)
        if error is not None and not self._has_failed:
            self._job_failed(job, error)
        self._advance()

    def _job_done(self, job: _Job) -> None:
        self.is_full = False
        if job.flush is not None:
            self._log.finish(job.flush)
        for _ in range(job.writes):
            self._writes.popleft()
        self._taken = job.entries if job.writes or job.entries else self._taken
        if job.install is not None:
            self.complete_copy = None
            self._on_installed(job.install)
        if job.mark is not None:
            self._on_persisted(job.mark)

    def _job_failed(self, job: _Job, error: Exception) -> None:
        if isinstance(error, OSError):
            try:
                if job.flush is not None:
                    self._log.abandon(job.flush)
            except (OSError, PenstockError) as second:
                error = StorageFailed(f"a failed write could not be taken back: {second}")
        is_write = job.install is None and job.truncate_from is None
        if is_write and isinstance(error, OSError) and error.errno == errno.ENOSPC:
            logger.warning("disk ran full", extra={"log": str(self._log.directory)})
            self.is_full = True
            self._workplace.loop.call_later(_RETRY_S, self._retry)
            self._on_full()
        else:
            self._fail_by(error)

    def _fail_by(self, error: BaseException) -> None:
        failure = StorageFailed(f"the disk failed: {error}")
        self.fail(failure)
        self._on_failed(failure)

    def _retry(self) -> None:
        self.is_full = False
        self._advance()

    # The end.

    def fail(self, failure: PenstockError) -> None:
        """Begin nothing and report nothing any more."""
        self._has_failed = True
        self._end = self._end or failure
        self._advance()

    async def stop(self) -> None:
        """Begin nothing any more, and wait for what is being written."""
        self._end = self._end or Unavailable(f"{self._log.directory} is being closed")
        self._advance()
        await asyncio.shield(self._stopped)

    def _finish_end(self, end: PenstockError) -> None:
        while self._exclusive:
            done = self._exclusive.popleft()[1]
            if not done.done():
                done.set_exception(end)
        if not self._stopped.done():
            self._stopped.set_result(None)

    def close(self) -> None:
        """Release the hard state; nothing runs any more."""
        self._hard_state.close()


def _is_cut(write: Write) -> bool:
    """True when the write takes entries away before it adds any."""
    return write.snapshot is not None or write.truncate_from is not None
