"""Idempotent producers and deleted records, over failures and restarts."""

import asyncio
from dataclasses import replace

import pytest

from penstock.cluster.partition import Partition
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.errors import (
    DiskFull,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
)
from penstock.ids import Offset
from tests.unit.cluster.workplaces import (
    LoopClock,
    SimMachine,
    batch,
    numbered_batch,
    run,
    turn,
    values,
)


def test_a_repeated_batch_is_stored_once_and_answered_with_its_offset() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        await partition.publish(batch(b"other"))

        first = await partition.publish(numbered_batch(0, b"a", b"b"))
        again = await partition.publish(numbered_batch(0, b"a", b"b"))
        machine.disk.kill()
        reopened = await machine.partition()
        after_restart = await reopened.publish(numbered_batch(0, b"a", b"b"))

        assert first == again == after_restart == 1
        assert values(reopened) == [b"other", b"a", b"b"]

    run(scene())


def test_a_batch_repeated_while_it_is_in_flight_waits_for_the_first_copy() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        machine.executor.hold()

        first = partition.publish(numbered_batch(0, b"a"))
        again = partition.publish(numbered_batch(0, b"a"))
        await turn()
        assert not again.done()
        machine.executor.release()

        assert await first == await again == 0
        assert values(partition) == [b"a"]

    run(scene())


def test_a_repeated_batch_keeps_its_offset_while_later_ones_are_in_flight() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        machine.executor.hold()
        first = partition.publish(numbered_batch(0, b"a"))
        machine.executor.run_next()
        assert await first == 0

        second = partition.publish(numbered_batch(1, b"b"))
        again = partition.publish(numbered_batch(0, b"a"))

        assert await again == 0
        assert not second.done()
        machine.executor.release()
        assert await second == 1

    run(scene())


def test_gaps_and_old_epochs_are_refused_also_after_a_restart() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        await partition.publish(numbered_batch(0, b"a", epoch=1))
        for each in (partition, await machine.partition()):
            with pytest.raises(OutOfOrderSequence):
                each.publish(numbered_batch(2, b"c", epoch=1))
            with pytest.raises(ProducerFenced):
                each.publish(numbered_batch(1, b"b", epoch=0))

    run(scene())


def test_a_batch_that_builds_on_a_failed_one_is_refused_until_that_is_sent_again() -> None:
    async def scene(known: int) -> None:
        machine = SimMachine()
        partition = await machine.partition()
        for sequence in range(known):
            await partition.publish(numbered_batch(sequence, b"known"))
        machine.executor.hold()
        others = [partition.publish(batch(b"other"))]
        failed = partition.publish(numbered_batch(known, b"a" * 500))
        failed_too = partition.publish(numbered_batch(known + 1, b"b"))
        others.append(partition.publish(batch(b"keeps the log busy")))
        machine.disk.capacity_bytes = 0
        machine.executor.release()
        await asyncio.wait([failed, failed_too, *others])
        machine.disk.capacity_bytes = None
        await asyncio.sleep(1)
        machine.executor.hold()
        busy = partition.publish(batch(b"keeps the log busy again"))

        with pytest.raises(DiskFull):
            partition.publish(numbered_batch(known + 1, b"b"))
        answers = [
            partition.publish(numbered_batch(known, b"a" * 500)),
            partition.publish(numbered_batch(known + 1, b"b")),
        ]
        machine.executor.release()
        await asyncio.wait([busy, *answers])

        assert isinstance(failed.exception(), DiskFull)
        assert isinstance(failed_too.exception(), DiskFull)
        stored = values(partition)
        assert stored[answers[0].result()] == b"a" * 500
        assert stored[answers[1].result()] == b"b"
        assert stored.count(b"b") == 1

    for known in (0, 1, 7):
        run(scene(known))


def test_a_batch_that_a_full_disk_held_up_is_not_stored_again_when_it_is_sent_again() -> None:
    async def scene(known: int) -> None:
        machine = SimMachine()
        partition = await machine.partition()
        for sequence in range(known):
            await partition.publish(numbered_batch(sequence, b"known"))
        machine.disk.capacity_bytes = 0
        machine.executor.hold()
        first = partition.publish(numbered_batch(known, b"a" * 500))
        machine.executor.release()
        await asyncio.wait([first])
        assert isinstance(first.exception(), DiskFull)

        # Consensus still holds the entry, so a second copy is turned away until its fate is known.
        await asyncio.sleep(1)
        with pytest.raises(DiskFull):
            partition.publish(numbered_batch(known, b"a" * 500))
        machine.executor.hold()
        machine.disk.capacity_bytes = None
        await asyncio.sleep(1)
        with pytest.raises(DiskFull):
            partition.publish(numbered_batch(known, b"a" * 500))
        machine.executor.release()
        await turn()

        assert await partition.publish(numbered_batch(known, b"a" * 500)) == known
        assert await partition.publish(numbered_batch(known + 1, b"b")) == known + 1
        assert values(partition) == [*[b"known"] * known, b"a" * 500, b"b"]

    for known in (0, 1, 7):
        run(scene(known))


def test_a_new_producer_whose_first_batch_is_turned_away_must_begin_with_it() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()
        partition.refuse(numbered_batch(0, b"a").header, DiskFull("the disk is full"))

        with pytest.raises(DiskFull):
            partition.publish(numbered_batch(1, b"b"))

        assert await partition.publish(numbered_batch(0, b"a")) == 0
        assert await partition.publish(numbered_batch(1, b"b")) == 1

    run(scene())


def publish_to_nobody(partition: Partition, *sequences: int) -> None:
    """Send batches while the replica does not lead."""

    def does_not_lead() -> None:
        raise NotLeader("not all of the log is applied")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition.log, "check_writable", does_not_lead)
        for sequence in sequences:
            with pytest.raises(NotLeader):
                partition.publish(numbered_batch(sequence, b"v"))


def test_a_new_producer_whose_first_batch_met_no_leader_must_begin_with_it() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()
        publish_to_nobody(partition, 0)

        with pytest.raises(NotLeader):
            partition.publish(numbered_batch(1, b"b"))
        await partition.publish(numbered_batch(0, b"a"))
        await partition.publish(numbered_batch(1, b"b"))

        assert values(partition) == [b"a", b"b"]

    run(scene())


def test_batches_behind_one_that_was_turned_away_are_not_called_out_of_order() -> None:
    async def scene(known: int) -> None:
        partition = await SimMachine().partition()
        for sequence in range(known):
            await partition.publish(numbered_batch(sequence, b"known"))
        publish_to_nobody(partition, known, known + 1)

        for sequence in (known + 1, known + 2):
            with pytest.raises(NotLeader):
                partition.publish(numbered_batch(sequence, b"early"))
        for sequence in range(known, known + 3):
            assert await partition.publish(numbered_batch(sequence, b"v")) == sequence
        with pytest.raises(OutOfOrderSequence):
            partition.publish(numbered_batch(known + 4, b"a gap of the producer's own"))

    for known in (0, 1, 7):
        run(scene(known))


def test_batches_are_not_called_out_of_order_by_one_who_lagged_when_it_refused() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()
        await partition.publish(numbered_batch(0, b"known"))
        publish_to_nobody(partition, 3, 4)
        # What the replica lacked arrives; only then is the third batch the next one.
        for sequence in (1, 2):
            batch = numbered_batch(sequence, b"stored elsewhere")
            await partition.log.propose_records(batch)

        with pytest.raises(NotLeader):
            partition.publish(numbered_batch(4, b"early"))
        for sequence in (3, 4, 5):
            assert await partition.publish(numbered_batch(sequence, b"v")) == sequence

    run(scene())


def test_batches_are_not_called_out_of_order_when_the_first_that_was_turned_away_was_stored() -> (
    None
):
    async def scene() -> None:
        partition = await SimMachine().partition()
        await partition.publish(numbered_batch(0, b"known"))
        publish_to_nobody(partition, 1, 2)
        # The leader before had taken the first of them, and it was committed after all.
        await partition.log.propose_records(numbered_batch(1, b"v"))

        with pytest.raises(NotLeader):
            partition.publish(numbered_batch(3, b"v"))
        for sequence in (1, 2, 3):
            assert await partition.publish(numbered_batch(sequence, b"v")) == sequence
        with pytest.raises(OutOfOrderSequence):
            partition.publish(numbered_batch(5, b"a gap of the producer's own"))

    run(scene())


def test_batches_are_not_called_out_of_order_when_the_first_that_failed_was_stored() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        await partition.publish(numbered_batch(0, b"known"))
        machine.executor.hold()
        others = [partition.publish(batch(b"other"))]
        failed = [partition.publish(numbered_batch(each, b"v" * 500)) for each in (1, 2)]
        others.append(partition.publish(batch(b"keeps the log busy")))
        machine.disk.capacity_bytes = 0
        machine.executor.release()
        await asyncio.wait([*failed, *others])
        machine.disk.capacity_bytes = None
        await asyncio.sleep(1)
        assert all(isinstance(each.exception(), DiskFull) for each in failed)
        await partition.log.propose_records(numbered_batch(1, b"v" * 500))

        with pytest.raises(DiskFull):
            partition.publish(numbered_batch(3, b"v"))
        for sequence in (1, 2, 3):
            await partition.publish(numbered_batch(sequence, b"v" * 500))

    run(scene())


def test_a_gap_after_a_change_of_leaders_is_believed_when_it_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        partition = await machine.partition()
        await partition.publish(numbered_batch(0, b"known to the former leader"))
        machine.disk.kill()
        monkeypatch.setattr(ReplicatedLog, "is_alone", False)
        reopened = await machine.partition()

        with pytest.raises(NotLeader):
            reopened.publish(numbered_batch(2, b"overtakes"))
        await asyncio.sleep(9)
        with pytest.raises(NotLeader):
            reopened.publish(numbered_batch(2, b"overtakes"))
        await asyncio.sleep(2)
        with pytest.raises(OutOfOrderSequence):
            await reopened.publish(numbered_batch(2, b"is out of order"))
        assert await reopened.publish(numbered_batch(1, b"v")) == 1
        with pytest.raises(OutOfOrderSequence):
            await reopened.publish(numbered_batch(3, b"a gap of the producer's own"))

    run(scene())


def test_a_producer_that_was_turned_away_may_begin_again_under_a_new_epoch() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()
        partition.refuse(numbered_batch(4, b"a").header, DiskFull("the disk is full"))

        assert await partition.publish(numbered_batch(0, b"a", epoch=1)) == 0

    run(scene())


def test_producers_in_flight_do_not_pile_up_on_a_busy_partition() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        machine.executor.hold()
        last = partition.publish(batch(b"first"))
        for number in range(50):
            producer = number % 5
            following = partition.publish(numbered_batch(number // 5, b"v", producer_id=producer))
            machine.executor.run_next()
            await last
            last = following
        machine.executor.release()
        await last
        await turn()

        assert partition._in_flight == {}

    run(scene())


def test_a_deletion_is_told_to_the_group_also_where_retention_was_faster() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        for number in range(5):
            await partition.publish(batch(b"%d" % number))
        log = partition.log.log
        log.settings = replace(log.settings, segment_ms=0)
        await partition.log.run_exclusive(lambda: log.seal_if_due(machine.clock.now_ms()))
        log.forget(log.segments[:-1])
        assert partition.start_offset == 5

        await partition.delete_records(Offset(3))

        # Another replica that keeps older records knows of it, too.
        assert partition.log.machine.start_offset == 3

    run(scene())


def test_records_that_were_deleted_stay_deleted() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        for number in range(5):
            await partition.publish(batch(b"%d" % number))

        assert await partition.delete_records(Offset(3)) == 3
        assert await partition.delete_records(Offset(1)) == 3
        with pytest.raises(OffsetOutOfRange):
            await partition.delete_records(Offset(6))
        with pytest.raises(OffsetOutOfRange):
            partition.read(2, bytes_max=100)
        machine.disk.kill()

        reopened = await machine.partition()
        assert reopened.start_offset == 3
        assert values(reopened) == [b"3", b"4"]

    run(scene())


def test_a_replica_that_does_not_lead_calls_no_batch_out_of_order() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        await partition.publish(numbered_batch(0, b"a"))
        await partition.log.close()

        with pytest.raises(NotLeader):
            partition.publish(numbered_batch(5, b"f"))

    run(scene())


def test_an_epoch_that_has_not_begun_has_no_end_and_one_before_all_records_ends_with_them() -> None:
    async def scene() -> None:
        partition = await SimMachine().partition()
        await partition.publish(batch(b"a", b"b"))

        epoch = partition.leader_epoch
        assert partition.end_offset_of_epoch(epoch) == (epoch, 2)
        assert partition.end_offset_of_epoch(epoch + 1) is None
        assert partition.end_offset_of_epoch(epoch - 1) == (epoch - 1, 0)

    run(scene())
