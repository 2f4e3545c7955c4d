"""Scheduled messages: each in the log once, never early, whatever stops the machine."""

import asyncio
from random import Random

import pytest

from penstock.cluster import Partition, Placed
from penstock.delivery import stage_id
from penstock.errors import StorageFailed
from penstock.record import Record, RecordBatch, encode_batch, split_batches
from tests.unit.cluster.workplaces import (
    SimMachine,
    batch,
    records,
    run,
    settle,
    stop_before_every_step,
    turn,
    values,
)


def timed(*messages: tuple[bytes, int | None], sequence: int | None = None) -> RecordBatch:
    """Return a batch of values, each with the time at which it is to be delivered."""
    producer = {} if sequence is None else {"producer_id": 7, "producer_epoch": 0}
    data = encode_batch(
        [
            Record(n, 5, b"k", value, () if due is None else (_header(due),))
            for n, (value, due) in enumerate(messages)
        ],
        base_sequence=-1 if sequence is None else sequence,
        **producer,
    )
    return split_batches(data)[0]


def _header(due_ms: int) -> tuple[str, bytes]:
    return ("penstock-deliver-at", str(due_ms).encode())


async def schedule(partition: Partition, *messages: tuple[bytes, int | None]) -> Placed:
    placed = partition.intake.publish(timed(*messages), window_ms=1000)
    assert placed is not None
    return await placed


async def wait_released(partition: Partition) -> None:
    """Let timers run until nothing that is due waits."""
    for _ in range(40):
        await asyncio.sleep(0.05)


def test_a_message_comes_when_it_is_due_and_not_before() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        now_ms = machine.clock.now_ms()

        placed = await schedule(partition, (b"b", now_ms + 2000), (b"a", now_ms + 1000))
        machine.clock.advance(999)
        await wait_released(partition)
        assert values(partition) == []
        assert partition.stage.count == 2
        machine.clock.advance(1)
        await wait_released(partition)
        assert values(partition) == [b"a"]
        machine.clock.advance(1000)
        await wait_released(partition)

        assert partition.stage.count == 0
        number = placed.messages[1].stage_number
        assert number is not None
        assert records(partition)[0] == Record(
            0,
            now_ms + 1000,
            b"k",
            b"a",
            (_header(now_ms + 1000), ("penstock-id", stage_id(0, number).encode())),
        )
        assert values(partition) == [b"a", b"b"]
        assert placed.offset == 0
        assert [each.due_ms for each in placed.messages] == [now_ms + 2000, now_ms + 1000]

    run(scene())


def test_a_mixed_batch_is_split() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        due_ms = machine.clock.now_ms() + 50

        placed = await schedule(partition, (b"now", None), (b"later", due_ms), (b"too", None))

        assert [each.offset for each in placed.messages] == [0, None, 2]
        assert values(partition) == [b"now", b"too"]
        machine.clock.advance(50)
        await wait_released(partition)
        assert values(partition) == [b"now", b"too", b"later"]

    run(scene())


def test_a_mixed_batch_of_an_idempotent_producer_is_kept_whole() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        due_ms = machine.clock.now_ms() + 50

        for _ in range(2):
            placed = partition.intake.publish(
                timed((b"now", None), (b"later", due_ms), sequence=0), window_ms=1000
            )
            assert placed is not None
            await placed
        following = partition.intake.publish(
            timed((b"later too", due_ms), sequence=2), window_ms=1000
        )
        assert following is not None
        await following
        await wait_released(partition)
        assert values(partition) == [b"now"]
        machine.clock.advance(50)
        await wait_released(partition)

        assert values(partition) == [b"now", b"later", b"later too"]

    run(scene())


def test_messages_can_be_cancelled_moved_and_listed() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        now_ms = machine.clock.now_ms()
        placed = await schedule(
            partition, *((value, now_ms + 1000) for value in (b"a", b"b", b"c", b"d"))
        )
        numbers = [each.stage_number or 0 for each in placed.messages]

        assert await partition.stage.cancel([numbers[0], 99]) == [True, False]
        assert await partition.stage.move([numbers[1]], due_ms=now_ms) == [True]
        assert await partition.stage.move([numbers[2]], due_ms=now_ms + 5000) == [True]
        page = await partition.stage.page(after=(-1, -1), count_max=10)
        await wait_released(partition)

        assert [each.record.value for each in page] == [b"b", b"d", b"c"]
        assert values(partition) == [b"b"]
        after = (page[1].waiting.due_ms, page[1].waiting.number)
        rest = await partition.stage.page(after=after, count_max=10)
        assert [each.record.value for each in rest] == [b"c"]
        assert await partition.stage.cancel([numbers[1]]) == [False]

    run(scene())


def test_a_cancelled_message_is_not_released_before_the_cancellation_is_decided() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        placed = await schedule(partition, (b"a", machine.clock.now_ms() + 10))
        machine.executor.hold()
        cancelling = asyncio.ensure_future(
            partition.stage.cancel([placed.messages[0].stage_number or 0])
        )
        await turn()
        machine.clock.advance(20)
        await asyncio.sleep(1)
        machine.executor.release()

        assert await cancelling == [True]
        await wait_released(partition)
        assert values(partition) == []

    run(scene())


@pytest.mark.parametrize("way", ["kill", "snapshot", "crash"])
def test_what_waits_survives_a_restart(way: str) -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        due_ms = machine.clock.now_ms() + 1000
        await schedule(partition, *((b"%d" % n, due_ms - n) for n in range(10)))
        if way == "kill":
            machine.disk.kill()
        elif way == "crash":
            machine.disk.crash(Random(1))
        else:
            await partition.log.close()

        reopened = await machine.partition()
        assert reopened.stage.count == 10
        machine.clock.advance(1000)
        await wait_released(reopened)

        assert values(reopened) == [b"%d" % n for n in reversed(range(10))]

    run(scene())


@pytest.mark.parametrize("way", ["crash", "kill"])
def test_every_acknowledged_message_comes_once_whenever_the_machine_stops(way: str) -> None:
    async def live(machine: SimMachine, partition: Partition, kept: list[bytes]) -> None:
        """Schedule, release and cancel, as far as the machine runs."""
        due_ms = machine.clock.now_ms() + 100
        for round_ in range(3):
            value = b"%d" % round_
            await (await settle(schedule(partition, (value, due_ms), (b"x" + value, due_ms))))
            kept += [value, b"x" + value]
        machine.clock.advance(100)
        await wait_released(partition)
        await (await settle(schedule(partition, (b"last", due_ms + 300))))
        kept.append(b"last")

    async def scene(stop: int) -> bool:
        machine = SimMachine()
        partition = await machine.partition()
        kept: list[bytes] = []
        begun = machine.disk.operations
        machine.disk.stop_before(stop)
        life = asyncio.ensure_future(live(machine, partition, kept))
        await asyncio.wait([life], timeout=60)
        was_stopped = machine.disk.operations > begun + stop
        life.cancel()
        # The process is gone with its timers.
        partition.log.fail(StorageFailed("the machine has stopped"))
        if way == "crash":
            machine.disk.crash(Random(stop))
        else:
            machine.disk.kill()

        reopened = await machine.partition()
        machine.clock.advance(1000)
        await wait_released(reopened)

        found = values(reopened)
        assert len(found) == len(set(found)), f"twice when stopped before {stop}: {found}"
        assert set(kept) <= set(found), f"lost when stopped before {stop}: {found}"
        assert reopened.stage.count == 0
        return was_stopped

    assert stop_before_every_step(scene) > 10


def test_old_entries_are_free_when_bytes_have_moved() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        due_ms = machine.clock.now_ms() + 1000
        await schedule(partition, (b"a", due_ms), (b"b", due_ms))
        await partition.publish(batch(b"plain"))
        first = partition.stage.first_index
        assert first is not None

        await partition.stage.restage_below(partition.log.applied_index + 1)

        assert (partition.stage.first_index or 0) > first
        machine.disk.kill()
        reopened = await machine.partition()
        machine.clock.advance(1000)
        await wait_released(reopened)
        assert values(reopened) == [b"plain", b"a", b"b"]

    run(scene())
