"""Creating, changing and deleting topics through the broker."""

import asyncio

import pytest
from msgspec import structs

from penstock.broker import Broker, NewTopic
from penstock.cluster.commands import RegisterNode
from penstock.errors import (
    Conflict,
    InvalidAssignment,
    InvalidPartitionCount,
    InvalidReplication,
    InvalidSetting,
    InvalidTopicName,
    PenstockError,
    TopicExists,
    TopicNotFound,
)
from penstock.ids import TopicPartition
from tests.unit.broker.brokers import set_for_long, started
from tests.unit.cluster.workplaces import run


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (NewTopic("orders"), TopicExists),
        (NewTopic("no spaces"), InvalidTopicName),
        (NewTopic(".."), InvalidTopicName),
        (NewTopic("x" * 250), InvalidTopicName),
        (NewTopic("new", partitions=0), InvalidPartitionCount),
        (NewTopic("new", partitions=10_001), InvalidPartitionCount),
        (NewTopic("new", replication_factor=2), InvalidReplication),
        (NewTopic("new", assignments=[[1], [2]]), InvalidReplication),
        (NewTopic("new", settings={"retention.ms": "soon"}), InvalidSetting),
        (NewTopic("new", settings={"no.such": "1"}), InvalidSetting),
        (NewTopic("new", settings={"sqs.tags": '{"": "x"}'}), InvalidSetting),
        (NewTopic("new", settings={"min.insync.replicas": "2"}), InvalidSetting),
        (
            NewTopic("new", assignments=[[1], [1]], settings={"min.insync.replicas": "2"}),
            InvalidSetting,
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_and_without_a_dry_run(
    new: NewTopic, error: type[PenstockError]
) -> None:
    async def scene() -> None:
        broker = await started()
        for dry_run in (True, False):
            with pytest.raises(error):
                await broker.topics.create(new, dry_run=dry_run)
        assert list(broker.metadata.topics) == ["orders"]

    run(scene())


def test_a_dry_run_changes_nothing() -> None:
    async def scene() -> None:
        broker = await started()

        planned = await broker.topics.create(NewTopic("new", partitions=4), dry_run=True)
        await broker.topics.grow("orders", 5, dry_run=True)
        await broker.topics.change_settings("orders", {"retention.ms": "1"}, [], dry_run=True)

        topic = broker.metadata.topic("orders")
        assert list(broker.metadata.topics) == ["orders"]
        assert topic.partitions == 2
        assert topic.settings == {}
        assert (planned.partitions, planned.topic_id.int) == (4, 0)

    run(scene())


@pytest.mark.parametrize(
    "assignments", [[], [[1, 2]], [[1], [2]], [[1, 2], [1]], [[1, 9], [1, 2]], [[1, 1], [1, 2]]]
)
def test_new_partitions_are_refused_replicas_that_do_not_fit(assignments: list[list[int]]) -> None:
    async def scene() -> None:
        broker = await with_two_replicas()

        for dry_run in (True, False):
            with pytest.raises(InvalidAssignment):
                await broker.topics.grow("pair", 3, assignments=assignments, dry_run=dry_run)

        assert broker.metadata.topic("pair").partitions == 1

    run(scene())


def test_settings_are_told_with_their_default_and_origin() -> None:
    async def scene() -> None:
        broker = await started(retention_ms=1234)
        await broker.topics.change_settings("orders", {"retention.ms": "5"}, [])
        given = {each.definition.name: each for each in broker.topics.settings("orders")}
        await broker.topics.change_settings("orders", {}, ["retention.ms"])
        removed = {each.definition.name: each for each in broker.topics.settings("orders")}

        assert (given["retention.ms"].value, given["retention.ms"].is_given) == ("5", True)
        assert (removed["retention.ms"].value, removed["retention.ms"].is_given) == ("1234", False)
        with pytest.raises(InvalidSetting):
            await broker.topics.change_settings("orders", {}, ["no.such"])

    run(scene())


def test_names_that_metrics_could_not_tell_apart_are_refused() -> None:
    async def scene() -> None:
        broker = await started()
        await broker.topics.create(NewTopic("a.b"))

        with pytest.raises(InvalidTopicName, match=r"differs from 'a\.b' only"):
            await broker.topics.create(NewTopic("a_b"))

    run(scene())


def test_a_topic_cannot_shrink_and_a_missing_one_cannot_grow() -> None:
    async def scene() -> None:
        broker = await started()

        with pytest.raises(InvalidPartitionCount):
            await broker.topics.grow("orders", 2)
        with pytest.raises(TopicNotFound):
            await broker.topics.grow("nothing", 2)
        await broker.topics.grow("orders", 3)
        assert len(broker.partitions) == 3

    run(scene())


def test_a_change_that_expects_other_settings_is_refused() -> None:
    async def scene() -> None:
        broker = await started()
        change, old = broker.topics.change_settings, {"retention.ms": "1"}
        await change("orders", old, [], expected={"retention.ms": None})

        for expected in (None, "2"):
            with pytest.raises(Conflict, match=r"retention\.ms of topic 'orders' is another one"):
                await change(
                    "orders", {"retention.ms": "3"}, [], expected={"retention.ms": expected}
                )
        assert broker.metadata.topic("orders").settings == old

        await change("orders", {"retention.ms": "3"}, [], expected={"retention.ms": "1"})
        assert broker.metadata.topic("orders").settings == {"retention.ms": "3"}

    run(scene())


async def with_two_replicas(default_replication_factor: int = 1, **settings: str) -> Broker:
    """Return a broker with a topic that another node replicates, too; that one is never up."""
    broker = await started(default_replication_factor=default_replication_factor)
    (known,) = broker.metadata.nodes.values()
    await broker.cluster.change(RegisterNode(structs.replace(known, node_id=2, incarnation=2)))
    await broker.topics.create(NewTopic("pair", assignments=[[1, 2]], settings=settings))
    return broker


def test_a_topic_has_as_many_replicas_as_nodes_take_while_others_are_drained() -> None:
    async def scene() -> None:
        broker = await with_two_replicas(default_replication_factor=3)
        await broker.operations.drain(2, may_shrink=True)

        await broker.topics.create(NewTopic("new"))

        assert [each.nodes for each in broker.metadata.topic("new").replicas] == [(1,)]
        with pytest.raises(InvalidReplication, match="the cluster has 1 nodes that take replicas"):
            await broker.topics.create(NewTopic("more", replication_factor=2))

    run(scene())


def test_no_more_replicas_can_be_asked_to_be_in_step_than_there_are() -> None:
    async def scene() -> None:
        broker = await with_two_replicas()
        change = broker.topics.change_settings

        for dry_run in (True, False):
            with pytest.raises(InvalidSetting, match=r"replicas=3 is more than the 2 replicas"):
                await change("pair", {"min.insync.replicas": "3"}, [], dry_run=dry_run)
        await change("pair", {"min.insync.replicas": "2"}, [])

        assert broker.metadata.topic("pair").settings == {"min.insync.replicas": "2"}

    run(scene())


def test_a_topic_that_asks_for_too_many_replicas_already_can_be_changed() -> None:
    async def scene() -> None:
        broker = await started()
        kept = {"min.insync.replicas": "3"}
        await set_for_long(broker, kept)

        await broker.topics.change_settings("orders", kept | {"retention.ms": "1"}, [])
        await broker.topics.grow("orders", 3)
        await broker.topics.change_settings("orders", {}, ["min.insync.replicas"])

        assert broker.metadata.topic("orders").settings == {"retention.ms": "1"}

    run(scene())


@pytest.mark.parametrize("is_moved_first", [True, False])
def test_the_first_of_two_changes_decides_that_leave_too_few_replicas_together(
    is_moved_first: bool,
) -> None:
    async def scene() -> None:
        broker = await with_two_replicas()
        move = broker.operations.move(TopicPartition("pair", 0), [1])
        change = broker.topics.change_settings("pair", {"min.insync.replicas": "2"}, [])
        in_order = (move, change) if is_moved_first else (change, move)

        first, second = await asyncio.gather(*in_order, return_exceptions=True)

        assert first is None
        assert isinstance(second, InvalidSetting if is_moved_first else InvalidReplication)
        topic = broker.metadata.topic("pair")
        assert len(topic.replicas[0].nodes) >= int(topic.settings.get("min.insync.replicas", 1))

    run(scene())


def test_replicas_are_not_taken_from_a_topic_that_could_take_no_records_then() -> None:
    async def scene() -> None:
        broker = await with_two_replicas(**{"min.insync.replicas": "2"})
        place = TopicPartition("pair", 0)
        reason = r"'pair' would have 1 replicas, and the topic's min.insync.replicas is 2"

        with pytest.raises(InvalidReplication, match=reason):
            await broker.operations.move(place, [1])
        with pytest.raises(InvalidReplication, match=reason):
            await broker.operations.drain(2, may_shrink=True)
        assert not broker.metadata.draining
        await broker.topics.change_settings("pair", {"min.insync.replicas": "1"}, [])
        await broker.operations.move(place, [1])

        assert broker.metadata.topic("pair").replicas[0].nodes == (1,)

    run(scene())
