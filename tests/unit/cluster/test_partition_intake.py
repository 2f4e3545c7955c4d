"""Messages with idempotency keys: once, over batches, flights, failures and restarts."""

import asyncio

import pytest

from penstock.cluster import Partition, Placed
from penstock.errors import InvalidRequest, NotLeader, Unavailable
from penstock.record import Record, RecordBatch, encode_batch, split_batches
from tests.unit.cluster.workplaces import SimMachine, numbered_batch, records, run, turn, values

WINDOW_MS = 300_000


def keyed(*keys: str | None, sequence: int | None = None, **headers: bytes) -> RecordBatch:
    """Return a batch with one record for each key, whose value is the key."""
    extra = tuple((f"penstock-{name}".replace("_", "-"), text) for name, text in headers.items())
    producer = {} if sequence is None else {"producer_id": 7, "producer_epoch": 0}
    data = encode_batch(
        [
            Record(
                number,
                number,
                None,
                (key or "-").encode(),
                extra if key is None else (("penstock-idempotency-key", key.encode()), *extra),
            )
            for number, key in enumerate(keys)
        ],
        base_sequence=-1 if sequence is None else sequence,
        **producer,
    )
    return split_batches(data)[0]


def publish(
    partition: Partition, batch: RecordBatch, *, window_ms: int = WINDOW_MS
) -> "asyncio.Future[Placed]":
    placed = partition.intake.publish(batch, window_ms=window_ms)
    assert placed is not None
    return placed


def offsets(placed: Placed) -> list[tuple[int | None, bool]]:
    return [(each.offset, each.is_duplicate) for each in placed.messages]


def test_a_key_that_was_seen_gives_the_first_result() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()

        first = await publish(partition, keyed("a", "b"))
        again = await publish(partition, keyed("c", "b", "d", "a"))

        assert offsets(first) == [(0, False), (1, False)]
        assert offsets(again) == [(2, False), (1, True), (4, False), (0, True)]
        assert again.messages[1].timestamp == 1
        assert [(each.offset, each.value) for each in records(partition)] == [
            (0, b"a"),
            (1, b"b"),
            (2, b"c"),
            (4, b"d"),
        ]

    run(scene())


def test_a_batch_of_duplicates_is_answered_with_the_first_and_not_stored() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()
        await partition.publish(numbered_batch(0, b"other"))
        await publish(partition, keyed("a", "b"))

        again = await publish(partition, keyed("b", "a"))

        assert again.offset == 2
        assert partition.high_watermark == 3

    run(scene())


def test_duplicates_inside_a_batch_are_dropped() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()

        placed = await publish(partition, keyed("a", "a", None, "a"))

        assert offsets(placed) == [(0, False), (0, True), (2, False), (0, True)]
        assert values(partition) == [b"a", b"-"]

    run(scene())


def test_a_key_in_flight_waits_for_the_first() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        machine.executor.hold()

        first = publish(partition, keyed("a"))
        again = publish(partition, keyed("b", "a"))
        await turn()
        assert not first.done()
        assert not again.done()
        machine.executor.release()

        assert offsets(await first) == [(0, False)]
        assert offsets(await again) == [(1, False), (0, True)]
        assert values(partition) == [b"a", b"b"]

    run(scene())


def test_a_key_whose_first_publish_fails_fails_too_and_can_be_sent_again() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        machine.executor.hold()
        first = publish(partition, keyed("a"))
        again = publish(partition, keyed("a"))
        closing = asyncio.ensure_future(partition.log.close())
        await turn()
        machine.executor.release()
        await closing

        outcomes = [await asyncio.wait([each]) and each.exception() for each in (first, again)]
        reopened = await machine.partition()
        third = await publish(reopened, keyed("a"))

        assert all(outcome is None or isinstance(outcome, NotLeader) for outcome in outcomes)
        assert third.offset == 0
        assert values(reopened) == [b"a"]

    run(scene())


@pytest.mark.parametrize("way", ["kill", "snapshot"])
def test_keys_survive_a_restart(way: str) -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        await publish(partition, keyed("a"))
        if way == "kill":
            machine.disk.kill()
        else:
            await partition.log.close()

        reopened = await machine.partition()
        again = await publish(reopened, keyed("a", "b"))

        assert offsets(again) == [(0, True), (2, False)]

    run(scene())


def test_a_key_is_forgotten_after_the_window_and_not_before() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        await publish(partition, keyed("a"), window_ms=10_000)
        # The mark that tells the keys the time.
        await asyncio.sleep(1.5)

        machine.clock.advance(9_999)
        within = await publish(partition, keyed("a"), window_ms=10_000)
        machine.clock.advance(2)
        after = await publish(partition, keyed("a"), window_ms=10_000)

        assert offsets(within) == [(0, True)]
        assert offsets(after) == [(1, False)]

    run(scene())


def test_marks_stop_when_all_keys_are_forgotten() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        await publish(partition, keyed("a"), window_ms=10_000)
        for _ in range(20):
            machine.clock.advance(1_000)
            await asyncio.sleep(1.1)
        entries = partition.log.applied_index
        await asyncio.sleep(30)

        assert partition.log.applied_index == entries
        assert offsets(await publish(partition, keyed("a"))) == [(1, False)]

    run(scene())


def test_a_window_of_zero_takes_no_notice_of_keys() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()

        for expected in (0, 1):
            placed = await publish(partition, keyed("a"), window_ms=0)
            assert offsets(placed) == [(expected, False)]

    run(scene())


def test_an_idempotent_producer_keeps_its_sequence_over_duplicates() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()

        assert (await publish(partition, keyed("a", "b", sequence=0))).offset == 0
        assert (await publish(partition, keyed("b", "c", sequence=2))).offset == 2
        # All of it was seen; the sequence goes on all the same.
        assert (await publish(partition, keyed("a", "c", sequence=4))).offset == 0
        assert (await publish(partition, keyed("d", sequence=6))).offset == 6
        # What the producer sends again is not taken for a gap.
        assert (await publish(partition, keyed("d", sequence=6))).offset == 6

        assert values(partition) == [b"a", b"b", b"c", b"d"]

    run(scene())


def test_a_batch_does_not_overtake_one_that_goes_to_the_stage() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        # The first one keeps the disk busy; the others wait for it together.
        first = partition.publish(keyed(None, sequence=0))
        staged = publish(partition, keyed(None, sequence=1, deliver_at=b"9999999999999"))
        plain = partition.publish(keyed(None, sequence=2))
        later = publish(partition, keyed(None, sequence=3, deliver_at=b"9999999999999"))
        last = partition.publish(keyed(None, sequence=4))

        assert [await first, await plain, await last] == [0, 1, 2]
        assert [each.messages[0].offset for each in (await staged, await later)] == [None, None]
        # Were they applied in another order, the next one would be called out of order.
        assert await partition.publish(keyed(None, sequence=5)) == 3
        assert await partition.publish(keyed(None, sequence=4)) == 2

        machine.disk.kill()
        reopened = await machine.partition()
        assert await reopened.publish(keyed(None, sequence=6)) == 4

    run(scene())


def test_a_batch_without_keys_or_times_is_appended_as_it_came() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()

        for batch in (keyed(None), keyed(None, priority=b"7"), keyed(None, deliver_at=b"5")):
            assert partition.intake.publish(batch, window_ms=WINDOW_MS) is None

    run(scene())


def test_a_bad_header_is_refused_by_name() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()

        with pytest.raises(InvalidRequest, match="penstock-priority"):
            partition.intake.publish(keyed("a", priority=b"11"), window_ms=WINDOW_MS)

        assert partition.high_watermark == 0

    run(scene())


def test_more_keys_than_a_partition_remembers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()
        await publish(partition, keyed("a", "b"))

        with pytest.raises(Unavailable, match="2 idempotency keys"):
            publish(partition, keyed("c"))

        assert offsets(await publish(partition, keyed("a"))) == [(0, True)]

    monkeypatch.setattr("penstock.cluster.partition_intake._KEYS_MAX", 2)
    run(scene())


def test_priorities_are_known_by_offset_and_survive_a_restart() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        await partition.publish(keyed(None, None, priority=b"9"))
        await partition.publish(keyed(None))
        await partition.publish(keyed(None, priority=b"low"))
        await partition.publish(keyed(None, priority=b"normal"))
        machine.disk.kill()

        reopened = await machine.partition()
        assert {p: list(o) for p, o in reopened.priorities.items()} == {9: [0, 1], 1: [3]}
        await reopened.delete_records(reopened.high_watermark)
        assert reopened.priorities == {}

    run(scene())
