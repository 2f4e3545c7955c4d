"""What a replica has on disk when consensus is told so, in the order in which it asked."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from penstock.cluster import FlushPace, replica_storage
from penstock.cluster.replica_storage import LOG_KINDS, ReplicaStorage
from penstock.cluster.transfer import IncomingCopy
from penstock.errors import PenstockError, StorageFailed, Unavailable
from penstock.ids import EntryIndex, NodeId, Offset, Term
from penstock.log import HardStateFile, IndexHeader, LogSettings, PartitionLog
from penstock.raft import Entry, EntryKind, HardState, Mark, Membership, Write
from penstock.raft import Snapshot as RaftSnapshot
from penstock.record import stamp
from penstock.testing import MachineStopped, SimDisk
from tests.unit.cluster.workplaces import (
    DIRECTORY,
    SimMachine,
    ThreadsOnly,
    batch,
    run,
    settle,
    stop_before_every_step,
    turn,
)

RECORDS, STATE, NOOP = EntryKind.RECORDS, EntryKind.STATE, EntryKind.NOOP


class Consensus:
    """Asks for writes as the core does, and keeps what it is told."""

    def __init__(self) -> None:
        self.persisted: list[Mark] = []
        self.hard_states: list[Mark] = []
        self.failures: list[PenstockError] = []
        self.times_full = 0
        self.entries: list[Entry] = []
        self._offsets: list[int] = [0]
        self._sequence = 0

    def write(
        self,
        kinds: Sequence[EntryKind] = (),
        *,
        term: int = 1,
        cut: int | None = None,
        vote: int | None = None,
        size_bytes: int = 1,
    ) -> Write:
        """Cut the log, append entries of these kinds, and save a vote when one is given."""
        if cut is not None:
            del self.entries[cut - 1 :]
            del self._offsets[cut:]
        made = [self._entry(kind, term, size_bytes) for kind in kinds]
        self._sequence += 1
        return Write(
            Mark(self._sequence, EntryIndex(len(self.entries))),
            None,
            None if cut is None else EntryIndex(cut),
            made,
            None if vote is None else HardState(Term(term), NodeId(vote), EntryIndex(0)),
        )

    def _entry(self, kind: EntryKind, term: int, size_bytes: int) -> Entry:
        index = EntryIndex(len(self.entries) + 1)
        payload: Any = b"%d-%d" % (term, index) + b"x" * size_bytes if kind is STATE else b""
        if kind is RECORDS:
            made = batch(b"%d-%d" % (term, index) + b"x" * size_bytes)
            stamp(made.data, self._offsets[-1], term)
            payload = made.data
        entry = Entry(index, Term(term), kind, len(payload), payload)
        self.entries.append(entry)
        self._offsets.append(self._offsets[-1] + (kind is RECORDS))
        return entry


class Replica:
    """The files of a replica, and who asks for them to be written."""

    def __init__(self, machine: SimMachine, **settings: Any) -> None:
        self.machine = machine
        self.consensus = Consensus()
        self.log = open_log(machine.disk, **settings)
        self.hard_state = HardStateFile(machine.disk, DIRECTORY)
        self.idle_times = 0
        self.storage = ReplicaStorage(
            self.log,
            self.hard_state,
            machine.workplace(),
            on_persisted=self.consensus.persisted.append,
            on_hard_state=self.consensus.hard_states.append,
            on_installed=lambda _: None,
            on_full=self._full,
            on_failed=self.consensus.failures.append,
            on_idle=self._idle,
            has_queued=lambda: False,
        )

    def _full(self) -> None:
        self.consensus.times_full += 1

    def _idle(self) -> None:
        self.idle_times += 1

    def write(self, *args: Any, **options: Any) -> Write:
        write = self.consensus.write(*args, **options)
        self.storage.write(write)
        return write


def open_log(disk: SimDisk, **settings: Any) -> PartitionLog:
    log = PartitionLog(disk, DIRECTORY, LogSettings(**settings))
    if log.is_empty:
        log.begin_at(index=EntryIndex(1), offset=Offset(0), term=Term(0))
    return log


Content = list[tuple[int, int, bytes]]


def stored(log: PartitionLog) -> Content:
    """Return term, kind and payload of every entry, which have been checked."""
    found: Content = []
    for row, _, index in log.rows(1):
        assert index == len(found) + 1
        found.append((row.term, row.kind, bytes(log.payload_at(index)[1])))
    return found


def content(entries: Sequence[Entry]) -> Content:
    return [(entry.term, LOG_KINDS[entry.kind], bytes(entry.payload)) for entry in entries]


def test_entries_are_written_as_consensus_counts_them_and_reported_once() -> None:
    async def scene() -> None:
        replica = Replica(SimMachine())

        write = replica.write([NOOP, RECORDS, STATE, RECORDS], vote=1)
        await turn()

        assert replica.consensus.persisted == [write.mark]
        assert stored(replica.log) == content(replica.consensus.entries)
        assert replica.hard_state.newest[-3:] == (1, 1, 0)
        assert replica.storage.is_idle

    run(scene())


def test_a_snapshot_is_installed_only_when_nobody_works_on_the_files_it_replaces() -> None:
    async def scene() -> None:
        replica = Replica(SimMachine())
        replica.write([NOOP, RECORDS])
        await turn()
        copy = IncomingCopy(replica.machine.disk, DIRECTORY)
        snapshot = RaftSnapshot(EntryIndex(8), Term(1), Membership())
        active = IndexHeader(9, 5, 1, 0)

        with replica.storage.keeping_files():
            replica.storage.complete_copy = lambda: copy.complete([], active)
            replica.storage.write(Write(Mark(2, snapshot.index), snapshot, None, (), None))
            await turn()
            assert replica.log.next_index == 3
            with pytest.raises(Unavailable), replica.storage.keeping_files():
                pass
        await turn()

        assert replica.log.next_index == 9
        assert replica.storage.is_idle

    run(scene())


def test_records_after_state_entries_go_with_the_next_flush() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        machine.executor.hold()

        write = replica.write([RECORDS, STATE, RECORDS, RECORDS, STATE, NOOP, RECORDS])
        written = []
        while machine.executor.held:
            assert replica.consensus.persisted == []
            machine.executor.run_next()
            await turn()
            written.append(replica.log.written_index - 1)

        assert written == [2, 6, 7]
        assert replica.consensus.persisted == [write.mark]
        assert stored(replica.log) == content(replica.consensus.entries)

    run(scene())


def test_writes_that_come_while_one_runs_share_the_next_flush_and_are_reported_together() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        machine.executor.hold()
        first = replica.write([RECORDS])

        for _ in range(20):
            last = replica.write([RECORDS])
        assert machine.executor.held == 1
        machine.executor.run_next()
        await turn()
        assert replica.consensus.persisted == [first.mark]
        machine.executor.run_next()
        await turn()

        assert machine.executor.held == 0
        assert replica.consensus.persisted == [first.mark, last.mark]

    run(scene())


def test_a_write_is_reported_only_when_all_of_it_is_flushed() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        machine.executor.hold()
        replica.write([STATE])
        whole = replica.write([STATE, STATE])
        split = replica.write([STATE, RECORDS])
        machine.executor.run_next()
        await turn()

        machine.executor.run_next()
        await turn()
        assert replica.consensus.persisted[-1] == whole.mark
        assert replica.log.written_index == 5
        machine.executor.run_next()
        await turn()

        assert replica.consensus.persisted[-1] == split.mark

    run(scene())


def test_one_flush_takes_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        monkeypatch.setattr(replica_storage, "_FLUSH_BYTES_MAX", 2_000)
        machine = SimMachine()
        replica = Replica(machine)
        machine.executor.hold()

        write = replica.write([RECORDS] * 10, size_bytes=500)
        flushes = 0
        while machine.executor.held:
            machine.executor.run_next()
            await turn()
            flushes += 1

        assert flushes == 3
        assert replica.consensus.persisted == [write.mark]

    run(scene())


def test_a_cut_is_durable_before_its_place_is_taken() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        replica.write([RECORDS, STATE, RECORDS])
        await turn()
        trace = machine.disk.trace = []

        write = replica.write([RECORDS, STATE], term=2, cut=2)
        await turn()

        last_cut = max(number for number, step in enumerate(trace) if step == "truncate")
        assert "sync" in trace[last_cut : trace.index("write", last_cut)]
        assert replica.consensus.persisted[-1] == write.mark
        assert stored(replica.log) == content(replica.consensus.entries)
        assert [entry.term for entry in replica.consensus.entries] == [1, 2, 2]

    run(scene())


def test_a_cut_waits_for_the_writes_before_it() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        machine.executor.hold()
        replica.write([RECORDS])
        before = replica.write([RECORDS, RECORDS])
        after = replica.write([RECORDS], term=2, cut=2)
        again = replica.write([RECORDS], term=3, cut=2)

        machine.executor.release()
        await turn()

        assert replica.consensus.persisted[1:] == [before.mark, after.mark, again.mark]
        assert stored(replica.log) == content(replica.consensus.entries)

    run(scene())


def test_term_and_vote_are_on_disk_before_they_are_reported() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        machine.executor.hold()
        write = replica.write(term=4, vote=2)
        await turn()
        assert replica.consensus.persisted == []
        machine.executor.release()
        await turn()

        assert replica.consensus.persisted == [write.mark]
        machine.disk.crash(Random(1))
        assert HardStateFile(machine.disk, DIRECTORY).newest[-3:] == (4, 2, 0)

    run(scene())


def test_of_several_votes_that_wait_the_newest_is_saved() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        machine.executor.hold()
        replica.write([NOOP])
        for term in range(2, 6):
            last = replica.write(term=term, vote=term % 3)
        trace = machine.disk.trace = []
        machine.executor.run_next()
        trace.clear()
        machine.executor.release()
        await turn()

        assert trace == ["write", "sync"]
        assert replica.consensus.persisted[-1] == last.mark
        assert replica.hard_state.newest[-3:] == (5, 2, 0)

    run(scene())


def _script(consensus: Consensus) -> Iterator[Write]:
    """Ask for writes of all kinds, as a follower under changing leaders would."""
    yield consensus.write(term=1, vote=1)
    yield consensus.write([NOOP, RECORDS, STATE], term=1)
    yield consensus.write([RECORDS, STATE, RECORDS, RECORDS], term=1)
    yield consensus.write([NOOP, RECORDS], term=2, cut=5, vote=2)
    yield consensus.write([RECORDS] * 5, term=2, size_bytes=100)
    yield consensus.write(term=3, vote=3)
    yield consensus.write([NOOP, STATE, RECORDS], term=4, cut=2, vote=1)
    yield consensus.write([STATE, RECORDS, RECORDS, STATE], term=4, size_bytes=100)
    yield consensus.write(term=5, cut=7)
    yield consensus.write([NOOP, RECORDS], term=5)


def _allowed() -> tuple[list[list[Content]], list[list[tuple[int, int, int]]]]:
    """Return what may be found once each write was reported: the logs, and the hard states."""
    consensus = Consensus()
    steps: list[tuple[list[Content], tuple[int, int, int]]] = [([[]], (0, -1, 0))]
    vote = (0, -1, 0)
    before: Content = []
    for write in _script(consensus):
        after = content(consensus.entries)
        kept = write.truncate_from - 1 if write.truncate_from else len(before)
        cuts = [before[:end] for end in range(len(before), kept - 1, -1)]
        appends = [after[:end] for end in range(kept, len(after) + 1)]
        if write.hard_state is not None:
            vote = (write.hard_state.term, write.hard_state.vote or -1, 0)
        steps.append(([*cuts, *appends], vote))
        before = after
    logs = [
        [found for log, _ in steps[done + 1 :] for found in log] + [steps[done][0][-1]]
        for done in range(len(steps))
    ]
    votes = [[vote for _, vote in steps[done:]] for done in range(len(steps))]
    return logs, votes


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pause", [0, 3, 30])
@pytest.mark.parametrize("pace", [ThreadsOnly, FlushPace])
def test_what_was_reported_is_found_after_a_power_cut_before_any_step(
    seed: int, pause: int, pace: type[FlushPace]
) -> None:
    logs, votes = _allowed()

    async def scene(stop: int) -> bool:
        machine = SimMachine()
        machine.pace = pace(machine.clock)
        replica = Replica(machine, segment_bytes=300)
        machine.disk.stop_before(stop)
        with suppress(MachineStopped):
            for write in _script(replica.consensus):
                replica.storage.write(write)
                await turn(pause)
        with suppress(MachineStopped):
            await turn()
        done = max((mark.sequence for mark in replica.consensus.persisted), default=0)
        machine.disk.crash(Random(1000 * seed + stop))

        found = stored(open_log(machine.disk, segment_bytes=300))
        assert found in logs[done]
        assert HardStateFile(machine.disk, DIRECTORY).newest[-3:] in votes[done]
        return done < len(logs) - 1

    assert stop_before_every_step(scene) > 40


@pytest.mark.parametrize("tears", [False, True])
def test_a_write_to_a_full_disk_is_tried_again_until_there_is_room(tears: bool) -> None:
    async def scene() -> None:
        machine = SimMachine()
        machine.disk.tears_when_full = tears
        replica = Replica(machine)
        first = replica.write([RECORDS, STATE])
        await turn()
        machine.disk.capacity_bytes = 1
        replica.write([RECORDS, STATE, RECORDS], term=2, size_bytes=300)
        last = replica.write([STATE], term=2)
        await turn()
        assert replica.storage.is_full
        assert replica.consensus.times_full == 1
        await asyncio.sleep(3)
        assert replica.consensus.times_full > 3
        assert replica.consensus.persisted == [first.mark]

        machine.disk.capacity_bytes = None
        await asyncio.sleep(1)

        assert replica.consensus.persisted == [first.mark, last.mark]
        assert replica.consensus.failures == []
        assert not replica.storage.is_full
        machine.disk.crash(Random(1))
        assert stored(open_log(machine.disk)) == content(replica.consensus.entries)

    run(scene())


@pytest.mark.parametrize("cut", [None, 2])
def test_a_vote_is_saved_while_entries_find_no_room(cut: int | None) -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        first = replica.write([RECORDS, STATE, STATE], vote=1)
        await turn()
        machine.disk.capacity_bytes = 1
        replica.write([RECORDS], size_bytes=300)
        await turn()
        assert replica.storage.is_full

        replica.write([NOOP], term=2, vote=2, cut=cut)
        newest = replica.write([], term=3, vote=3)
        await turn()

        assert replica.consensus.hard_states[-1] == newest.mark
        assert replica.consensus.persisted == [first.mark]
        assert replica.storage.is_full
        machine.disk.crash(Random(1))
        machine.disk.capacity_bytes = None
        assert HardStateFile(machine.disk, DIRECTORY).newest == (3, 3, 0)
        assert len(stored(open_log(machine.disk))) == 3

    run(scene())


def test_a_vote_that_is_saved_early_says_nothing_new_about_what_is_committed() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        replica.write([NOOP], vote=1)
        await turn()
        machine.disk.capacity_bytes = 1
        replica.write([RECORDS], size_bytes=300)
        await turn()

        # The entry is still to be cut: a crash now must not find it and take it for committed.
        write = replica.consensus.write([NOOP], term=2, cut=1)
        committed = HardState(Term(2), None, EntryIndex(1))
        replica.storage.write(Write(write.mark, None, EntryIndex(1), write.entries, committed))
        await turn()

        assert replica.consensus.hard_states == [write.mark]
        assert replica.hard_state.newest == (2, -1, 0)

    run(scene())


def test_an_older_term_that_is_tried_again_does_not_replace_a_vote_that_was_saved_early() -> None:
    async def scene() -> None:
        replica = Replica(SimMachine())
        replica.machine.disk.capacity_bytes = 1
        replica.write([STATE], vote=1, size_bytes=300)
        newest = replica.write([RECORDS], term=2, vote=2)
        await asyncio.sleep(1)
        assert replica.consensus.hard_states[-1] == newest.mark
        assert replica.hard_state.newest == (2, 2, 0)

    run(scene())


def test_a_vote_is_not_reported_when_its_disk_fails() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        machine.disk.capacity_bytes = 1
        replica.write([RECORDS], size_bytes=300)
        await turn()
        machine.disk.fail_sync()

        replica.write([], term=3, vote=3)
        await turn()

        assert replica.consensus.hard_states == []
        assert len(replica.consensus.failures) == 1

    run(scene())


def test_exclusive_work_is_done_while_the_disk_is_full() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        machine.disk.capacity_bytes = 0
        replica.write([RECORDS])
        await turn()

        assert await replica.storage.run_exclusive(lambda: "done") == "done"

    run(scene())


@pytest.mark.parametrize(
    "options", [{"kinds": [RECORDS]}, {"kinds": [STATE]}, {"vote": 2}, {"cut": 1}]
)
def test_a_failed_sync_ends_the_replica_and_all_who_wait(options: dict[str, Any]) -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        first = replica.write([RECORDS])
        await turn()
        machine.executor.hold()
        replica.write(**options)
        waiting = asyncio.ensure_future(replica.storage.run_exclusive(lambda: None))
        await turn()
        machine.disk.fail_sync()
        machine.executor.release()
        await turn()

        assert [type(each) for each in replica.consensus.failures] == [StorageFailed]
        assert isinstance(waiting.exception(), StorageFailed)
        replica.write([RECORDS])
        with pytest.raises(StorageFailed):
            await replica.storage.run_exclusive(lambda: None)
        assert replica.consensus.persisted == [first.mark]
        assert (await settle(replica.storage.stop())).done()

    run(scene())


def test_nothing_follows_a_sync_that_fails_in_exclusive_work() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine, segment_ms=50)
        first = replica.write([RECORDS])
        await turn()
        now_ms = machine.clock.now_ms() + 100
        machine.executor.hold()
        sealing = asyncio.ensure_future(
            replica.storage.run_exclusive(lambda: replica.log.seal_if_due(now_ms))
        )
        await turn()
        replica.write([RECORDS])
        machine.disk.fail_sync()
        machine.executor.release()
        await turn()

        assert isinstance(sealing.exception(), StorageFailed)
        assert [type(each) for each in replica.consensus.failures] == [StorageFailed]
        assert replica.consensus.persisted == [first.mark]
        assert (await settle(replica.storage.stop())).done()

    run(scene())


def test_what_ends_after_the_replica_has_failed_is_not_reported() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        machine.executor.hold()
        replica.write([RECORDS])

        replica.storage.fail(StorageFailed("a checkpoint failed to sync"))
        machine.executor.release()
        await turn()

        assert replica.consensus.persisted == []
        assert (await settle(replica.storage.stop())).done()

    run(scene())


async def _quick_replica(machine: SimMachine) -> Replica:
    """Return a replica that has found its disk quick, and whose threads are held from now on."""
    machine.pace = FlushPace(machine.clock)
    replica = Replica(machine)
    replica.write([NOOP])
    await turn()
    machine.executor.hold()
    return replica


@pytest.mark.parametrize("kinds", [[RECORDS], [STATE], [STATE, STATE]])
def test_a_small_flush_on_a_quick_disk_needs_no_thread_and_waits_for_the_turn_to_end(
    kinds: list[EntryKind],
) -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = await _quick_replica(machine)

        write = replica.write(kinds)
        assert write.mark not in replica.consensus.persisted
        await turn()

        assert replica.consensus.persisted[-1] == write.mark
        assert machine.executor.held == 0
        assert stored(replica.log) == content(replica.consensus.entries)
        assert replica.storage.is_idle

    run(scene())


@pytest.mark.parametrize(
    "options",
    [
        {"kinds": [RECORDS, RECORDS]},
        {"kinds": [RECORDS, STATE]},
        {"kinds": [STATE] * 5},
        {"kinds": [STATE], "size_bytes": 20_000},
        {"kinds": [NOOP], "vote": 1},
        {"vote": 1},
        {"kinds": [NOOP], "cut": 1},
    ],
)
def test_more_than_a_slight_flush_goes_to_a_thread(options: dict[str, Any]) -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = await _quick_replica(machine)

        write = replica.write(**options)
        await turn()

        assert write.mark not in replica.consensus.persisted
        assert machine.executor.held == 1
        machine.executor.release()
        await turn()
        assert replica.consensus.persisted[-1] == write.mark

    run(scene())


def test_a_small_flush_that_others_wait_for_goes_to_a_thread() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = await _quick_replica(machine)

        first = replica.write([RECORDS])
        second = replica.write([RECORDS])
        await turn()
        assert first.mark not in replica.consensus.persisted
        assert machine.executor.held == 1
        machine.executor.release()
        await turn()

        assert replica.consensus.persisted[-1] == second.mark

    run(scene())


def test_a_sync_that_fails_on_the_loop_ends_the_replica() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = await _quick_replica(machine)
        machine.disk.fail_sync()

        write = replica.write([RECORDS])
        await turn()

        assert [type(each) for each in replica.consensus.failures] == [StorageFailed]
        assert write.mark not in replica.consensus.persisted
        assert (await settle(replica.storage.stop())).done()

    run(scene())


def test_a_full_disk_is_noticed_on_the_loop_and_tried_again() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = await _quick_replica(machine)
        machine.disk.capacity_bytes = 0

        write = replica.write([RECORDS])
        await turn(3)
        assert replica.consensus.times_full == 1
        machine.disk.capacity_bytes = None
        machine.executor.release()
        await asyncio.sleep(1)

        assert replica.consensus.persisted[-1] == write.mark

    run(scene())


def test_stopping_waits_for_what_is_being_written_and_begins_nothing_more() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        machine.executor.hold()
        running = replica.write([RECORDS])
        replica.write([RECORDS])
        exclusive = asyncio.ensure_future(replica.storage.run_exclusive(lambda: None))
        await turn()

        stopping = await settle(replica.storage.stop())
        assert not stopping.done()
        machine.executor.run_next()
        await turn()

        assert stopping.done()
        assert machine.executor.held == 0
        assert replica.consensus.persisted == [running.mark]
        assert isinstance(exclusive.exception(), Unavailable)

    run(scene())


def test_flushes_run_beside_a_checkpoint_and_cuts_wait_for_it() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        replica.write([RECORDS] * 3)
        await turn()
        machine.executor.hold()
        checkpointing = asyncio.ensure_future(replica.storage.run_checkpoint())
        await turn()

        replica.write([RECORDS])
        assert machine.executor.held == 2
        machine.executor.run_last()
        await turn()
        replica.write([RECORDS], term=2, cut=2)
        assert machine.executor.held == 1
        machine.executor.release()
        await checkpointing
        await turn()

        assert stored(replica.log) == content(replica.consensus.entries)
        machine.disk.crash(Random(1))
        assert stored(open_log(machine.disk)) == content(replica.consensus.entries)

    run(scene())


def test_a_checkpoint_waits_for_a_cut() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        replica.write([RECORDS] * 3)
        await turn()
        machine.executor.hold()
        replica.write(term=2, cut=2)

        checkpointing = await settle(replica.storage.run_checkpoint())
        assert machine.executor.held == 1
        machine.executor.release()
        await settle(checkpointing)

        assert checkpointing.done()
        machine.disk.crash(Random(1))
        assert stored(open_log(machine.disk)) == content(replica.consensus.entries)

    run(scene())


def test_whoever_waits_for_an_idle_disk_is_told() -> None:
    async def scene() -> None:
        machine = SimMachine()
        replica = Replica(machine)
        machine.executor.hold()
        replica.write([RECORDS])
        assert not replica.storage.is_idle
        assert replica.idle_times == 0

        machine.executor.release()
        await turn()

        assert replica.storage.is_idle
        assert replica.idle_times == 1

    run(scene())
