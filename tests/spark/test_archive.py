"""Topics are archived once each record, whoever is killed, and read back together with the log."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming import DataStreamReader

from penstock.client import Client
from penstock.errors import InvalidRequest, TopicNotFound
from penstock.spark import (
    ArchivedTopicId,
    ArchiveLocation,
    ArchiveService,
    ArchiveServiceSettings,
    ArchiveTable,
    FetchSettings,
    RecordRange,
    Replay,
    archive_statuses,
    compact_archive,
    run_replay,
    verify_archive,
)
from penstock.spark.archiving import ArchiveJob
from penstock.spark.history import ArchivePlace, read_history
from tests.kafka_clients import DEADLINE_S, new_admin, new_producer, unique, wait_until
from tests.processes import NodeProcess
from tests.spark.commands import consumed
from tests.spark.spark_daemons import ENVIRON

SEGMENT_BYTES = "2048"
FIRST_MS, STEP_MS = 1_763_294_400_000, 40_000
COLUMNS = ("key", "value", "partition", "offset", "timestamp", "headers")
# Runs the command with a driver that is killed where the argument says.
KILLED = """
import os, signal, sys
from penstock.cli import main
from penstock.client import Archives
from penstock.spark import ArchiveTable

def die(*_arguments, **_named):
    os.kill(os.getpid(), signal.SIGKILL)

where = sys.argv.pop(1)
if where == "before commit":
    ArchiveTable.add = die
if where == "after commit":
    add = ArchiveTable.add
    def add_and_die(*arguments, **named):
        add(*arguments, **named)
        die()
    ArchiveTable.add = add_and_die
main()
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that looks for old segments all the time."""
    directory = tmp_path_factory.mktemp("node")
    with NodeProcess(directory, "--housekeeping-interval-ms", "200") as running:
        yield running


@pytest.fixture
def client(node: NodeProcess) -> Iterator[Client]:
    """A client of the node."""
    with Client(node.http_url) as client:
        yield client


def archived_topic(client: Client, directory: Path, *, partitions: int = 2, **given: str) -> str:
    """Create a topic that keeps one segment, once its archive has the others."""
    name = unique("topic")
    settings = {
        "segment.bytes": SEGMENT_BYTES,
        "retention.bytes": SEGMENT_BYTES,
        "archive.path": str(directory / "archive"),
        **{key.replace("_", "."): value for key, value in given.items()},
    }
    client.create_topic(name, partitions=partitions, replication_factor=1, settings=settings)
    return name


def publish_numbers(node: NodeProcess, topic: str, numbers: range) -> None:
    """Publish records of which each says its number, in small batches."""
    producer = new_producer(node, batch_num_messages=10, linger_ms=20)
    for number in numbers:
        producer.produce(
            topic,
            b"%d" % number + b"." * 100,
            key=b"key %d" % number,
            partition=number % 2,
            headers=[("number", b"%d" % number)] if number % 3 == 0 else None,
            timestamp=FIRST_MS + STEP_MS * number,
        )
    assert producer.flush(120) == 0


def archive(spark: SparkSession, node: NodeProcess, *topics: str, **given: Any) -> Any:
    settings = ArchiveServiceSettings(
        bootstrap=node.bootstrap, url=node.http_url, topics=topics, **given
    )
    return ArchiveService(spark, settings).run_once()


def rows_of(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def numbers_of(rows: Any) -> list[int]:
    return sorted(int(bytes(row["value"]).split(b".")[0]) for row in rows)


def test_retention_takes_what_is_archived_and_a_read_has_it_all(
    spark: SparkSession,
    node: NodeProcess,
    client: Client,
    reading: Callable[..., DataFrameReader],
    streaming: Callable[..., DataStreamReader],
    tmp_path: Path,
) -> None:
    topic = archived_topic(client, tmp_path)
    publish_numbers(node, topic, range(200))
    before = reading(subscribe=topic, includeHeaders=True).load().select(*COLUMNS).collect()
    archive(spark, node, topic)
    publish_numbers(node, topic, range(200, 260))
    wait_until(lambda: client.topic(topic).partitions[0].start > 0, "archived segments go")
    wait_until(lambda: client.topic(topic).partitions[1].start > 0, "archived segments go")

    whole = reading(subscribe=topic, includeHeaders=True, includeDeleted=True, minPartitions=5)
    rows = whole.load().select(*COLUMNS).collect()
    later = reading(subscribe=topic, includeDeleted=True, startingTimestamp=FIRST_MS + 1)
    stream = streaming(
        subscribe=topic, includeDeleted=True, startingOffsets="earliest", maxBytesPerTrigger=15000
    ).load()
    query = stream.writeStream.format("memory").queryName("whole").trigger(availableNow=True)
    query.start().awaitTermination(400)

    assert numbers_of(rows) == list(range(260))
    assert {(row["partition"], row["offset"]): row for row in before}.items() <= {
        (row["partition"], row["offset"]): row for row in rows
    }.items()
    assert numbers_of(later.load().collect()) == list(range(1, 260))
    assert numbers_of(spark.sql("select value from whole").collect()) == list(range(260))
    (status,) = archive_statuses(node.http_url, [topic])
    assert (status.records, status.lag) == (200, 60)
    assert all(each.reported == each.archived == 100 for each in status.partitions)
    verdicts = verify_archive(node.bootstrap, client.archives.get(topic), {})
    assert all(each.is_sound(compacts=False) and each.records == 100 for each in verdicts)


def test_retention_may_take_what_is_being_verified(
    spark: SparkSession, node: NodeProcess, client: Client, tmp_path: Path
) -> None:
    topic = archived_topic(client, tmp_path, retention_bytes="6000", retention_ms="-1")
    publish_numbers(node, topic, range(200))
    archive(spark, node, topic)
    for number in (0, 1):
        wait_until(lambda at=number: client.topic(topic).partitions[at].start > 0, "segments go")
    state = client.archives.get(topic)
    as_it_was = replace(
        state, partitions=tuple(replace(each, start=0) for each in state.partitions)
    )

    verdicts = verify_archive(node.bootstrap, as_it_was, {})

    assert all(each.is_sound(compacts=False) and each.records == 100 for each in verdicts)
    assert all(0 < each.compared < 100 for each in verdicts)


@pytest.mark.crash
def test_each_record_is_archived_once_although_the_driver_is_killed(
    spark: SparkSession, node: NodeProcess, client: Client, tmp_path: Path
) -> None:
    topic = archived_topic(client, tmp_path)
    location = ArchiveLocation(str(tmp_path / "archive"))
    publish_numbers(node, topic, range(100))

    run_and_be_killed(node, topic, "before commit")

    assert list((tmp_path / "archive").rglob("*.parquet")), "files were written"
    assert [each.archived for each in client.archives.get(topic).partitions] == [0, 0]
    assert client.topic(topic).partitions[0].start == 0

    run_and_be_killed(node, topic, "after commit")

    topic_id = ArchivedTopicId(topic, client.topic(topic).id)
    assert ArchiveTable.open(location).position(topic_id, 0) == 50
    assert [each.archived for each in client.archives.get(topic).partitions] == [0, 0]
    assert client.topic(topic).partitions[0].start == 0
    publish_numbers(node, topic, range(100, 120))
    (status,) = archive(spark, node, topic)

    assert (status.records, status.lag) == (120, 0)
    assert [each.archived for each in client.archives.get(topic).partitions] == [60, 60]
    verdicts = verify_archive(node.bootstrap, client.archives.get(topic), {})
    assert [(each.records, each.repeated, each.missing_offsets) for each in verdicts] == [
        (60, 0, 0)
    ] * 2


def run_and_be_killed(node: NodeProcess, topic: str, where: str) -> None:
    command = [sys.executable, "-c", KILLED, where, "--bootstrap", node.bootstrap]
    command += ["archive", "run", topic, "--once", "--url", node.http_url, "--master", "local[2]"]
    ended = subprocess.run(command, capture_output=True, timeout=800, env=ENVIRON)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()[-2000:]


def test_a_repeated_micro_batch_adds_nothing(
    spark: SparkSession, node: NodeProcess, client: Client, tmp_path: Path
) -> None:
    topic = archived_topic(client, tmp_path)
    publish_numbers(node, topic, range(20))
    (state,) = [each for each in client.archives.list() if each.topic == topic]
    job = ArchiveJob(bootstrap=node.bootstrap, url=node.http_url, archive=state)
    kept: list[Any] = []

    class Recorder(ArchiveJob):
        def commit(self, manifests: Any, epoch: int) -> None:
            rows = manifests.collect()
            frame = manifests.sparkSession.createDataFrame(rows, manifests.schema)
            kept.append(len(rows))
            for _ in range(2):
                super().commit(frame, epoch)

    repeated = Recorder(bootstrap=job.bootstrap, url=job.url, archive=job.archive)
    query = repeated.start(spark, every_s=None)
    query.awaitTermination(400)

    assert kept
    assert query.exception() is None
    (status,) = archive_statuses(node.http_url, [topic])
    assert status.records == 20


def test_a_reader_that_retention_overtakes_goes_on_in_the_archive(
    spark: SparkSession, node: NodeProcess, client: Client, tmp_path: Path
) -> None:
    topic = archived_topic(client, tmp_path)
    ArchiveTable.create(ArchiveLocation(str(tmp_path / "archive")))
    publish_numbers(node, topic, range(200))
    place = ArchivePlace(
        ArchiveLocation(str(tmp_path / "archive")), ArchivedTopicId(topic, client.topic(topic).id)
    )
    batches = read_history(
        node.bootstrap,
        RecordRange(topic, 0, 0, 100),
        place,
        columns=("offset", "value"),
        settings=FetchSettings(fetch_bytes=1),
    )
    first = next(batches)

    archive(spark, node, topic)
    wait_until(lambda: client.topic(topic).partitions[0].start > 80, "segments go")
    rest = rows_of(batches)

    found = [*first["offset"].to_pylist(), *(row["offset"] for row in rest)]
    assert 0 < len(first) < 100
    assert found == list(range(100))


def test_a_topic_that_was_deleted_is_read_from_its_archive(
    spark: SparkSession,
    node: NodeProcess,
    client: Client,
    reading: Callable[..., DataFrameReader],
    tmp_path: Path,
) -> None:
    topic = archived_topic(client, tmp_path)
    publish_numbers(node, topic, range(30))
    archive(spark, node, topic)
    client.delete_topic(topic)

    path = str(tmp_path / "archive")
    gone = reading(subscribe=topic, includeDeleted=True, archivePath=path).load().collect()
    told = consumed(node, topic, "--archive", path, "--partition", "0", "--offset", "3")
    places = json.dumps({topic: [7]})
    with pytest.raises(PySparkException, match=f"topic {topic} has no partition 7"):
        reading(assign=places, includeDeleted=True, archivePath=path).load().count()
    client.create_topic(topic, partitions=2, replication_factor=1, settings={"archive.path": path})
    publish_numbers(node, topic, range(500, 510))
    archive(spark, node, topic)
    again = reading(subscribe=topic, includeDeleted=True).load().collect()

    assert numbers_of(gone) == list(range(30))
    assert [each["offset"] for each in told] == list(range(3, 15))
    assert numbers_of(again) == list(range(500, 510))


def test_a_window_is_exact_when_times_are_out_of_order(
    spark: SparkSession, node: NodeProcess, client: Client, tmp_path: Path
) -> None:
    topic, into = archived_topic(client, tmp_path), unique("replayed")
    client.create_topic(into, partitions=2, replication_factor=1, settings={"retention.ms": "-1"})
    publish_numbers(node, topic, range(99, -1, -1))
    archive(spark, node, topic)
    publish_numbers(node, topic, range(119, 99, -1))
    begin_ms, end_ms = FIRST_MS + 10 * STEP_MS, FIRST_MS + 110 * STEP_MS

    window = consumed(
        node, topic, "--include-deleted", "--from-time", str(begin_ms), "--to-time", str(end_ms)
    )
    replay = Replay(
        bootstrap=node.bootstrap,
        url=node.http_url,
        topic=topic,
        into=into,
        from_ms=begin_ms,
        to_ms=end_ms,
    )

    numbers = [int(each["value"].split(".")[0]) for each in window]
    assert sorted(numbers) == list(range(10, 110))
    assert run_replay(spark, replay) == 100


def test_a_window_is_read_and_replayed_with_what_retention_removed(
    spark: SparkSession, node: NodeProcess, client: Client, tmp_path: Path
) -> None:
    topic, into = archived_topic(client, tmp_path), unique("replayed")
    client.create_topic(into, partitions=3, replication_factor=1, settings={"retention.ms": "-1"})
    publish_numbers(node, topic, range(100))
    archive(spark, node, topic)
    publish_numbers(node, topic, range(100, 120))
    begin_ms, end_ms = FIRST_MS + 10 * STEP_MS, FIRST_MS + 110 * STEP_MS

    window = consumed(
        node, topic, "--include-deleted", "--from-time", str(begin_ms), "--to-time", str(end_ms)
    )
    replay = Replay(
        bootstrap=node.bootstrap,
        url=node.http_url,
        topic=topic,
        into=into,
        from_ms=begin_ms,
        to_ms=end_ms,
    )
    assert run_replay(spark, replay) == 100
    again = consumed(node, into, "--from-beginning", "--exit-at-end")

    assert [int(each["value"].split(".")[0]) for each in window] == [
        *range(10, 110, 2),
        *range(11, 110, 2),
    ]
    assert [each["offset"] for each in window] == [*range(5, 55), *range(5, 55)]
    contents = ("key", "value", "headers", "timestamp_ms")
    assert sorted(str([each[name] for name in contents]) for each in again) == sorted(
        str([each[name] for name in contents]) for each in window
    )


def test_what_was_deleted_while_nobody_archived_is_no_gap_that_ends_a_read(
    spark: SparkSession,
    node: NodeProcess,
    client: Client,
    reading: Callable[..., DataFrameReader],
    tmp_path: Path,
) -> None:
    topic = archived_topic(client, tmp_path, retention_bytes="-1")
    publish_numbers(node, topic, range(10))
    archive(spark, node, topic)
    client.alter_topic(topic, settings={"archive.path": None})
    publish_numbers(node, topic, range(10, 30))
    ends = [KafkaPartition(topic, partition, 15) for partition in range(2)]
    admin = new_admin(node)
    for future in admin.delete_records(ends).values():
        future.result(DEADLINE_S)

    client.alter_topic(topic, settings={"archive.path": str(tmp_path / "archive")})
    (status,) = archive(spark, node, topic)

    assert [each.archived for each in status.partitions] == [15, 15]
    records = reading(subscribe=topic, includeDeleted=True).load().collect()
    assert numbers_of(records) == list(range(10))


def test_a_snapshot_of_a_compacted_topic_has_the_values_of_its_time(
    spark: SparkSession, node: NodeProcess, client: Client, tmp_path: Path
) -> None:
    topic = archived_topic(
        client, tmp_path, partitions=1, cleanup_policy="compact", retention_ms="-1",
        min_cleanable_dirty_ratio="0.01",
    )  # fmt: skip
    producer = new_producer(node, batch_num_messages=2, linger_ms=0)
    for number in range(60):
        value = None if number == 30 else b"%d" % number + b"." * 100
        producer.produce(topic, value, key=b"key %d" % (number % 3), timestamp=FIRST_MS + number)
        producer.flush(120)
    archive(spark, node, topic)
    held = len(consumed(node, topic, "--from-beginning", "--exit-at-end"))
    wait_until(
        lambda: len(consumed(node, topic, "--from-beginning", "--exit-at-end")) < max(held, 30),
        "older values go",
    )

    before = consumed(node, topic, "--from-snapshot", str(FIRST_MS + 30))
    after = consumed(node, topic, "--from-snapshot", str(FIRST_MS + 32))

    assert [(each["offset"], each["key"]) for each in before] == [
        (27, "key 0"), (28, "key 1"), (29, "key 2"),
    ]  # fmt: skip
    assert [(each["offset"], each["key"]) for each in after] == [(29, "key 2"), (31, "key 1")]


def test_small_files_are_put_together_and_hold_the_same(
    spark: SparkSession, node: NodeProcess, client: Client, tmp_path: Path
) -> None:
    # Nothing is deleted: the archive is compared with the same log before and after.
    topic = archived_topic(client, tmp_path, partitions=2, retention_bytes="-1", retention_ms="-1")
    for begin in range(0, 60, 20):
        publish_numbers(node, topic, range(begin, begin + 20))
        archive(spark, node, topic)
    before = verify_archive(node.bootstrap, client.archives.get(topic), {})
    table = ArchiveTable.open(ArchiveLocation(str(tmp_path / "archive")))

    done = compact_archive(table, ArchivedTopicId(topic, client.topic(topic).id), files_min=2)

    assert done.files_before > done.files_after == 2
    assert verify_archive(node.bootstrap, client.archives.get(topic), {}) == before
    assert [each.archived for each in archive_statuses(node.http_url, [topic])[0].partitions] == [
        30, 30,
    ]  # fmt: skip


def test_what_cannot_be_archived_is_told_in_one_line(
    spark: SparkSession,
    node: NodeProcess,
    client: Client,
    reading: Callable[..., DataFrameReader],
    tmp_path: Path,
) -> None:
    plain = unique("plain")
    client.create_topic(plain, partitions=1, replication_factor=1)

    with pytest.raises(InvalidRequest, match=f"topic {plain} has no archive; `penstock archive"):
        archive(spark, node, plain)
    with pytest.raises(TopicNotFound, match="'absent'"):
        archive(spark, node, "absent")
    with pytest.raises(PySparkException, match=f"topic {plain} has no archive"):
        reading(subscribe=plain, includeDeleted=True).load().count()
    with pytest.raises(PySparkException, match="there is no archive at /nowhere"):
        reading(subscribe=plain, includeDeleted=True, archivePath="/nowhere").load().count()
