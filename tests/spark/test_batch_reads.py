"""Batches of `format("penstock")`: what is read, and which options decide it."""

import datetime as dt
import json
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.readwriter import DataFrameReader

from penstock.client import Admin, Connection
from penstock.spark import read_range
from tests.kafka_clients import DEADLINE_S, new_producer, new_topic, publish, unique
from tests.processes import NodeProcess

Reading = Callable[..., DataFrameReader]


def values(frame: DataFrame) -> list[bytes]:
    """Return the values in the order of partitions and offsets."""
    rows = frame.orderBy("topic", "partition", "offset").select("value").collect()
    return [bytes(row.value) for row in rows]


def numbers(start: int, end: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(start, end)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_back_byte_for_byte(
    node: NodeProcess, reading: Reading, codec: str
) -> None:
    topic = new_topic(node)
    publish(node, topic, numbers(0, 500), compression_type=codec, linger_ms=50)

    assert values(reading(subscribe=topic).load()) == numbers(0, 500)


def test_all_columns_hold_what_was_published(node: NodeProcess, reading: Reading) -> None:
    topic = new_topic(node, partitions=2)
    producer = new_producer(node)
    producer.produce(topic, b"\x00\xff", b"key", 1, timestamp=1_700_000_000_123)
    producer.produce(topic, None, None, 1, timestamp=0, headers=[("a", b"1"), ("b", None)])
    assert producer.flush(DEADLINE_S) == 0

    full, empty = reading(subscribe=topic, includeHeaders=True).load().orderBy("offset").collect()

    assert (full.key, full.value, full.headers) == (b"key", b"\x00\xff", None)
    assert (full.topic, full.partition, full.offset, full.timestampType) == (topic, 1, 0, 0)
    assert full.timestamp.timestamp() == 1_700_000_000.123
    assert (empty.key, empty.value, empty.offset) == (None, None, 1)
    assert [tuple(header) for header in empty.headers] == [("a", b"1"), ("b", None)]


def test_a_topic_that_keeps_append_time_shows_it(node: NodeProcess, reading: Reading) -> None:
    topic = new_topic(node, message_timestamp_type="LogAppendTime")
    (message,) = publish(node, topic, [b"stamped"])

    (row,) = reading(subscribe=topic).load().collect()

    assert row.timestampType == 1
    assert int(row.timestamp.timestamp() * 1000) == message.timestamp()[1]


def test_offsets_bound_what_is_read(node: NodeProcess, reading: Reading) -> None:
    topic = new_topic(node, partitions=2)
    for partition in (0, 1):
        publish(node, topic, numbers(0, 10), partition=partition)

    frame = reading(
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 3, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 5, "1": 2}}),
    ).load()

    assert values(frame) == [b"3", b"4", b"0", b"1"]


def test_times_bound_what_is_read(node: NodeProcess, reading: Reading) -> None:
    topic = new_topic(node)
    producer = new_producer(node)
    for number in range(10):
        producer.produce(topic, b"%d" % number, timestamp=1_700_000_000_000 + 1000 * number)
    assert producer.flush(DEADLINE_S) == 0
    start = dt.datetime.fromtimestamp(1_700_000_003, dt.UTC).isoformat()

    by_time = reading(subscribe=topic, startingTimestamp=start, endingTimestamp=1_700_000_006_000)
    by_partition = reading(
        subscribe=topic,
        startingOffsetsByTimestamp=json.dumps({topic: {"0": 1_700_000_008_000}}),
        endingOffsetsByTimestamp=json.dumps({topic: {"0": 1_900_000_000_000}}),
    )

    assert values(by_time.load()) == [b"3", b"4", b"5"]
    assert values(by_partition.load()) == [b"8", b"9"]


def test_topics_are_chosen_by_list_pattern_and_assignment(
    node: NodeProcess, reading: Reading
) -> None:
    first, second = sorted((new_topic(node, partitions=2), new_topic(node)))
    partitions = {
        name: len(Admin(Connection(node.bootstrap)).partitions(name)) for name in (first,)
    }
    for topic in (first, second):
        publish(node, topic, [topic.encode()])

    assert values(reading(subscribe=f"{first},{second}").load()) == [
        first.encode(),
        second.encode(),
    ]
    assert values(reading(subscribePattern=f"{first[:-1]}.").load()) == [first.encode()]
    last = partitions[first] - 1
    assigned = reading(assign=json.dumps({first: [0], second: [0]})).load()
    assert assigned.count() == 2
    assert reading(assign=json.dumps({first: [last]})).load().count() == (last == 0)


def test_a_partition_is_split_without_gap_or_overlap(node: NodeProcess, reading: Reading) -> None:
    topic = new_topic(node)
    publish(node, topic, numbers(0, 1000), linger_ms=50)

    frame = reading(subscribe=topic, minPartitions=5).load()
    small = reading(subscribe=topic, maxRecordsPerPartition=400).load()

    assert (frame.rdd.getNumPartitions(), small.rdd.getNumPartitions()) == (5, 3)
    assert values(frame) == values(small) == numbers(0, 1000)


def test_only_the_columns_that_were_named_are_moved(node: NodeProcess, reading: Reading) -> None:
    topic = new_topic(node)
    publish(node, topic, [b"value"])

    frame = reading(subscribe=topic, columns="offset, value").load()

    assert frame.columns == ["offset", "value"]
    assert frame.collect() == [(0, b"value")]


def test_an_empty_topic_gives_no_rows(node: NodeProcess, reading: Reading) -> None:
    topic = new_topic(node)

    assert reading(subscribe=topic).load().count() == 0


def test_a_view_in_sql_reads_a_topic(node: NodeProcess, reading: Reading) -> None:
    topic = new_topic(node)
    publish(node, topic, numbers(0, 3))
    view = unique("view").replace("-", "_")
    spark = reading()._spark

    spark.sql(
        f"CREATE TEMPORARY VIEW {view} USING penstock OPTIONS ("
        f"'kafka.bootstrap.servers' '{node.bootstrap}', subscribe '{topic}')"
    )

    assert spark.sql(f"SELECT sum(int(string(value))) FROM {view}").collect() == [(3,)]


def test_a_range_is_read_without_spark(node: NodeProcess) -> None:
    topic = new_topic(node)
    publish(node, topic, numbers(0, 100))

    batches = list(read_range(node.bootstrap, topic, 0, 10, 20, columns=["offset", "value"]))

    assert [value for batch in batches for value in batch["value"].to_pylist()] == numbers(10, 20)
