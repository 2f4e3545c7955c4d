"""Topics over crashes at every step, beside each other, and with clients that go away."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from penstock.cluster import Cluster, Topic, choose_replicas
from penstock.errors import PenstockError, StorageFailed, TopicExists, TopicNotFound
from penstock.ids import TopicPartition
from penstock.testing import MachineStopped
from tests.unit.cluster.workplaces import (
    DATA,
    PLACE,
    SimMachine,
    batch,
    run,
    settle,
    stop_before_every_step,
    turn,
    values,
)

SECOND = TopicPartition("orders", 1)


async def create(
    cluster: Cluster, name: str, partitions: int, settings: dict[str, str] | None = None
) -> Topic:
    placement = choose_replicas(cluster.metadata, partitions, 1, reachable=[1])
    return await cluster.topics.create(name, placement, settings or {})


async def grow(cluster: Cluster, topic: Topic, partitions: int) -> Topic:
    placement = choose_replicas(cluster.metadata, partitions - topic.partitions, 1, reachable=[1])
    return await cluster.topics.grow(topic, partitions, placement)


async def publish(cluster: Cluster, value: bytes, place: TopicPartition = PLACE) -> int:
    return await cluster.partition(place).publish(batch(value))


def test_topics_settings_and_growth_survive_a_crash() -> None:
    async def scene() -> None:
        machine = SimMachine()
        cluster = await machine.cluster()
        topic = await create(cluster, "orders", 1, {"retention.ms": "5000"})
        await create(cluster, "gone", 1)
        await publish(cluster, b"kept")
        await grow(cluster, topic, 2)
        await publish(cluster, b"second", SECOND)
        await cluster.topics.change_settings(topic, {"segment.bytes": "2048"}, ["retention.ms"])
        await cluster.topics.delete(cluster.metadata.topic("gone"))
        machine.disk.crash(Random(1))

        again = await machine.cluster()
        assert again.metadata.cluster_id == cluster.metadata.cluster_id
        assert list(again.metadata.topics) == ["orders"]
        assert again.metadata.topic("orders").topic_id == topic.topic_id
        assert again.settings("orders").log.segment_bytes == 2048
        assert again.settings("orders").log.retention_ms == 604_800_000
        assert values(again.partition(PLACE)) == [b"kept"]
        assert values(again.partition(SECOND)) == [b"second"]

    run(scene())


@pytest.mark.parametrize("way", ["crash", "kill"])
def test_a_node_that_is_cut_off_at_any_step_of_its_first_start_comes_up(way: str) -> None:
    async def scene(stop: int) -> bool:
        machine = SimMachine()
        machine.disk.stop_before(stop)
        with suppress(MachineStopped):
            starting = await settle(machine.cluster())
            starting.cancel()
            await turn()
        was_stopped = machine.disk.operations > stop
        if way == "crash":
            machine.disk.crash(Random(stop))
        else:
            machine.disk.kill()

        again = await machine.cluster()
        await create(again, "orders", 1)
        assert await publish(again, b"a") == 0
        assert again.failures == {}
        return was_stopped

    assert stop_before_every_step(scene) > 30


async def _recreate(cluster: Cluster) -> None:
    """Delete a topic with records and create it again, as far as the machine runs."""
    with suppress(MachineStopped, PenstockError):
        await settle(cluster.topics.delete(cluster.metadata.topic("orders")))
        await settle(create(cluster, "orders", 1))


@pytest.mark.parametrize("way", ["crash", "kill"])
def test_a_topic_that_is_created_again_shows_no_old_records_whenever_the_machine_stops(
    way: str,
) -> None:
    async def scene(stop: int) -> bool:
        machine = SimMachine()
        cluster = await machine.cluster()
        old = await create(cluster, "orders", 1)
        await publish(cluster, b"old")
        before = machine.disk.operations
        machine.disk.stop_before(stop)
        await _recreate(cluster)
        was_stopped = machine.disk.operations > before + stop
        if way == "crash":
            machine.disk.crash(Random(stop))
        else:
            machine.disk.kill()

        again = await machine.cluster()
        assert again.failures == {}
        topic = again.metadata.topics.get("orders")
        if topic is None:
            topic = await create(again, "orders", 1)
        stored = values(again.partition(PLACE))
        assert stored == ([b"old"] if topic.topic_id == old.topic_id else [])
        assert await publish(again, b"new") == len(stored)
        assert machine.disk.names(DATA / "deleted") == []
        return was_stopped

    assert stop_before_every_step(scene) > 20


def test_a_topic_is_deleted_and_created_again_while_others_ask_for_the_same() -> None:
    async def scene() -> None:
        machine = SimMachine()
        cluster = await machine.cluster()
        old = await create(cluster, "orders", 2)
        await publish(cluster, b"old")
        machine.executor.hold()

        deleting = asyncio.ensure_future(cluster.topics.delete(old))
        creating = asyncio.ensure_future(create(cluster, "orders", 2))
        creating_too = asyncio.ensure_future(create(cluster, "orders", 3))
        while not all(each.done() for each in (deleting, creating, creating_too)):
            if machine.executor.held:
                machine.executor.run_next()
            await asyncio.sleep(0)
        machine.executor.release()

        assert deleting.exception() is None
        assert isinstance(creating_too.exception(), TopicExists)
        assert creating.result().topic_id != old.topic_id
        for place in (PLACE, SECOND):
            assert values(cluster.partition(place)) == []
            assert await publish(cluster, b"new", place) == 0

    run(scene())


def test_two_growths_at_once_open_each_partition_once() -> None:
    async def scene() -> None:
        cluster = await SimMachine().cluster()
        topic = await create(cluster, "orders", 1)

        await asyncio.gather(grow(cluster, topic, 2), grow(cluster, topic, 4))
        grown_first = cluster.partition(SECOND)
        await publish(cluster, b"a", SECOND)

        assert cluster.partition(SECOND) is grown_first
        assert sorted(each.place.partition for each in cluster.partitions) == [0, 1, 2, 3]

    run(scene())


def test_a_topic_is_created_to_its_end_when_the_client_goes_away() -> None:
    async def scene() -> None:
        machine = SimMachine()
        cluster = await machine.cluster()
        machine.executor.hold()
        creating = asyncio.ensure_future(create(cluster, "orders", 1))
        await turn()

        creating.cancel()
        await turn()
        machine.executor.release()
        await turn()

        assert await publish(cluster, b"a") == 0

    run(scene())


def test_a_topic_whose_files_cannot_be_made_is_reported_and_can_be_deleted() -> None:
    async def scene() -> None:
        machine = SimMachine()
        cluster = await machine.cluster()
        await create(cluster, "fine", 1)
        machine.disk.fail_sync(syncs=2)

        await create(cluster, "orders", 1)
        with pytest.raises(StorageFailed):
            cluster.partition(PLACE)
        await publish(cluster, b"a", TopicPartition("fine", 0))
        await cluster.topics.delete(cluster.metadata.topic("orders"))
        with pytest.raises(TopicNotFound):
            cluster.partition(PLACE)
        await create(cluster, "orders", 1)

        assert await publish(cluster, b"a") == 0

    run(scene())


def test_a_partition_that_cannot_be_opened_does_not_stand_in_for_its_successor() -> None:
    async def scene() -> None:
        machine = SimMachine()
        cluster = await machine.cluster()
        machine.disk.fail_sync(syncs=2)
        broken = await create(cluster, "orders", 1)
        assert list(cluster.failures) == [PLACE]
        machine.executor.hold()

        # Both are committed before the node looks at the metadata again.
        deleting = asyncio.ensure_future(cluster.topics.delete(broken))
        creating = asyncio.ensure_future(create(cluster, "orders", 1))
        while not (deleting.done() and creating.done()):
            if machine.executor.held:
                machine.executor.run_next()
            await asyncio.sleep(0)
        machine.executor.release()

        assert cluster.failures == {}
        assert await publish(cluster, b"a") == 0

    run(scene())


def test_a_damaged_partition_leaves_the_others_served() -> None:
    async def scene() -> None:
        machine = SimMachine()
        cluster = await machine.cluster()
        await create(cluster, "orders", 2)
        for place in (PLACE, SECOND):
            for number in range(3):
                await publish(cluster, b"%d" % number, place)
        machine.disk.kill()
        log = DATA / "topics" / "orders" / "0" / f"{1:020}.log"
        machine.disk.put(log, machine.disk.content(log)[:-100])

        again = await machine.cluster()
        assert list(again.failures) == [PLACE]
        with pytest.raises(PenstockError):
            again.partition(PLACE)
        assert len(values(again.partition(SECOND))) == 3

    run(scene())


def test_damaged_consumer_groups_leave_the_topics_served() -> None:
    async def scene() -> None:
        machine = SimMachine()
        cluster = await machine.cluster()
        await create(cluster, "orders", 1)
        await publish(cluster, b"a")
        machine.disk.kill()
        index = DATA / "groups" / "0" / f"{1:020}.index"
        machine.disk.put(index, b"rotten")

        again = await machine.cluster()

        assert [str(place) for place in again.failures] == ["(groups)-0"]
        assert values(again.partition(PLACE)) == [b"a"]
        await create(again, "others", 1)
        assert [str(place) for place in again.failures] == ["(groups)-0"]

    run(scene())


def test_no_producer_id_is_given_twice_over_many_crashes() -> None:
    async def scene() -> None:
        machine = SimMachine()
        given: list[int] = []
        for life in range(6):
            cluster = await machine.cluster()
            given += await asyncio.gather(*(cluster.new_producer_id() for _ in range(700)))
            if life % 2:
                await cluster.close()
            machine.disk.crash(Random(life))

        assert len(set(given)) == len(given)

    run(scene())


def test_a_node_stops_also_when_its_disk_is_full() -> None:
    async def scene() -> None:
        machine = SimMachine()
        cluster = await machine.cluster()
        await create(cluster, "orders", 1)
        await publish(cluster, b"a")
        machine.disk.capacity_bytes = 0

        await cluster.close()

        machine.disk.kill()
        machine.disk.capacity_bytes = None
        assert values((await machine.cluster()).partition(PLACE)) == [b"a"]

    run(scene())
