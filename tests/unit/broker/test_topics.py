"""Creating, changing and deleting topics through the broker."""

import pytest

from penstock.broker import NewTopic
from penstock.errors import (
    InvalidPartitionCount,
    InvalidReplication,
    InvalidSetting,
    InvalidTopicName,
    PenstockError,
    TopicExists,
    TopicNotFound,
)
from tests.unit.broker.brokers import started
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

        assert await broker.topics.create(NewTopic("new"), dry_run=True) is None
        await broker.topics.grow("orders", 5, dry_run=True)
        await broker.topics.change_settings("orders", {"retention.ms": "1"}, [], dry_run=True)

        topic = broker.metadata.topic("orders")
        assert list(broker.metadata.topics) == ["orders"]
        assert topic.partitions == 2
        assert topic.settings == {}

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
