"""What a log promises to those who propose and read, on a disk that fails."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from penstock.cluster import FlushPace, ReplicatedLog
from penstock.errors import (
    Corruption,
    DiskFull,
    InvalidRequest,
    OffsetOutOfRange,
    PenstockError,
    StorageFailed,
    Unavailable,
)
from penstock.ids import EntryIndex, Offset
from penstock.log import StateEntry
from penstock.raft import Entry
from penstock.record import BatchHeader, Buffer
from penstock.testing import MachineStopped
from tests.unit.cluster.workplaces import DIRECTORY, SimMachine, batch, run, settle, turn


class Diary:
    """A machine that keeps what it is told; it refuses the word `refuse`."""

    def __init__(self) -> None:
        self.events: list[bytes | int] = []

    @property
    def start_offset(self) -> Offset:
        return Offset(0)

    @property
    def remembered(self) -> frozenset[int]:
        return frozenset()

    def archived_offset(self, archive: str) -> Offset:
        return Offset(0)

    def apply_records(self, header: BatchHeader, offset: Offset, batch: Buffer) -> None:
        del header, batch
        self.events.append(offset)

    def apply_state(self, entry: StateEntry) -> int | list[int | PenstockError]:
        if b"+" in entry.payload:
            return [self._apply_bundled(word) for word in entry.payload.split(b"+")]
        if entry.payload == b"refuse":
            raise InvalidRequest("refused")
        self.events.append(entry.payload)
        return len(self.events)

    def _apply_bundled(self, word: bytes) -> int | PenstockError:
        if word == b"refuse":
            return InvalidRequest("refused")
        self.events.append(word)
        return len(self.events)

    def bundle(self, payloads: Sequence[bytes]) -> bytes:
        return b"+".join(payloads)

    def snapshot(self) -> bytes:
        return repr(self.events).encode()

    def restore(self, payload: Buffer, index: EntryIndex) -> None:
        self.events = eval(payload)


def read_all(log: ReplicatedLog) -> bytes:
    found = log.read(0, start_offset=0, bytes_max=1 << 20)
    return found.read() if found else b""


async def failure_of(future: asyncio.Future[Any]) -> BaseException | None:
    await settle(asyncio.wait([future]))
    return future.exception()


def test_a_proposal_is_answered_with_its_offset_and_can_be_read() -> None:
    async def scene() -> None:
        log = await SimMachine().replicated_log(Diary())

        assert await log.propose_records(batch(b"a", b"b")) == 0
        assert await log.propose_records(batch(b"c")) == 2

        assert log.high_watermark == 3
        found = log.read(2, start_offset=0, bytes_max=1)
        assert found is not None
        assert b"c" in found.read()
        assert log.read(3, start_offset=0, bytes_max=1) is None
        with pytest.raises(OffsetOutOfRange):
            log.read(4, start_offset=0, bytes_max=1)
        with pytest.raises(OffsetOutOfRange):
            log.read(0, start_offset=1, bytes_max=1)

    run(scene())


def test_nothing_is_answered_readable_or_applied_before_the_flush_returns() -> None:
    async def scene() -> None:
        machine, diary = SimMachine(), Diary()
        log = await machine.replicated_log(diary)
        machine.executor.hold()

        answer = log.propose_records(batch(b"a"))
        await turn()

        assert not answer.done()
        assert log.high_watermark == 0
        assert read_all(log) == b""
        assert diary.events == []
        machine.executor.release()
        assert await answer == 0
        assert log.high_watermark == 1
        assert diary.events == [0]

    run(scene())


def test_proposals_that_come_while_a_flush_runs_share_the_next_one() -> None:
    async def scene() -> None:
        machine = SimMachine()
        log = await machine.replicated_log(Diary())
        await log.propose_records(batch(b"first"))
        machine.executor.hold()

        answers = [log.propose_records(batch(b"%d" % number)) for number in range(100)]
        machine.disk.trace = []
        machine.executor.release()
        assert [await answer for answer in answers] == list(range(1, 101))

        assert machine.disk.trace.count("sync") == 2

    run(scene())


def test_proposals_of_one_turn_follow_each_other_on_a_quick_disk() -> None:
    async def scene() -> None:
        machine = SimMachine()
        machine.pace = FlushPace(machine.clock)
        log = await machine.replicated_log(Diary())
        assert await log.propose_records(batch(b"a")) == 0

        answers = [log.propose_records(batch(value)) for value in (b"b", b"c", b"d")]
        state = log.propose_state(b"state")

        assert await asyncio.gather(*answers) == [1, 2, 3]
        assert await state == 5
        assert log.high_watermark == 4

    run(scene())


def test_one_who_waits_for_the_commit_hears_of_it_before_readers_do() -> None:
    async def scene() -> None:
        log = await SimMachine().replicated_log(Diary())
        heard: list[str] = []
        log.watch(lambda: heard.append("readers"))

        answer = log.propose_records(
            batch(b"a"), on_settled=lambda: heard.append(f"offset {answer.result()}")
        )
        assert not heard
        await answer

        assert heard == ["offset 0", "readers"]
        assert log.high_watermark == 1

    run(scene())


def test_one_who_hears_of_a_commit_may_propose_the_next_at_once() -> None:
    async def scene() -> None:
        log = await SimMachine().replicated_log(Diary())
        answers: list[asyncio.Future[Offset]] = []

        def propose() -> None:
            if len(answers) < 5:
                answers.append(log.propose_records(batch(b"x"), on_settled=propose))

        propose()
        await turn()

        assert [answer.result() for answer in answers] == [0, 1, 2, 3, 4]
        assert log.is_idle

    run(scene())


def test_one_whose_batch_is_committed_hears_of_it_although_the_next_entry_is_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        log = await SimMachine().replicated_log(Diary())
        found, second = log._entry_to_apply, log.log.next_index + 1
        heard: list[str] = []

        def damaged(index: int) -> Entry:
            if index == second:
                raise Corruption("the second entry is damaged")
            return found(index)

        monkeypatch.setattr(log, "_entry_to_apply", damaged)
        machine_is_busy = log.run_exclusive(lambda: None)
        waiting = asyncio.ensure_future(machine_is_busy)
        await asyncio.sleep(0)
        for name in ("first", "second"):
            log.propose_records(
                batch(name.encode()), on_settled=lambda name=name: heard.append(name)
            )
        await waiting
        await turn()

        assert "first" in heard
        assert isinstance(log.failure, Corruption)

    run(scene())


def test_one_who_fails_to_hear_of_a_commit_harms_nobody() -> None:
    async def scene() -> None:
        log = await SimMachine().replicated_log(Diary())
        heard: list[str] = []

        def fail() -> None:
            raise RuntimeError("the one who asked is broken")

        log.propose_records(batch(b"a"), on_settled=fail)
        log.propose_records(batch(b"b"), on_settled=lambda: heard.append("b"))
        await turn()

        assert heard == ["b"]
        assert await log.propose_records(batch(b"c")) == 2

    run(scene())


@pytest.mark.parametrize("waits_for_commit", [False, True])
def test_one_who_waits_hears_of_a_failure_too_and_once(waits_for_commit: bool) -> None:
    async def scene() -> None:
        machine = SimMachine()
        log = await machine.replicated_log(Diary())
        heard: list[int] = []
        fine = log.propose_records(
            batch(b"a"),
            waits_for_commit=waits_for_commit,
            on_settled=lambda: heard.append(fine.result()),
        )
        await turn()
        machine.disk.fail_sync()

        broken = log.propose_records(
            batch(b"b"),
            waits_for_commit=waits_for_commit,
            on_settled=lambda: heard.append(-1 if broken.exception() else 0),
        )
        await turn()

        assert heard == [0, -1]
        await log.close()

    run(scene())


def test_the_watermark_never_goes_back_and_watchers_hear_of_each_commit() -> None:
    async def scene() -> None:
        log = await SimMachine().replicated_log(Diary())
        seen: list[int] = []
        log.watch(note := lambda: seen.append(log.high_watermark))

        for number in range(5):
            await log.propose_records(batch(b"%d" % number))
        log.unwatch(note)
        await log.propose_records(batch(b"unseen"))

        assert seen == [1, 2, 3, 4, 5]

    run(scene())


def test_a_state_entry_is_answered_by_the_machine_and_refused_again_after_a_restart() -> None:
    async def scene() -> None:
        machine = SimMachine()
        log = await machine.replicated_log(Diary())

        assert await log.propose_state(b"one") == 1
        with pytest.raises(InvalidRequest):
            await log.propose_state(b"refuse")
        assert await log.propose_state(b"two") == 2
        await log.propose_records(batch(b"a"))
        machine.disk.kill()

        diary = Diary()
        await machine.replicated_log(diary)
        assert diary.events == [b"one", b"two", 0]

    run(scene())


def test_states_that_may_share_an_entry_are_answered_one_by_one() -> None:
    async def scene() -> None:
        machine = SimMachine()
        log = await machine.replicated_log(Diary())
        first_index = log.log.next_index

        soon = [log.propose_state_soon(word) for word in (b"one", b"refuse", b"two")]
        alone = log.propose_state(b"alone")
        later = log.propose_state_soon(b"three")
        log.flush_waiting()

        assert await soon[0] == 1
        with pytest.raises(InvalidRequest):
            await soon[1]
        assert (await soon[2], await alone, await later) == (2, 3, 4)
        assert log.log.next_index == first_index + 3
        machine.disk.kill()

        diary = Diary()
        await machine.replicated_log(diary)
        assert diary.events == [b"one", b"two", b"alone", b"three"]

    run(scene())


def test_an_entry_is_shared_by_a_limited_number_of_bytes() -> None:
    async def scene() -> None:
        log = await SimMachine().replicated_log(Diary())
        first_index = log.log.next_index

        large = b"x" * 40_000
        soon = [log.propose_state_soon(large) for _ in range(3)]
        log.flush_waiting()

        assert [await each for each in soon] == [1, 2, 3]
        assert log.log.next_index == first_index + 3

    run(scene())


def test_all_who_share_an_entry_hear_of_a_disk_that_is_full() -> None:
    async def scene() -> None:
        machine = SimMachine()
        log = await machine.replicated_log(Diary())
        await log.propose_state(b"before")
        machine.disk.capacity_bytes = 2500

        soon = [log.propose_state_soon(word * 2000) for word in (b"1", b"2")]
        log.flush_waiting()

        for each in soon:
            assert isinstance(await failure_of(each), DiskFull)

    run(scene())


@pytest.mark.parametrize("earlier", [0, 3])
def test_a_failed_sync_acknowledges_nobody_and_closes_the_log(earlier: int) -> None:
    async def scene() -> None:
        machine = SimMachine()
        log = await machine.replicated_log(Diary())
        for _ in range(earlier):
            await log.propose_records(batch(b"fine"))
        machine.executor.hold()
        in_flight = log.propose_records(batch(b"in flight"))
        queued = [log.propose_records(batch(b"queued")), log.propose_state(b"queued")]
        machine.disk.fail_sync()
        machine.executor.release()

        for answer in (in_flight, *queued):
            assert isinstance(await failure_of(answer), StorageFailed)
        assert isinstance(log.failure, StorageFailed)
        with pytest.raises(StorageFailed):
            log.propose_records(batch(b"late"))
        with pytest.raises(StorageFailed):
            read_all(log)
        assert log.high_watermark == earlier
        await log.close()

    run(scene())


@pytest.mark.parametrize("tears", [False, True])
def test_a_full_disk_fails_what_is_in_flight_and_room_makes_the_log_usable(tears: bool) -> None:
    async def scene() -> None:
        machine = SimMachine()
        machine.disk.tears_when_full = tears
        log = await machine.replicated_log(Diary())
        await log.propose_records(batch(b"kept"))
        machine.disk.capacity_bytes = 2500
        machine.executor.hold()
        first, second = log.propose_records(batch(b"x" * 2000)), log.propose_records(batch(b"y"))
        machine.executor.release()

        assert isinstance(await failure_of(first), DiskFull)
        assert isinstance(await failure_of(second), DiskFull)
        assert log.failure is None
        assert log.high_watermark == 1
        await asyncio.sleep(1)
        with pytest.raises(DiskFull):
            log.propose_records(batch(b"refused"))
        machine.disk.capacity_bytes = None
        await asyncio.sleep(1)
        # Consensus holds the first one, which was being written; the second one had not begun.
        assert log.high_watermark == 2
        assert await log.propose_records(batch(b"z" * 2000)) == 2
        stored = read_all(log)
        assert (b"x" * 2000 in stored, b"y" in stored, b"refused" in stored) == (True, False, False)
        machine.disk.kill()
        assert read_all(await machine.replicated_log(Diary())) == stored

    run(scene())


def test_exclusive_work_and_flushes_take_turns() -> None:
    async def scene() -> None:
        machine = SimMachine()
        log = await machine.replicated_log(Diary())
        await log.propose_records(batch(b"zeroth"))
        trace = machine.disk.trace = []
        machine.executor.hold()
        first = log.propose_records(batch(b"first"))
        exclusive = asyncio.ensure_future(log.run_exclusive(lambda: trace.append("exclusive")))
        await turn()
        second = log.propose_records(batch(b"second"))

        await turn()
        assert machine.executor.held == 1
        machine.executor.release()
        await asyncio.gather(first, exclusive, second)

        flush = ["write", "write", "sync"]
        assert trace == [*flush, "exclusive", *flush]

    run(scene())


def test_exclusive_work_that_fails_tells_its_caller_and_harms_nobody_else() -> None:
    async def scene() -> None:
        log = await SimMachine().replicated_log(Diary())

        def fail() -> None:
            raise OSError("broken")

        with pytest.raises(OSError, match="broken"):
            await log.run_exclusive(fail)

        assert await log.propose_records(batch(b"a")) == 0

    run(scene())


def test_a_snapshot_stands_in_for_the_entries_below_it() -> None:
    async def scene() -> None:
        machine, diary = SimMachine(), Diary()
        log = await machine.replicated_log(diary)
        await log.propose_state(b"one")
        await log.propose_records(batch(b"a"))
        await log.save_snapshot()
        await log.propose_state(b"two")

        diary.events[0] = b"only the snapshot says this"
        await log.save_snapshot()
        await log.propose_state(b"three")
        machine.disk.kill()

        again = Diary()
        reopened = await machine.replicated_log(again)
        assert again.events == [b"only the snapshot says this", 0, b"two", b"three"]
        # The first entry of the term comes before those of this test.
        assert reopened.snapshot_index == 1 + 1 + 3

    run(scene())


def test_closing_waits_for_what_is_in_flight_and_refuses_the_rest() -> None:
    async def scene() -> None:
        machine = SimMachine()
        log = await machine.replicated_log(Diary())
        machine.executor.hold()
        in_flight = log.propose_records(batch(b"in flight"))
        woken: list[bool] = []
        log.watch(lambda: woken.append(True))

        closing = asyncio.ensure_future(log.close())
        await turn()
        assert not closing.done()
        with pytest.raises(Unavailable):
            log.propose_records(batch(b"late"))
        machine.executor.release()
        await closing

        assert await in_flight == 0
        assert woken
        with pytest.raises(Unavailable):
            read_all(log)
        assert (await machine.replicated_log(Diary())).high_watermark == 1

    run(scene())


async def _write_until_stopped(log: ReplicatedLog) -> list[tuple[int, bytes]]:
    """Publish as clients do; return what was acknowledged, with its offset."""
    acknowledged: list[tuple[int, bytes]] = []
    for number in range(6):
        values = [b"%d-%d" % (number, each) for each in range(3)]
        try:
            answers = [log.propose_records(batch(value)) for value in values]
            state = log.propose_state(b"state %d" % number)
            await settle(asyncio.wait([*answers, state]))
            if number == 3:
                await settle(log.save_snapshot())
        except (MachineStopped, PenstockError):
            break
        done = [pair for pair in zip(answers, values, strict=True) if pair[0].done()]
        acknowledged += [(each.result(), value) for each, value in done if not each.exception()]
    return acknowledged


@pytest.mark.parametrize("seed", range(4))
def test_what_was_acknowledged_survives_a_power_cut_before_any_step(seed: int) -> None:
    async def scene(stop: int) -> bool:
        machine = SimMachine()
        log = await machine.replicated_log(Diary(), segment_bytes=300)
        before = machine.disk.operations
        machine.disk.stop_before(stop)
        acknowledged = await _write_until_stopped(log)
        was_stopped = machine.disk.operations >= before + stop
        machine.disk.crash(Random(1000 * seed + stop))

        diary = Diary()
        reopened = await machine.replicated_log(diary, segment_bytes=300)
        assert reopened.high_watermark >= len(acknowledged)
        for offset, value in acknowledged:
            found = reopened.read(offset, start_offset=0, bytes_max=1)
            assert found is not None
            assert value in found.read()
        offsets = [event for event in diary.events if isinstance(event, int)]
        assert offsets == list(range(reopened.high_watermark))
        return was_stopped

    stop = 0
    while run(scene(stop)):
        stop += 1
    assert stop > 40


def test_a_flush_that_ends_after_the_log_has_failed_acknowledges_nobody() -> None:
    async def scene() -> None:
        machine = SimMachine()
        log = await machine.replicated_log(Diary())
        machine.executor.hold()
        answer = log.propose_records(batch(b"a"))

        # The kernel reports a lost write once for each open file: when a checkpoint has taken the
        # report, the sync of the flush returns as if nothing had happened.
        log.fail(StorageFailed("a checkpoint failed to sync"))
        machine.executor.release()

        assert isinstance(await failure_of(answer), StorageFailed)

    run(scene())


def test_those_who_wait_for_more_hear_of_a_failure() -> None:
    async def scene() -> None:
        log = await SimMachine().replicated_log(Diary())
        woken: list[bool] = []
        log.watch(lambda: woken.append(True))

        log.fail(StorageFailed("broken"))
        await turn()

        assert woken

    run(scene())


def test_a_snapshot_does_not_outlive_records_that_were_not_synced() -> None:
    async def scene(seed: int) -> None:
        machine = SimMachine()
        log = await machine.replicated_log(Diary(), sync_records=False)
        for number in range(10):
            await log.propose_records(batch(b"lost %d" % number))
        await log.save_snapshot()
        machine.disk.crash(Random(seed))

        diary = Diary()
        reopened = await machine.replicated_log(diary, sync_records=False)
        assert diary.events == list(range(reopened.high_watermark))

    for seed in range(10):
        run(scene(seed))


def test_a_log_whose_first_entries_are_gone_does_not_open_without_its_snapshot() -> None:
    async def scene() -> None:
        machine = SimMachine()
        log = await machine.replicated_log(Diary(), segment_bytes=100)
        for number in range(5):
            await log.propose_state(b"%d" % number * 50)
        await log.save_snapshot()
        removed = log.log.segments[:2]
        log.log.forget(removed)
        for segment in removed:
            segment.remove_files()
        machine.disk.kill()
        for name in machine.disk.names(DIRECTORY):
            if name.startswith("snapshot-"):
                machine.disk.remove(DIRECTORY / name)

        with pytest.raises(Corruption):
            await machine.replicated_log(Diary(), segment_bytes=100)

    run(scene())


def test_a_log_that_is_replicated_nowhere_else_opens_without_its_vote() -> None:
    async def scene() -> None:
        machine = SimMachine()
        log = await machine.replicated_log(Diary())
        await log.propose_state(b"kept")
        term = log.term
        machine.disk.kill()
        machine.disk.remove(DIRECTORY / "vote")

        diary = Diary()
        log = await machine.replicated_log(diary)

        assert diary.events == [b"kept"]
        assert log.term > term

    run(scene())
