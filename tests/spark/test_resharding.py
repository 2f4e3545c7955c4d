"""A topic is copied into another number of partitions."""

import json
import shlex
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.client import Admin, Client, Connection, NewTopic
from penstock.errors import Conflict, InvalidRequest
from penstock.spark import Reshard, ReshardSettings, ReshardVerdict
from tests.docs.blocks import ROOT, blocks_of
from tests.kafka_clients import new_topic, open_consumer, publish, unique
from tests.processes import NodeProcess
from tests.spark.keyed_numbers import check_each_once, held, publish_numbers


@pytest.fixture
def settings(node: NodeProcess, tmp_path: Path) -> ReshardSettings:
    """A topic of two partitions that is to have three."""
    source = new_topic(node, partitions=2, **{"max.message.bytes": "500000"})
    return ReshardSettings(
        bootstrap=node.bootstrap,
        url=node.http_url,
        source=source,
        target=f"{source}-3",
        partitions=3,
        directory=tmp_path / "reshard",
    )


def test_rounds_copy_every_record_once_and_keep_the_order_of_each_key(
    spark: SparkSession, node: NodeProcess, settings: ReshardSettings
) -> None:
    publish_numbers(node, settings.source, range(300))
    assert Reshard(spark, settings).copy() == 300
    publish_numbers(node, settings.source, range(300, 400))

    again = Reshard(spark, settings)
    assert again.copy() == 100
    assert again.copy() == 0

    assert again.verify() == ReshardVerdict(400, 0, 0, 0)
    check_each_once(held(node, settings.target, 3), range(400))

    publish(node, settings.target, [b"of nobody"])
    assert Reshard(spark, settings).verify() == ReshardVerdict(400, 0, 1, 0)


def test_a_group_goes_on_in_the_copy_without_missing_a_record(
    spark: SparkSession, node: NodeProcess, settings: ReshardSettings
) -> None:
    publish_numbers(node, settings.source, range(200))
    group = unique("group")
    read = {0: 20, 1: 35}
    with open_consumer(node, group) as consumer:
        consumer.commit(
            offsets=[KafkaPartition(settings.source, *each) for each in read.items()],
            asynchronous=False,
        )
    reshard = Reshard(spark, settings)
    reshard.copy()

    positions = reshard.move_group(group)

    source, target = held(node, settings.source, 2), held(node, settings.target, 3)
    unread = {number for each, records in source.items() for _, number in records[read[each] :]}
    ahead = {
        number
        for place, offset in positions.items()
        for _, number in target[place.partition][offset:]
    }
    assert unread <= ahead
    assert len(ahead) < 200
    for place, offset in positions.items():
        first = target[place.partition][offset:][:1]
        assert not first or first[0][1] in unread


class Lent:
    """The session that tests share, for a command that would stop it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """Leave it running."""


def test_the_page_about_resharding_can_be_followed(
    spark: SparkSession, node: NodeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "how-to" / "reshard.md"
    blocks = [block.text for block in blocks_of(page) if block.language == "sh"]
    switch, undo, *copies = [text.splitlines() for text in blocks]
    admin = Admin(Connection(node.bootstrap))
    admin.create_topic(NewTopic(name="shop-orders", partitions=2))
    publish_numbers(node, "shop-orders", range(100))
    with open_consumer(node, "billing") as consumer:
        consumer.commit(offsets=[KafkaPartition("shop-orders", 0, 5)], asynchronous=False)
    monkeypatch.setattr("penstock.spark.open_session", lambda *_, **__: Lent(spark), raising=False)
    monkeypatch.chdir(tmp_path)

    def follow(command: str) -> Any:
        given = [*shlex.split(command)[1:], "--url", node.http_url, "--json"]
        if command in (*switch, *(each for block in copies for each in block)):
            given += ["-b", node.bootstrap]
        outcome = CliRunner().invoke(app, given)
        assert outcome.exit_code == 0, outcome.output
        return json.loads(outcome.stdout)

    admin.create_topic(NewTopic(name="copy", partitions=6))
    with Client(node.http_url) as client:
        client.reshards.begin("shop-orders", str(uuid4()), target="copy")
    shown, cancelled = map(follow, undo)
    assert (shown["phase"], shown["records"], cancelled["cancelled"]) == ("copying", 100, True)
    (switched,) = map(follow, switch)
    assert (switched["is_switched"], switched["verdict"]["records"]) == (True, 100)
    first, second = (follow(command) for (command,) in copies)
    assert (first["copied"], first["records"], first["missing"]) == (100, 100, 0)
    assert (second["copied"], second["records"]) == (0, 100)
    assert len(second["groups"]["billing"]) == 6


def test_a_directory_or_a_topic_of_another_copy_is_refused(
    spark: SparkSession, node: NodeProcess, settings: ReshardSettings, tmp_path: Path
) -> None:
    Reshard(spark, settings)
    taken = new_topic(node, partitions=3)
    publish(node, taken, [b"something"])

    def changed(**changes: object) -> ReshardSettings:
        names = ("bootstrap", "url", "source", "target", "partitions", "directory")
        return ReshardSettings(**({name: getattr(settings, name) for name in names} | changes))

    with pytest.raises(InvalidRequest, match="with 3 partitions, not of"):
        Reshard(spark, changed(partitions=4))
    with pytest.raises(Conflict, match=f"topic {taken} exists with 3 partitions and 1 records"):
        Reshard(spark, changed(target=taken, directory=tmp_path / "other"))
