"""What goes wrong is outlived where it passes, and told once where it does not."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from crc32c import crc32c
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming import DataStreamReader

from penstock.client import Admin, Connection, NewTopic
from penstock.errors import BadChecksum, OffsetOutOfRange, TopicNotFound, Unavailable
from penstock.spark import FetchSettings, read_range
from tests.kafka_clients import DEADLINE_S, new_admin, new_topic, publish, unique
from tests.processes import ClusterProcess, NodeProcess

# One batch to a fetch, so that a range takes many of them.
SMALL = FetchSettings(fetch_bytes=1, patience_ms=60_000)
IMPATIENT = FetchSettings(patience_ms=500)
RECORDS = 200


def publish_batches(node: NodeProcess, topic: str) -> list[bytes]:
    values = [b"%d" % number for number in range(RECORDS)]
    publish(node, topic, list(values), batch_num_messages=10, linger_ms=100)
    return values


def values_of(batches: Iterator[pa.RecordBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch["value"].to_pylist()]


def message_of(error: PySparkException) -> str:
    """Return what was raised in Python, without the traces around it."""
    lines = [line for line in str(error).splitlines() if line.startswith("penstock.errors.")]
    assert len(lines) == 1, str(error)
    return lines[0]


def test_a_node_that_is_killed_and_started_again_is_waited_for(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        topic = new_topic(node)
        values = publish_batches(node, topic)
        batches = read_range(node.bootstrap, topic, 0, 0, RECORDS, settings=SMALL)
        first = next(batches)["value"].to_pylist()

        node.kill()
        starting = threading.Thread(target=node.start)
        starting.start()
        rest = values_of(batches)
        starting.join()

    assert first + rest == values


def test_reading_goes_on_with_the_next_leader(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, 3) as cluster:
        admin = Admin(Connection(cluster.bootstrap))
        topic = unique("topic")
        admin.create_topic(NewTopic(name=topic, partitions=1, replication_factor=3))
        values = publish_batches(cluster[1], topic)
        batches = read_range(cluster.bootstrap, topic, 0, 0, RECORDS, settings=SMALL)
        first = next(batches)["value"].to_pylist()

        leader = admin.topic(topic).partitions[0].leader
        assert leader is not None
        cluster[leader].kill()
        rest = values_of(batches)

    assert first + rest == values


def test_records_that_retention_removed_are_told_or_left_out(
    node: NodeProcess, reading: Callable[..., DataFrameReader]
) -> None:
    topic = new_topic(node)
    publish_batches(node, topic)
    admin = new_admin(node)
    for future in admin.delete_records([KafkaPartition(topic, 0, 50)]).values():
        future.result(DEADLINE_S)

    with pytest.raises(OffsetOutOfRange, match=f"topic {topic} partition 0 offset 20: offsets up"):
        values_of(read_range(node.bootstrap, topic, 0, 20, RECORDS))
    with pytest.raises(PySparkException) as caught:
        reading(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 20}})).load().count()
    left = FetchSettings(fails_on_data_loss=False)

    assert "holds offsets 50 up to 200" in message_of(caught.value)
    rest = values_of(read_range(node.bootstrap, topic, 0, 20, RECORDS, settings=left))
    assert rest == [b"%d" % number for number in range(50, RECORDS)]


def test_a_flipped_byte_on_disk_is_told_with_its_place(
    node: NodeProcess, reading: Callable[..., DataFrameReader]
) -> None:
    topic = new_topic(node)
    publish(node, topic, [b"before"])
    publish(node, topic, [b"precious"])
    for path in node.data_dir.rglob("*.log"):
        data = path.read_bytes()
        if b"precious" in data:
            path.write_bytes(data.replace(b"precious", b"previous"))

    with pytest.raises(BadChecksum, match=f"topic {topic} partition 0 offset 1: a batch carries"):
        values_of(read_range(node.bootstrap, topic, 0, 0, 2))
    with pytest.raises(PySparkException) as caught:
        reading(subscribe=topic).load().collect()

    assert f"topic {topic} partition 0 offset 1: a batch carries" in message_of(caught.value)


def test_a_codec_that_nobody_knows_is_told_with_its_place(
    node: NodeProcess, reading: Callable[..., DataFrameReader]
) -> None:
    topic = new_topic(node)
    publish(node, topic, [b"before"])
    publish(node, topic, [b"peculiar"])
    (path,) = (path for path in node.data_dir.rglob("*.log") if b"peculiar" in path.read_bytes())
    data = bytearray(path.read_bytes())
    # The second batch begins after the first, whose length stands behind its offset.
    start = 12 + int.from_bytes(data[8:12], "big")
    size = 12 + int.from_bytes(data[start + 8 : start + 12], "big")
    data[start + 22] |= 0x06
    checked = bytes(data[start + 21 : start + size])
    data[start + 17 : start + 21] = crc32c(checked).to_bytes(4, "big")
    path.write_bytes(data)

    with pytest.raises(PySparkException) as caught:
        reading(subscribe=topic).load().collect()

    assert f"topic {topic} partition 0 offset 1: compression code 6" in message_of(caught.value)


def test_an_address_where_nobody_listens_is_named(
    spark: SparkSession, reading: Callable[..., DataFrameReader]
) -> None:
    reader = reading(subscribe="orders", kafkaConsumer_pollTimeoutMs=500)

    with pytest.raises(PySparkException) as caught:
        reader.option("kafka.bootstrap.servers", "127.0.0.1:1").load().count()

    told = message_of(caught.value)
    assert re.search("topic orders: broker 127.0.0.1:1 cannot be reached: .*refused", told)


def test_a_stream_whose_brokers_went_away_names_where_it_stands(
    node: NodeProcess, streaming: Callable[..., DataStreamReader], tmp_path: Path
) -> None:
    topic = new_topic(node)
    publish(node, topic, [b"1", b"2"])
    run_to_the_end(streaming, topic, tmp_path)
    nowhere = {"kafka_bootstrap_servers": "127.0.0.1:1", "kafkaConsumer_pollTimeoutMs": 500}

    with pytest.raises(PySparkException) as caught:
        run_to_the_end(partial(streaming, **nowhere), topic, tmp_path)

    place = f"topic {topic} partition 0 offset 2: broker 127.0.0.1:1 cannot be reached"
    assert place in message_of(caught.value)


def test_topics_and_partitions_that_are_not_there_are_named(
    node: NodeProcess, reading: Callable[..., DataFrameReader]
) -> None:
    topic, absent = new_topic(node), unique("absent")

    with pytest.raises(PySparkException) as no_topic:
        reading(subscribe=absent, kafkaConsumer_pollTimeoutMs=500).load().count()
    with pytest.raises(PySparkException) as no_partition:
        reading(assign=json.dumps({topic: [4]})).load().count()
    with pytest.raises(TopicNotFound, match=f"topic {absent} partition 0 offset 7: there is no"):
        values_of(read_range(node.bootstrap, absent, 0, 7, 9, settings=IMPATIENT))

    assert f"there is no topic {absent}" in message_of(no_topic.value)
    assert f"topic {topic} has no partition 4; it has 1 partitions" in message_of(
        no_partition.value
    )


def test_records_that_never_come_are_waited_for_a_limited_time(node: NodeProcess) -> None:
    topic = new_topic(node)

    with pytest.raises(Unavailable, match=f"topic {topic} partition 0 offset 0: no records came"):
        values_of(read_range(node.bootstrap, topic, 0, 0, 5, settings=IMPATIENT))


def test_options_are_refused_before_anything_is_read(
    reading: Callable[..., DataFrameReader], streaming: Callable[..., DataStreamReader]
) -> None:
    with pytest.raises(PySparkException, match="unknown option speed; the source knows kafka"):
        reading(subscribe="a", speed=11).load()
    with pytest.raises(PySparkException, match="a batch would hold nothing"):
        reading(subscribe="a", startingOffsets="latest").load().count()


def run_to_the_end(
    streaming: Callable[..., DataStreamReader], topic: str, checkpoint: Path
) -> None:
    """Read all that a topic holds beyond a checkpoint."""
    frame = streaming(subscribe=topic, startingOffsets="earliest").load()
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination(DEADLINE_S * 4)


def test_a_checkpoint_of_another_topic_ends_the_query_with_one_error(
    node: NodeProcess, streaming: Callable[..., DataStreamReader], tmp_path: Path
) -> None:
    first, second = new_topic(node), new_topic(node)
    publish(node, first, [b"1", b"2"])
    run_to_the_end(streaming, first, tmp_path)

    with pytest.raises(PySparkException) as caught:
        run_to_the_end(streaming, second, tmp_path)

    assert f"topic {first} partition 0 offset 2: the partition is gone" in message_of(caught.value)


def test_a_checkpoint_that_is_further_than_its_topic_is_told_with_its_place(
    node: NodeProcess, streaming: Callable[..., DataStreamReader], tmp_path: Path
) -> None:
    topic = read_and_created_anew(node, streaming, tmp_path)
    forget_ids(tmp_path)

    with pytest.raises(PySparkException) as caught:
        run_to_the_end(streaming, topic, tmp_path)

    told = message_of(caught.value)
    assert f"topic {topic} partition 0 offset 2: the partition ends at 0; was the topic" in told


def read_and_created_anew(
    node: NodeProcess, streaming: Callable[..., DataStreamReader], checkpoint: Path
) -> str:
    """Return a topic that has taken the place of one of which a stream has read two records."""
    topic = new_topic(node)
    publish(node, topic, [b"1", b"2"])
    run_to_the_end(streaming, topic, checkpoint)
    create_anew(node, topic)
    return topic


def create_anew(node: NodeProcess, topic: str) -> None:
    admin = Admin(Connection(node.bootstrap))
    admin.delete_topic(topic)
    admin.create_topic(NewTopic(name=topic, partitions=1))


def forget_ids(checkpoint: Path) -> None:
    """Make a checkpoint one that an earlier version wrote."""
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        *first, offsets = path.read_text().splitlines()
        tree = json.loads(offsets)
        del tree["#ids"]
        path.write_text("\n".join([*first, json.dumps(tree)]))


def test_a_topic_that_was_created_anew_is_told_although_it_has_more_records_than_before(
    node: NodeProcess, streaming: Callable[..., DataStreamReader], tmp_path: Path
) -> None:
    topic = read_and_created_anew(node, streaming, tmp_path)
    publish(node, topic, [b"3", b"4", b"5"])

    with pytest.raises(PySparkException) as caught:
        run_to_the_end(streaming, topic, tmp_path)

    told = message_of(caught.value)
    assert f"topic {topic} partition 0 offset 2: the topic is another one by now" in told


def test_a_topic_that_was_created_anew_is_read_from_its_start_where_losses_are_no_failure(
    spark: SparkSession,
    node: NodeProcess,
    streaming: Callable[..., DataStreamReader],
    tmp_path: Path,
) -> None:
    topic = new_topic(node, partitions=2)
    publish(node, topic, [b"1", b"2"], partition=0)
    publish(node, topic, [b"3"], partition=1)
    name = unique("rows").replace("-", "_")
    frame = streaming(
        subscribe=topic, startingOffsets="earliest", failOnDataLoss="false", maxOffsetsPerTrigger=2
    ).load()
    query = frame.writeStream.format("memory").queryName(name).start()
    query.processAllAvailable()

    create_anew(node, topic)
    publish(node, topic, [b"4", b"5", b"6"])
    query.processAllAvailable()
    query.stop()

    values = sorted(bytes(row.value) for row in spark.table(name).collect())
    assert values == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_a_checkpoint_of_another_source_is_told_as_such(
    spark: SparkSession,
    node: NodeProcess,
    streaming: Callable[..., DataStreamReader],
    tmp_path: Path,
) -> None:
    other = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = other.writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(DEADLINE_S * 4)

    with pytest.raises(PySparkException) as caught:
        run_to_the_end(streaming, new_topic(node), tmp_path)

    assert "which are not offsets of this source such as" in message_of(caught.value)


def test_a_topic_that_vanished_is_told_with_the_place_that_was_to_be_read(
    node: NodeProcess, streaming: Callable[..., DataStreamReader], tmp_path: Path
) -> None:
    topic = new_topic(node)
    publish(node, topic, [b"1", b"2"])
    run_to_the_end(streaming, topic, tmp_path)
    Admin(Connection(node.bootstrap)).delete_topic(topic)

    with pytest.raises(PySparkException) as caught:
        run_to_the_end(streaming, topic, tmp_path)

    assert f"topic {topic} partition 0 offset 2: the partition is gone" in message_of(caught.value)


def test_a_sink_that_reaches_nobody_names_the_address(spark: SparkSession) -> None:
    frame = spark.sql("SELECT binary('v') AS value")
    writer = frame.write.format("penstock").mode("append").option("topic", "any")

    with pytest.raises(PySparkException, match=r"broker 127\.0\.0\.1:1 cannot be reached"):
        writer.option("kafka.bootstrap.servers", "127.0.0.1:1").save()
