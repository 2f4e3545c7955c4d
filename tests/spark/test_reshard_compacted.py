"""A compacted topic gets another number of partitions, and is compacted before and after."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.client import Admin, Connection
from penstock.errors import InvalidRequest
from penstock.spark import Reshard, ReshardSettings, Switch, SwitchSettings, read_range
from tests.kafka_clients import new_producer, new_topic, wait_until
from tests.processes import NodeProcess

KEYS, ROUNDS = 10, 40
GONE = b"key-0"
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "2048",
    "min_cleanable_dirty_ratio": "0.01",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that compacts all the time."""
    directory = tmp_path_factory.mktemp("node")
    with NodeProcess(directory, "--housekeeping-interval-ms", "100") as running:
        yield running


def write(node: NodeProcess, topics: list[str], rounds: range) -> None:
    """Give every key a value in each round but for one, which is deleted each time."""
    producer = new_producer(node, batch_num_messages=10)
    for topic in topics:
        for number in rounds:
            for key in range(KEYS):
                value = b"%d" % number if key else None
                producer.produce(topic, value, b"key-%d" % key)
            assert producer.flush(60) == 0


def records_of(node: NodeProcess, topic: str) -> list[tuple[bytes, bytes | None]]:
    found = []
    for each in Admin(Connection(node.bootstrap)).topic(topic).partitions:
        assert each.offsets is not None
        bounds = (each.offsets.start, each.offsets.end)
        for batch in read_range(node.bootstrap, topic, each.partition, *bounds):
            found += zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    return found


def test_records_that_are_outdated_meanwhile_stay_until_the_switch(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    topic, witness = (new_topic(node, partitions=2, **COMPACTED) for _ in range(2))
    write(node, [topic], range(ROUNDS))
    wait_until(lambda: len(records_of(node, topic)) < KEYS * ROUNDS, "compaction")

    def outdate(shown: str) -> None:
        if shown == "comparing":
            # When the witness is compacted, the topic and its copy have had their turn as well.
            write(node, [topic, witness], range(ROUNDS, 2 * ROUNDS))
            wait_until(lambda: len(records_of(node, witness)) < KEYS * ROUNDS, "compaction")

    settings = SwitchSettings(
        bootstrap=node.bootstrap,
        url=node.http_url,
        topic=topic,
        partitions=3,
        directory=tmp_path / "reshard",
    )
    switch = Switch(spark, settings, outdate)
    outcome = switch.run()
    switch.close()

    assert (outcome.is_switched, outcome.verdict.is_sound) == (True, True)
    assert outcome.verdict.records > KEYS * ROUNDS
    wait_until(lambda: len(records_of(node, topic)) < outcome.verdict.records, "compaction again")
    newest = dict(records_of(node, topic))
    assert newest.pop(GONE, None) is None
    assert newest == {b"key-%d" % key: b"%d" % (2 * ROUNDS - 1) for key in range(1, KEYS)}


def test_a_copy_that_nothing_keeps_whole_is_refused(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    topic = new_topic(node, **COMPACTED)
    settings = ReshardSettings(
        bootstrap=node.bootstrap,
        url=node.http_url,
        source=topic,
        target=f"{topic}-2",
        partitions=2,
        directory=tmp_path,
    )

    with pytest.raises(InvalidRequest, match=f"topic {topic} has cleanup.policy=compact"):
        Reshard(spark, settings)
