"""Retention, compaction, scrubbing and checkpoints, and what a failing disk does to them."""

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from crc32c import crc32c

from penstock.cluster import (
    Archived,
    Cluster,
    DiskSpace,
    Housekeeper,
    choose_replicas,
    housekeeping,
)
from penstock.config import NodeOptions
from penstock.errors import Conflict, Corruption, DiskFull, OffsetOutOfRange, StorageFailed
from penstock.ids import Offset
from penstock.record import Record, encode_batch, split_batches
from penstock.testing import MachineStopped
from tests.unit.cluster.workplaces import (
    DATA,
    PLACE,
    SimMachine,
    batch,
    numbered_batch,
    records,
    run,
    turn,
    values,
)

OTHER = PLACE._replace(topic="others")
VALUE = b"v" * 300


class House:
    """A node's logs and the one who looks after them."""

    def __init__(self, machine: SimMachine, cluster: Cluster, options: NodeOptions) -> None:
        self.machine = machine
        self.cluster = cluster
        self.space = DiskSpace(options, machine.workplace())
        self.keeper = Housekeeper(cluster, self.space, options, machine.workplace())

    @classmethod
    async def opened(cls, machine: SimMachine, **options: Any) -> "House":
        node = NodeOptions(data_dir=DATA, group_shards=1, **options)
        return cls(machine, await machine.cluster(**options), node)

    async def topic(self, name: str = "orders", **settings: str) -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        placement = choose_replicas(self.cluster.metadata, 1, 1, reachable=[1])
        await self.cluster.topics.create(name, placement, {"segment.bytes": "1024", **given})

    async def publish(self, count: int, *, topic: str = "orders", key: bytes | None = None) -> None:
        for number in range(count):
            made = batch(b"%d " % number + VALUE, key=key, timestamp=self.machine.clock.now_ms())
            await self.cluster.partition(PLACE._replace(topic=topic)).publish(made)

    def span(self) -> tuple[int, int]:
        partition = self.cluster.partition(PLACE)
        return partition.start_offset, partition.high_watermark


def log_file(topic: str = "orders") -> Any:
    return DATA / "topics" / topic / "0" / f"{1:020}.log"


def test_segments_go_when_they_are_old_and_the_active_one_stays() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(retention_ms="60000")
        await house.publish(9)
        house.machine.clock.advance(60_000)
        await house.keeper.tidy()
        assert house.span() == (0, 9)

        house.machine.clock.advance(1)
        await house.keeper.tidy()

        start, end = house.span()
        assert 0 < start < end == 9
        assert len(values(house.cluster.partition(PLACE))) == end - start

    run(scene())


def test_a_segment_that_nobody_writes_to_is_sealed_by_its_age() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(retention_ms="60000", segment_ms="1000")
        await house.publish(1)
        house.machine.clock.advance(61_000)

        await house.keeper.tidy()

        assert house.span() == (1, 1)
        house.machine.disk.kill()
        assert (await House.opened(house.machine)).span() == (1, 1)

    run(scene())


def test_segments_go_when_there_are_too_many_bytes() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(retention_bytes="2500")
        await house.publish(20)

        await house.keeper.tidy()

        start, end = house.span()
        assert 10 < start < end == 20

    run(scene())


def test_retention_waits_for_the_archive_also_after_a_crash() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(retention_ms="60000", archive_path="/archive")
        await house.publish(9)
        house.machine.clock.advance(60_001)
        await house.keeper.tidy()
        assert house.span() == (0, 9)

        await house.cluster.partition(PLACE).note_archived(Archived("/archive", "t", 5, 0))
        house.machine.disk.crash(Random(1))
        house = await House.opened(house.machine)
        assert house.cluster.partition(PLACE).archived_offset == 5
        await house.keeper.tidy()

        start, end = house.span()
        assert 0 < start <= 5
        assert end == 9

    run(scene())


def test_an_archive_elsewhere_does_not_count_and_none_is_waited_for_without_the_setting() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(retention_ms="60000", archive_path="/archive")
        await house.publish(9)
        house.machine.clock.advance(60_001)
        partition = house.cluster.partition(PLACE)
        with pytest.raises(Conflict, match="is archived to /archive, not to /other"):
            await partition.note_archived(Archived("/other", "t", 9, 0))
        with pytest.raises(OffsetOutOfRange, match="ends at 9; it cannot be archived up to 10"):
            await partition.note_archived(Archived("/archive", "t", 10, 0))
        await partition.note_archived(Archived("/archive", "t", 9, 0))
        topic = house.cluster.metadata.topic("orders")
        await house.cluster.topics.change_settings(topic, {"archive.path": "/moved"}, [])
        await house.keeper.tidy()
        assert house.span() == (0, 9)

        await house.cluster.topics.change_settings(topic, {}, ["archive.path"])
        await house.keeper.tidy()

        assert house.span()[0] > 0

    run(scene())


def test_records_that_somebody_deletes_go_whether_they_are_archived_or_not() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(archive_path="/archive")
        await house.publish(9)
        partition = house.cluster.partition(PLACE)
        segments = len(partition.log.log.segments)

        await partition.delete_records(Offset(9))
        await house.keeper.tidy()

        assert house.span() == (9, 9)
        assert len(partition.log.log.segments) < segments

    run(scene())


def test_compaction_waits_for_the_archive() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(cleanup_policy="compact", archive_path="/archive")
        await house.publish(9, key=b"k")
        await house.keeper.tidy()
        assert len(values(house.cluster.partition(PLACE))) == 9

        await house.cluster.partition(PLACE).note_archived(Archived("/archive", "t", 9, 0))
        await house.keeper.tidy()

        assert len(values(house.cluster.partition(PLACE))) < 9

    run(scene())


def test_idempotent_producers_are_remembered_after_their_segments_are_gone() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(retention_bytes="0")
        partition = house.cluster.partition(PLACE)
        await house.publish(1)
        for sequence in range(8):
            await partition.publish(numbered_batch(sequence, VALUE))
        await house.publish(4)
        await house.keeper.tidy()
        assert house.span()[0] >= 9
        house.machine.disk.kill()

        again = (await House.opened(house.machine)).cluster.partition(PLACE)
        assert await again.publish(numbered_batch(7, VALUE)) == 8
        assert await again.publish(numbered_batch(8, VALUE)) == 13

    run(scene())


def test_messages_that_wait_leave_their_segments_before_these_go() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(retention_bytes="0")
        partition = house.cluster.partition(PLACE)
        due_ms = house.machine.clock.now_ms() + 60_000
        headers = (("penstock-deliver-at", str(due_ms).encode()),)
        data = encode_batch([Record(n, 0, None, b"later %d" % n, headers) for n in range(3)])
        placed = partition.intake.publish(split_batches(data)[0], window_ms=0)
        assert placed is not None
        await placed
        await house.publish(9)

        await house.keeper.tidy()

        assert house.span()[0] > 0
        assert partition.stage.count == 3
        house.machine.disk.kill()
        again = (await House.opened(house.machine)).cluster.partition(PLACE)
        house.machine.clock.advance(60_000)
        await asyncio.sleep(5)
        assert values(again)[-3:] == [b"later 0", b"later 1", b"later 2"]

    run(scene())


def test_messages_whose_bytes_move_while_they_are_read_are_found_where_they_are() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(retention_bytes="0")
        partition = house.cluster.partition(PLACE)
        header = ("penstock-deliver-at", str(house.machine.clock.now_ms() + 60_000).encode())
        data = encode_batch([Record(0, 0, None, b"later", (header,))])
        placed = partition.intake.publish(split_batches(data)[0], window_ms=0)
        assert placed is not None
        number = (await placed).messages[0].stage_number
        assert number is not None
        await house.publish(9)
        found = partition.stage._stage.find(number)
        assert found is not None

        await house.keeper.tidy()
        (read,) = await partition.stage._read([found])

        assert read.record.value == b"later"
        assert read.waiting.where > found.where
        assert await partition.stage.cancel([number]) == [True]
        assert await partition.stage._read([found]) == []

    run(scene())


def test_compaction_keeps_the_latest_of_each_key() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        for _ in range(3):
            for key in (b"a", b"b"):
                await house.publish(3, key=key)
        house.machine.clock.advance(1)
        await house.keeper.tidy()

        left = values(house.cluster.partition(PLACE))
        assert len(left) < 10
        assert left[-1] == b"2 " + VALUE
        house.machine.disk.kill()
        again = await House.opened(house.machine)
        assert values(again.cluster.partition(PLACE)) == left

    run(scene())


def test_a_sync_that_fails_while_a_segment_is_sealed_closes_the_partition() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(segment_ms="1000")
        await house.topic("others")
        await house.publish(1)
        house.machine.clock.advance(2000)
        house.machine.disk.fail_sync()

        await house.keeper.tidy()

        partition = house.cluster.partition(PLACE)
        assert isinstance(partition.log.failure, StorageFailed)
        with pytest.raises(StorageFailed):
            partition.publish(batch(b"late"))
        await house.publish(1, topic="others")

    run(scene())


def test_compaction_loses_nothing_whichever_sync_fails_and_wherever_the_power_is_cut_then() -> None:
    async def scene(failing: int, stop: int) -> bool:
        house = await House.opened(SimMachine())
        await house.topic(cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        expected = {}
        for number in range(8):
            key = b"key %d" % (number % 3)
            await house.cluster.partition(PLACE).publish(
                batch(b"%d " % number + VALUE, key=key, timestamp=1)
            )
            expected[key] = b"%d " % number + VALUE
        house.machine.disk.fail_sync(failing)
        await house.keeper.tidy()
        has_failed = house.cluster.partition(PLACE).log.failure is not None
        house.machine.disk.stop_before(stop)
        with suppress(MachineStopped):
            await house.keeper.tidy()
        house.machine.disk.crash(Random(100 * failing + stop))

        again = (await House.opened(house.machine)).cluster.partition(PLACE)
        assert {each.key: each.value for each in records(again)} == expected
        assert again.high_watermark == 8
        return has_failed

    failing = 0
    while all(run(scene(failing, stop)) for stop in range(0, 40, 3)):
        failing += 1
    assert failing > 8


async def run_for_a_while(house: House) -> None:
    """Let housekeeping run for some rounds of its loops."""
    running = asyncio.ensure_future(house.keeper.run())
    await asyncio.sleep(0.05)
    assert not running.done(), running.exception()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def test_a_full_disk_does_not_end_housekeeping() -> None:
    async def scene() -> None:
        house = await House.opened(
            SimMachine(), checkpoint_interval_ms=1, housekeeping_interval_ms=1
        )
        await house.topic()
        await house.publish(9)
        house.machine.disk.capacity_bytes = 0

        await run_for_a_while(house)

        house.machine.disk.capacity_bytes = None
        await house.publish(1)
        assert house.span() == (0, 10)

    run(scene())


@pytest.mark.parametrize("lasting", [{}, {"segment_ms": "1000"}])
def test_retention_makes_room_on_a_disk_that_is_full(lasting: dict[str, str]) -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(retention_ms="60000", **lasting)
        await house.publish(9)
        await house.keeper.tidy()
        await house.publish(1)
        house.machine.clock.advance(60_001)
        house.machine.disk.capacity_bytes = 0

        await house.keeper.tidy()

        start, end = house.span()
        assert 0 < start < end == 10
        assert len(values(house.cluster.partition(PLACE))) == end - start

    run(scene())


def test_messages_that_wait_keep_only_their_own_segments_on_a_disk_that_is_full() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(retention_ms="60000")
        await house.publish(5)
        partition = house.cluster.partition(PLACE)
        due_ms = house.machine.clock.now_ms() + 10**9
        header = ("penstock-deliver-at", str(due_ms).encode())
        data = encode_batch([Record(0, 0, None, VALUE, (header,))])
        placed = partition.intake.publish(split_batches(data)[0], window_ms=0)
        assert placed is not None
        await placed
        await house.publish(5)
        await house.keeper.tidy()
        await house.publish(1)
        house.machine.clock.advance(60_001)
        house.machine.disk.capacity_bytes = 0

        await house.keeper.tidy()

        assert 0 < house.span()[0] <= 5
        assert partition.stage.count == 1

    run(scene())


def test_publishes_are_refused_while_the_disk_is_low_and_not_for_longer() -> None:
    machine = SimMachine(capacity_bytes=10_000)

    async def scene() -> None:
        house = await House.opened(machine, disk_free_bytes_min=5000)
        house.space.check()
        machine.disk.capacity_bytes = 4000
        house.space.refresh()
        with pytest.raises(DiskFull):
            house.space.check()
        machine.disk.capacity_bytes = 20_000
        house.space.refresh()
        house.space.check()

    run(scene())


def test_the_scrub_reports_damage_once_and_it_is_not_served() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic()
        await house.publish(2)
        partition = house.cluster.partition(PLACE)
        house.machine.disk.flip_bit(log_file(), 100)

        for _ in range(3):
            await house.keeper.scrub(partition.log)

        assert len(partition.log.log.segments[0].damage) == 1
        assert partition.log.failure is None
        with pytest.raises(Corruption):
            partition.read(0, bytes_max=1)
        assert partition.read(1, bytes_max=1) is not None

    run(scene())


def test_damage_that_a_reader_meets_is_marked() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic()
        await house.publish(2)
        log = house.cluster.partition(PLACE).log
        house.machine.disk.flip_bit(log_file(), 100)

        log.suspicion.arise(0)
        await house.keeper.look_at_suspicion(log)

        assert len(log.log.segments[0].damage) == 1
        assert log.failure is None
        with pytest.raises(Corruption):
            house.cluster.partition(PLACE).read(0, bytes_max=1)
        # Nobody else has the batch, so there is no use in looking at it again.
        assert not log.suspicion

    run(scene())


@pytest.mark.parametrize("offset", [0, 1, 2, 10])
def test_a_suspicion_without_damage_ends(offset: int) -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic()
        await house.publish(2)
        log = house.cluster.partition(PLACE).log

        log.suspicion.arise(offset)
        await house.keeper.look_at_suspicion(log)

        assert not log.suspicion
        assert log.log.segments[0].damage == []

    run(scene())


def test_damage_that_a_reader_meets_is_told_once_and_before_the_scrub_comes_by(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine(), checkpoint_interval_ms=1)
        await house.topic()
        await house.publish(9)
        partition = house.cluster.partition(PLACE)
        house.machine.disk.flip_bit(log_file(), 100)

        for _ in range(3):
            with pytest.raises(Corruption):
                partition.read(0, bytes_max=1)
            await run_for_a_while(house)

        assert partition.read(1, bytes_max=1) is not None
        assert [each.message for each in caplog.records].count("damage found") == 1

    run(scene())


def test_a_damaged_index_closes_the_partition() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic()
        await house.publish(9)
        await house.cluster.partition(PLACE).log.save_snapshot()
        house.machine.disk.flip_bit(log_file().with_suffix(".index"), 100)
        house.machine.disk.kill()

        again = await House.opened(house.machine)
        await again.keeper.scrub(again.cluster.partition(PLACE).log)

        with pytest.raises(Corruption):
            again.cluster.partition(PLACE).read(0, bytes_max=1)

    run(scene())


def test_a_damaged_index_is_found_at_the_start_where_entries_are_applied_again() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic()
        await house.publish(9)
        house.machine.disk.flip_bit(log_file().with_suffix(".index"), 100)
        house.machine.disk.kill()

        again = await House.opened(house.machine)

        with pytest.raises(Corruption, match="row of entry 1"):
            again.cluster.partition(PLACE)

    run(scene())


def test_a_topic_is_deleted_only_after_work_on_its_files_has_ended() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(retention_bytes="0")
        await house.publish(9)
        machine = house.machine
        old = house.cluster.metadata.topic("orders")
        log = house.cluster.partition(PLACE).log.log
        machine.executor.hold()
        tidying = asyncio.ensure_future(house.keeper.tidy())
        await turn()
        while log.first_offset == 0:
            machine.executor.run_next()
            await turn()
        # Segments are out of the log, and their files are about to be removed.
        recreating = asyncio.ensure_future(_recreate(house))
        await turn()
        while machine.executor.held > 1:
            machine.executor.run_last()
            await turn()
        machine.executor.release()
        await asyncio.gather(tidying, recreating)

        assert house.cluster.metadata.topic("orders").topic_id != old.topic_id
        machine.disk.kill()
        again = await House.opened(machine)
        assert again.cluster.failures == {}
        assert again.span() == (0, 3)

    run(scene())


async def _recreate(house: House) -> None:
    await house.cluster.topics.delete(house.cluster.metadata.topic("orders"))
    await house.topic()
    await house.publish(3)


def test_housekeeping_that_is_cancelled_leaves_no_thread_at_work() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine(), housekeeping_interval_ms=1)
        await house.topic(retention_bytes="0")
        await house.publish(9)
        house.machine.executor.hold()
        running = asyncio.ensure_future(house.keeper.run())
        await asyncio.sleep(0.05)
        assert house.machine.executor.held

        running.cancel()
        await turn()
        assert not running.done()
        house.machine.executor.release()
        with pytest.raises(asyncio.CancelledError):
            await running

    run(scene())


def test_an_entry_can_be_appended_while_the_scrub_checks_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic()
        await house.publish(1)
        table = house.cluster.partition(PLACE).log.log.segments[0].table
        row = table.row(0)

        def check_beside_an_append(data: Any) -> int:
            # The loop's thread may append at any moment while the scrub's thread checks.
            monkeypatch.setattr("penstock.log.index.crc32c", crc32c)
            table.append(row)
            return crc32c(data)

        monkeypatch.setattr("penstock.log.index.crc32c", check_beside_an_append)
        assert table.checked_row(0) is not None

    run(scene())


@pytest.mark.parametrize(
    "limit", ["REPLAYED_ENTRIES_MAX", "REPLAYED_LOG_BYTES_MAX", "REPLAYED_STATE_BYTES_MAX"]
)
def test_a_snapshot_is_due_before_much_would_have_to_be_replayed(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, limit, 20 if limit == "REPLAYED_ENTRIES_MAX" else 4_000)
    if limit == "REPLAYED_LOG_BYTES_MAX":
        monkeypatch.setattr(housekeeping, "REPLAYED_STATE_BYTES_MAX", 4_000)

    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(segment_bytes="1000000")
        partition = house.cluster.partition(PLACE)
        now_ms = house.machine.clock.now_ms()
        attributes: tuple[tuple[str, bytes], ...] = ()
        if limit == "REPLAYED_STATE_BYTES_MAX":
            attributes = (("penstock-deliver-at", str(now_ms + 60_000).encode()),)
        made = encode_batch([Record(0, now_ms, None, VALUE, attributes)])

        saved = 0
        for _ in range(60):
            (one,) = split_batches(bytearray(made))
            staged = partition.intake.publish(one, window_ms=0)
            await (partition.publish(one) if staged is None else staged)
            if housekeeping.is_snapshot_due(partition.log):
                await partition.log.save_snapshot()
                assert not housekeeping.is_snapshot_due(partition.log)
                saved += 1

        assert saved in range(2, 8)

    run(scene())


def test_priorities_of_records_that_retention_took_are_forgotten() -> None:
    async def scene() -> None:
        house = await House.opened(SimMachine())
        await house.topic(retention_ms="60000")
        partition = house.cluster.partition(PLACE)
        now_ms = house.machine.clock.now_ms()
        high = (("penstock-priority", b"9"),)
        for number in range(9):
            made = encode_batch([Record(0, now_ms, None, b"%d " % number + VALUE, high)])
            await partition.publish(split_batches(bytearray(made))[0])
        assert list(partition.priorities[9]) == list(range(9))

        house.machine.clock.advance(60_001)
        await house.keeper.tidy()

        start, end = house.span()
        assert 0 < start < end
        assert list(partition.priorities[9]) == list(range(start, end))

    run(scene())
