"""`format("penstock")` as a sink: what is written is found in the topics."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter

from penstock.record import partition_of_key
from tests.kafka_clients import new_topic, publish, unique
from tests.processes import NodeProcess

Reading = Callable[..., DataFrameReader]
Writing = Callable[..., DataFrameWriter]
MODES = ("exactly_once", "at_least_once")


@pytest.fixture
def writing(node: NodeProcess) -> Writing:
    """Begin a write of a data frame; underscores in option names stand for dots."""

    def write(frame: DataFrame, **options: object) -> DataFrameWriter:
        dotted = {name.replace("_", "."): str(value) for name, value in options.items()}
        given = {"kafka.bootstrap.servers": node.bootstrap, "url": node.http_url, **dotted}
        return frame.write.format("penstock").mode("append").options(**given)

    return write


def message_of(error: PySparkException) -> str:
    """Return what was raised in Python, without the traces around it."""
    lines = [line for line in str(error).splitlines() if "penstock.errors." in line]
    assert lines, str(error)
    return lines[0]


@pytest.mark.parametrize("mode", MODES)
def test_rows_with_all_columns_become_records(
    spark: SparkSession, node: NodeProcess, reading: Reading, writing: Writing, mode: str
) -> None:
    topics = [new_topic(node, partitions=3) for _ in range(2)]
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=dt.UTC)
    frame = spark.createDataFrame(
        [
            (b"k1", b"v1", [("a", b"x"), ("b", None)], topics[0], None, at, 7),
            (None, None, None, topics[1], 2, None, None),
            (b"k1", b"v2", [], topics[0], 1, at, None),
        ],
        "key binary, value binary, headers array<struct<key: string, value: binary>>,"
        " topic string, partition int, timestamp timestamp, priority int",
    )

    writing(frame, mode=mode).save()

    found = reading(subscribe=",".join(topics), includeHeaders=True).load().collect()
    rows = {row.value: row for row in found}
    assert len(found) == 3
    assert rows[b"v1"].partition == partition_of_key(b"k1", 3)
    assert rows[b"v1"].timestamp.timestamp() == at.timestamp()
    assert [tuple(each) for each in rows[b"v1"].headers] == [
        ("a", b"x"),
        ("b", None),
        ("penstock-priority", b"7"),
    ]
    assert (rows[b"v2"].topic, rows[b"v2"].partition, rows[b"v2"].headers) == (topics[0], 1, None)
    assert (rows[None].topic, rows[None].partition, rows[None].key) == (topics[1], 2, None)


@pytest.mark.parametrize("mode", MODES)
def test_many_rows_are_written_once_each_and_in_the_order_of_their_task(
    spark: SparkSession, node: NodeProcess, reading: Reading, writing: Writing, mode: str
) -> None:
    topic = new_topic(node, partitions=4)
    frame = spark.range(0, 50_000, numPartitions=3).selectExpr(
        "string(id % 100) AS key", "string(id) AS value"
    )

    writing(frame, topic=topic, mode=mode, kafka_batch_size=20_000).save()

    rows = reading(subscribe=topic).load().orderBy("partition", "offset").collect()
    assert sorted(int(row.value) for row in rows) == list(range(50_000))
    assert len({row.partition for row in rows}) == 4
    latest: dict[tuple[bytes, int], int] = {}
    for row in rows:
        task = next(t for t in range(3) if int(row.value) < 50_000 * (t + 1) // 3)
        assert latest.get((row.key, task), -1) < int(row.value)
        latest[row.key, task] = int(row.value)
        assert row.partition == partition_of_key(row.key, 4)


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_goes_from_topic_to_topic(
    spark: SparkSession, node: NodeProcess, reading: Reading, tmp_path: Path, mode: str
) -> None:
    source, target = new_topic(node, partitions=2), new_topic(node, partitions=2)
    options = {"kafka.bootstrap.servers": node.bootstrap, "url": node.http_url}
    for start in range(0, 200, 100):
        publish(node, source, [b"%d" % number for number in range(start, start + 100)])
        query = (
            spark.readStream.format("penstock")
            .option("kafka.bootstrap.servers", node.bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .load()
            .select("value")
            .writeStream.format("penstock")
            .options(**options, topic=target, mode=mode)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(400)

    rows = reading(subscribe=target).load().collect()
    assert sorted(int(row.value) for row in rows) == list(range(200))


@pytest.mark.parametrize(
    ("select", "options", "told"),
    [
        ("value", {}, "neither the option topic nor a column topic"),
        ("value, 1 AS x", {"topic": "t"}, "the column x; the sink knows key, value"),
        ("1 AS value", {"topic": "t"}, "column value is int, not binary or string"),
        ("key", {"topic": "t"}, "have no column value"),
        ("value", {"topic": "t", "mode": "twice"}, "mode is 'twice', not exactly_once or"),
        ("value", {"topic": "t", "x": 1}, "unknown option x; the sink knows"),
        (
            "value",
            {"topic": "no-such-topic", "mode": "at_least_once"},
            "there is no topic no-such-topic",
        ),
    ],
)
def test_a_write_that_makes_no_sense_is_refused_before_it_begins(
    spark: SparkSession, writing: Writing, select: str, options: dict[str, object], told: str
) -> None:
    frame = spark.sql(f"SELECT {select} FROM (SELECT binary('k') AS key, binary('v') AS value)")

    with pytest.raises(PySparkException) as refused:
        writing(frame, **options).save()

    assert told in message_of(refused.value)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("CAST(NULL AS string) AS topic", "row 0: column topic is null"),
        ("'{topic}' AS topic, 7 AS partition", "row 0: partition is 7, topic {topic} has 1"),
        ("'{topic}' AS topic, 10 AS priority", "row 0: column priority is 10, not 0 to 9"),
        ("'{topic}' AS topic, repeat('x', 5000) AS key", "larger than max.message.bytes, 4096"),
        ("'gone-{topic}' AS topic", "there is no topic gone-{topic}"),
    ],
)
def test_a_row_that_cannot_be_written_is_named(
    spark: SparkSession, node: NodeProcess, writing: Writing, columns: str, told: str
) -> None:
    topic = new_topic(node, max_message_bytes="4096")
    frame = spark.sql(f"SELECT 'v' AS value, {columns}".replace("{topic}", topic))

    with pytest.raises(PySparkException) as refused:
        writing(frame, mode="at_least_once").save()

    assert told.replace("{topic}", topic) in message_of(refused.value)


def test_a_topic_is_not_overwritten(
    spark: SparkSession, node: NodeProcess, writing: Writing
) -> None:
    frame = spark.createDataFrame([(b"v",)], "value binary")

    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        writing(frame, topic=unique("topic")).mode("overwrite").save()
