"""Streams of `format("penstock")`: restarts, limits, new partitions, and progress."""

import json
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamReader, StreamingQuery

from penstock.client import Admin, Connection, Groups
from penstock.ids import TopicPartition
from penstock.spark import lag_of
from tests.kafka_clients import new_topic, publish, unique
from tests.processes import NodeProcess

Streaming = Callable[..., DataStreamReader]
WAIT_S = 400


def numbers(start: int, end: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(start, end)]


def run_to_end(frame: DataFrame, directory: Path) -> StreamingQuery:
    """Append all that is there to Parquet files, and stop."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "rows"))
    )
    assert query.awaitTermination(WAIT_S)
    return query


def written(spark: SparkSession, directory: Path) -> list[bytes]:
    rows = spark.read.parquet(str(directory / "rows")).orderBy("partition", "offset").collect()
    return [bytes(row.value) for row in rows]


def test_a_restart_neither_loses_nor_repeats_a_record(
    spark: SparkSession, node: NodeProcess, streaming: Streaming, tmp_path: Path
) -> None:
    topic = new_topic(node)
    frame = streaming(subscribe=topic, startingOffsets="earliest").load()

    for start in range(0, 300, 100):
        publish(node, topic, numbers(start, start + 100))
        run_to_end(frame, tmp_path)

    assert written(spark, tmp_path) == numbers(0, 300)


def test_a_limit_of_offsets_makes_several_batches(
    spark: SparkSession, node: NodeProcess, streaming: Streaming, tmp_path: Path
) -> None:
    topic = new_topic(node, partitions=2)
    publish(node, topic, numbers(0, 30), partition=0)
    publish(node, topic, numbers(30, 40), partition=1)
    frame = streaming(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20).load()

    query = run_to_end(frame, tmp_path)

    counts = [progress.numInputRows for progress in query.recentProgress]
    assert [count for count in counts if count] == [20, 20]
    assert written(spark, tmp_path) == numbers(0, 40)


def test_a_limit_of_bytes_makes_several_batches(
    spark: SparkSession, node: NodeProcess, streaming: Streaming, tmp_path: Path
) -> None:
    topic = new_topic(node)
    publish(node, topic, [b"x" * 10_000] * 40)
    frame = streaming(
        subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger=150_000
    ).load()

    query = run_to_end(frame, tmp_path)

    counts = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sum(counts) == 40
    assert 10 <= counts[0] <= 15


def test_partitions_that_are_added_are_read_from_their_start(
    spark: SparkSession, node: NodeProcess, streaming: Streaming, tmp_path: Path
) -> None:
    topic = new_topic(node)
    publish(node, topic, numbers(0, 10))
    frame = streaming(subscribe=topic, startingOffsets="earliest").load()
    run_to_end(frame, tmp_path)

    Admin(Connection(node.bootstrap)).add_partitions(topic, 3)
    publish(node, topic, numbers(10, 20), partition=2)
    run_to_end(frame, tmp_path)

    assert written(spark, tmp_path) == numbers(0, 20)


def test_progress_is_committed_and_lag_is_reported(
    spark: SparkSession, node: NodeProcess, streaming: Streaming, tmp_path: Path
) -> None:
    topic, group = new_topic(node), unique("group")
    publish(node, topic, numbers(0, 40))
    options = {"kafka_group_id": group, "maxOffsetsPerTrigger": 10}
    frame = streaming(subscribe=topic, startingOffsets="earliest", **options).load()

    query = run_to_end(frame, tmp_path)

    committed = Groups(Admin(Connection(node.bootstrap))).committed(group)
    # Spark tells of a batch when the next one begins.
    assert committed == {TopicPartition(topic, 0): 30}
    lags = [lag_of(json.loads(each.json)) for each in query.recentProgress if each.numInputRows]
    assert [lag[TopicPartition(topic, 0)] for lag in lags] == [30, 20, 10, 0]


def test_a_stream_without_a_checkpoint_begins_with_what_comes(
    spark: SparkSession, node: NodeProcess, streaming: Streaming, tmp_path: Path
) -> None:
    topic, name = new_topic(node), unique("rows").replace("-", "_")
    publish(node, topic, numbers(0, 5))
    query = streaming(subscribe=topic).load().writeStream.format("memory").queryName(name).start()
    query.processAllAvailable()

    publish(node, topic, numbers(5, 10))
    query.processAllAvailable()
    query.stop()

    assert [bytes(row.value) for row in spark.table(name).collect()] == numbers(5, 10)
