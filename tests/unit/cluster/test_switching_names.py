"""A topic's copy takes its name on a node: at once, in all it knows, and over crashes."""

import asyncio
import uuid
from contextlib import suppress
from random import Random

import pytest

from penstock.cluster import Cluster, Topic
from penstock.cluster.resharding import (
    BeginReshard,
    CancelReshard,
    FenceTopic,
    LiftFence,
    SwitchTopics,
)
from penstock.errors import PenstockError, TopicFenced, TopicNotFound
from penstock.ids import TopicPartition
from penstock.testing import MachineStopped
from tests.unit.cluster.test_cluster import create, publish
from tests.unit.cluster.workplaces import (
    DATA,
    SimMachine,
    run,
    settle,
    stop_before_every_step,
    values,
)

RESHARD = uuid.uuid4()
ORDERS, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
FORMER = TopicPartition("orders.before", 0)


async def fenced(cluster: Cluster) -> tuple[Topic, int]:
    """A topic with two records behind a fence, and a copy with two partitions."""
    source = await create(cluster, "orders", 1, {"retention.ms": "5000"})
    copy = await create(cluster, "copy", 2, {"retention.ms": "6000"})
    for value in (b"a", b"b"):
        await publish(cluster, value, ORDERS)
    await publish(cluster, b"a", TopicPartition("copy", 0))
    await publish(cluster, b"b", TopicPartition("copy", 1))
    await cluster.change(BeginReshard(source.topic_id, RESHARD, copy.topic_id))
    topic = await cluster.change(FenceTopic(source.topic_id, RESHARD))
    fence = topic.resharding.fence
    await cluster.partition(ORDERS).fence.close(fence)
    return source, fence


def test_partitions_and_settings_are_known_by_their_new_names_at_once() -> None:
    async def scene() -> None:
        machine = SimMachine()
        cluster = await machine.cluster()
        source, fence = await fenced(cluster)
        old, new = (cluster.partition(each) for each in (ORDERS, TopicPartition("copy", 0)))
        seen = []
        cluster.metadata.watch(lambda: seen.append(cluster.partition(ORDERS)))

        await cluster.change(SwitchTopics(source.topic_id, RESHARD, fence, FORMER.topic, {}))

        assert seen[0] is new, "nobody finds the former partition under the name"
        assert cluster.partition(FORMER) is old
        assert (old.place, new.place, old.log.name) == (FORMER, ORDERS, str(FORMER))
        assert cluster.settings("orders").log.retention_ms == 5000
        assert cluster.settings(FORMER.topic).log.retention_ms == 5000
        with pytest.raises(TopicNotFound):
            cluster.partition(TopicPartition("copy", 0))
        assert await publish(cluster, b"c", ORDERS) == 1
        with pytest.raises(TopicFenced):
            await publish(cluster, b"c", FORMER)

    run(scene())


@pytest.mark.parametrize("way", ["crash", "kill"])
def test_files_stay_where_they_are_and_are_found_after_a_restart(way: str) -> None:
    async def scene() -> None:
        machine = SimMachine()
        cluster = await machine.cluster()
        source, fence = await fenced(cluster)
        await cluster.change(SwitchTopics(source.topic_id, RESHARD, fence, FORMER.topic, {}))
        await publish(cluster, b"c", SECOND)
        if way == "crash":
            machine.disk.crash(Random(1))
        else:
            machine.disk.kill()

        again = await machine.cluster()
        assert again.failures == {}
        assert sorted(machine.disk.names(DATA / "topics")) == ["copy", "orders"]
        assert values(again.partition(ORDERS)) == [b"a"]
        assert values(again.partition(SECOND)) == [b"b", b"c"]
        assert values(again.partition(FORMER)) == [b"a", b"b"]
        with pytest.raises(TopicFenced):
            await publish(again, b"c", FORMER)

        # The names are free again; the files of others are not touched.
        await again.topics.delete(again.metadata.topic("orders"))
        await create(again, "orders", 1)
        await create(again, "copy", 1)
        await publish(again, b"new", ORDERS)
        assert values(again.partition(FORMER)) == [b"a", b"b"]
        await again.topics.delete(again.metadata.topic(FORMER.topic))
        machine.disk.kill()
        last = await machine.cluster()
        assert values(last.partition(ORDERS)) == [b"new"]
        assert sorted(last.metadata.topics) == ["copy", "orders"]

    run(scene())


def test_a_topic_is_written_to_again_when_its_fence_is_lifted_or_its_reshard_cancelled() -> None:
    async def scene() -> None:
        cluster = await SimMachine().cluster()
        source, fence = await fenced(cluster)
        with pytest.raises(TopicFenced):
            await publish(cluster, b"c", ORDERS)
        await cluster.change(LiftFence(source.topic_id, fence))
        assert await publish(cluster, b"c", ORDERS) == 2

        topic = await cluster.change(FenceTopic(source.topic_id, RESHARD))
        await cluster.partition(ORDERS).fence.close(topic.resharding.fence)
        with pytest.raises(TopicFenced):
            await publish(cluster, b"d", ORDERS)
        await cluster.change(CancelReshard(source.topic_id, RESHARD))

        assert await publish(cluster, b"d", ORDERS) == 3
        assert list(cluster.metadata.topics) == ["orders"]

    run(scene())


async def reshard(cluster: Cluster) -> None:
    """What the job does: fence, copy the rest, switch; all of it may have been done before."""
    if FORMER.topic in cluster.metadata.topics:
        return
    source, copy = cluster.metadata.topic("orders"), cluster.metadata.topic("copy")
    begun = await cluster.change(BeginReshard(source.topic_id, RESHARD, copy.topic_id))
    await cluster.change(LiftFence(source.topic_id, begun.resharding.fence))
    topic = await cluster.change(FenceTopic(source.topic_id, RESHARD))
    fence = topic.resharding.fence
    await cluster.partition(ORDERS).fence.close(fence)
    place = TopicPartition("copy", 0)
    copied = values(cluster.partition(place))
    for value in values(cluster.partition(ORDERS))[len(copied) :]:
        await publish(cluster, value, place)
    await cluster.partition(ORDERS).fence.close(fence, closes_reads=True)
    await cluster.change(SwitchTopics(source.topic_id, RESHARD, fence, FORMER.topic, {}))


@pytest.mark.parametrize("way", ["crash", "kill"])
def test_what_was_acknowledged_is_found_under_the_name_whenever_the_machine_stops(
    way: str,
) -> None:
    async def scene(stop: int) -> bool:
        machine = SimMachine()
        cluster = await machine.cluster()
        await create(cluster, "orders", 1)
        await create(cluster, "copy", 2)
        acknowledged: list[bytes] = []

        async def write(value: bytes) -> None:
            with suppress(TopicFenced):
                await publish(cluster, value, ORDERS)
                acknowledged.append(value)

        async def work() -> None:
            await write(b"a")
            beside = asyncio.ensure_future(reshard(cluster))
            for number in range(20):
                await write(b"%d" % number)
            await beside
            await write(b"z")

        before = machine.disk.operations
        machine.disk.stop_before(stop)
        with suppress(MachineStopped, PenstockError):
            (await settle(work())).cancel()
        was_stopped = machine.disk.operations > before + stop
        if way == "crash":
            machine.disk.crash(Random(stop))
        else:
            machine.disk.kill()

        again = await machine.cluster()
        assert again.failures == {}
        await reshard(again)
        held = values(again.partition(ORDERS))
        assert [value for value in held if value in acknowledged] == acknowledged
        assert await publish(again, b"new", ORDERS) == len(held)
        with pytest.raises(TopicFenced):
            await publish(again, b"new", FORMER)
        return was_stopped

    assert stop_before_every_step(scene) > 20
