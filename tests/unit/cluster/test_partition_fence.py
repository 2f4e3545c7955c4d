"""A partition behind a fence takes no writes, whoever leads it and whatever it knows."""

import asyncio

import pytest

from penstock.cluster import Partition
from penstock.cluster.partition_fence import KnownFences
from penstock.cluster.write_events import WriteDecided, WriteStaged
from penstock.errors import OutOfOrderSequence, TopicFenced
from tests.unit.cluster.test_partition_stage import schedule, timed, wait_released
from tests.unit.cluster.workplaces import (
    SimMachine,
    batch,
    numbered_batch,
    run,
    turn,
    values,
)


class Fences:
    """What the metadata of a node knows of fences."""

    def __init__(self) -> None:
        self.lifted: set[int] = set()
        self.switched: set[int] = set()

    @property
    def known(self) -> KnownFences:
        """As partitions ask for it."""
        return KnownFences(self.is_in_force, lambda fence: fence not in self.lifted | self.switched)

    def is_in_force(self, fence: int) -> bool:
        """True for those that were not lifted."""
        return fence not in self.lifted


STAGED = WriteStaged(
    writer="w",
    epoch=0,
    run="r",
    stage="s",
    number=0,
    batch=bytes(batch(b"staged").data),
    home="orders",
    producer_id=9,
    at_ms=1,
)


async def refuses_everything(partition: Partition, due_ms: int) -> None:
    """Try all ways into a partition."""
    with pytest.raises(TopicFenced):
        partition.publish(batch(b"plain"))
    with pytest.raises(TopicFenced):
        partition.publish(batch(b"careless"), waits_for_commit=False)
    with pytest.raises(TopicFenced):
        partition.publish(numbered_batch(0, b"idempotent"))
    with pytest.raises(TopicFenced):
        partition.intake.publish(timed((b"later", due_ms)), window_ms=1000)
    with pytest.raises(TopicFenced):
        await partition.writes.stage(STAGED, bytes_max=1 << 20)
    with pytest.raises(TopicFenced):
        await partition.writes.decide(WriteDecided("w", 0, "r", (), 1))


def test_every_way_into_a_partition_is_closed_until_the_fence_is_lifted() -> None:
    async def scene() -> None:
        machine, fences = SimMachine(), Fences()
        partition = await machine.partition(fences=fences.known)
        due_ms = machine.clock.now_ms() + 1000
        await partition.publish(batch(b"before"))

        await partition.fence.close(3)
        await refuses_everything(partition, due_ms)
        assert values(partition) == [b"before"]

        fences.lifted.add(3)
        await partition.publish(batch(b"after"))
        await partition.fence.close(3)
        await partition.publish(batch(b"late news of an old fence"))
        await partition.fence.close(4)
        await refuses_everything(partition, due_ms)
        assert len(values(partition)) == 3

    run(scene())


def test_a_fence_is_closed_behind_all_that_was_proposed_before() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        machine.executor.hold()
        before = [partition.publish(batch(b"%d" % number)) for number in range(3)]

        closing = asyncio.ensure_future(partition.fence.close(1))
        await asyncio.sleep(0)
        with pytest.raises(TopicFenced):
            partition.publish(batch(b"too late"))
        assert not closing.done()
        machine.executor.release()
        await closing

        assert partition.high_watermark == 3
        assert [each.result() for each in before] == [0, 1, 2]

    run(scene())


def test_a_fence_survives_a_restart_and_a_snapshot() -> None:
    async def scene() -> None:
        machine = SimMachine()
        partition = await machine.partition()
        await partition.fence.close(2)
        machine.disk.kill()

        reopened = await machine.partition()
        with pytest.raises(TopicFenced):
            reopened.publish(batch(b"a"))
        restored = await SimMachine().partition()
        restored.log.machine.restore(reopened.log.machine.snapshot(), 1)

        with pytest.raises(TopicFenced):
            restored.publish(batch(b"a"))

    run(scene())


def test_scheduled_messages_wait_behind_a_fence_and_come_when_it_is_lifted() -> None:
    async def scene() -> None:
        machine, fences = SimMachine(), Fences()
        partition = await machine.partition(fences=fences.known)
        await schedule(partition, (b"due", machine.clock.now_ms() + 100))
        await partition.fence.close(1)
        machine.clock.advance(200)

        await wait_released(partition)
        assert (values(partition), partition.stage.count) == ([], 1)
        fences.lifted.add(1)
        await wait_released(partition)

        assert (values(partition), partition.stage.count) == ([b"due"], 0)

    run(scene())


def test_a_producer_that_is_turned_away_is_never_told_that_it_is_out_of_order() -> None:
    async def scene() -> None:
        machine, fences = SimMachine(), Fences()
        partition = await machine.partition(fences=fences.known)
        await partition.publish(numbered_batch(0, b"a"))
        await partition.fence.close(1)
        for sequence in (1, 2):
            with pytest.raises(TopicFenced):
                partition.publish(numbered_batch(sequence, b"%d" % sequence))
        fences.lifted.add(1)

        # The third was on its way when the fence was lifted, and the first two come again.
        with pytest.raises(TopicFenced):
            partition.publish(numbered_batch(3, b"3"))
        for sequence in (1, 2, 3):
            await partition.publish(numbered_batch(sequence, b"%d" % sequence))
        assert values(partition) == [b"a", b"1", b"2", b"3"]
        with pytest.raises(OutOfOrderSequence):
            partition.publish(numbered_batch(9, b"9"))

    run(scene())


def test_the_partition_that_takes_the_name_waits_for_batches_that_were_turned_away_before() -> None:
    async def scene() -> None:
        former = await SimMachine().partition()
        await former.fence.close(1)
        with pytest.raises(TopicFenced):
            former.publish(numbered_batch(5, b"first"))
        copy = await SimMachine().partition()

        copy.take_refusals_of(former)
        # Taken for the first one of its producer, it would pass off the first one as stored.
        with pytest.raises(TopicFenced):
            copy.publish(numbered_batch(6, b"second"))
        await copy.publish(numbered_batch(5, b"first"))
        await copy.publish(numbered_batch(6, b"second"))
        await turn()

        assert values(copy) == [b"first", b"second"]

    run(scene())


@pytest.mark.parametrize("way", ["lifted", "switched"])
def test_reads_are_closed_until_the_node_knows_what_became_of_the_topic(way: str) -> None:
    async def scene() -> None:
        machine, fences = SimMachine(), Fences()
        partition = await machine.partition(fences=fences.known)
        await partition.publish(batch(b"a"))
        await partition.fence.close(1)
        assert values(partition) == [b"a"]

        await partition.fence.close(1, closes_reads=True)
        with pytest.raises(TopicFenced):
            partition.read(0, bytes_max=99)
        machine.disk.kill()
        reopened = await machine.partition(fences=fences.known)
        with pytest.raises(TopicFenced):
            reopened.read(0, bytes_max=99)
        getattr(fences, way).add(1)

        assert values(reopened) == [b"a"]
        if way == "switched":
            with pytest.raises(TopicFenced):
                reopened.publish(batch(b"b"))

    run(scene())
