"""An archive in an object store: the same commits, told apart by conditional writes."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameReader

from penstock.client import Client
from penstock.errors import ArchiveUnavailable, Conflict, InvalidRequest
from penstock.spark import (
    ArchivedTopicId,
    ArchiveLocation,
    ArchiveService,
    ArchiveServiceSettings,
    ArchiveTable,
    Scope,
    compact_archive,
    traffic_report,
    verify_archive,
)
from tests.kafka_clients import new_topic, publish, wait_until
from tests.processes import NodeProcess, free_ports

BUCKET = "attic"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that looks for old segments all the time."""
    directory = tmp_path_factory.mktemp("node")
    with NodeProcess(directory, "--housekeeping-interval-ms", "200") as running:
        yield running


@pytest.fixture(scope="module")
def storage() -> Iterator[dict[str, str]]:
    """A store of its own with one bucket, and what its clients are told."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    # Delta's client waits for answers with Python's lock in its hands, so it is another process.
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    options = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "anyone",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    try:
        wait_until(lambda: is_created(options), "a bucket")
        yield options
    finally:
        server.kill()
        server.wait()


def is_created(options: dict[str, str]) -> bool:
    store = boto3.client(
        "s3",
        endpoint_url=options["AWS_ENDPOINT_URL"],
        region_name=options["AWS_REGION"],
        aws_access_key_id=options["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=options["AWS_SECRET_ACCESS_KEY"],
    )
    try:
        store.create_bucket(Bucket=BUCKET)
    except EndpointConnectionError:
        return False
    return True


def test_a_topic_is_archived_there_and_read_back_when_it_is_gone(
    spark: SparkSession,
    node: NodeProcess,
    storage: dict[str, str],
    reading: Callable[..., DataFrameReader],
) -> None:
    path = f"s3://{BUCKET}/archive"
    topic = new_topic(node, retention_bytes="1024", segment_bytes="1024")
    with Client(node.http_url) as client:
        client.alter_topic(topic, settings={"archive.path": path})
        service = ArchiveService(
            spark,
            ArchiveServiceSettings(
                bootstrap=node.bootstrap,
                url=node.http_url,
                topics=(topic,),
                storage=tuple(storage.items()),
            ),
        )
        for start in (0, 100):
            values: list[bytes | None] = [b"%d" % each for each in range(start, start + 100)]
            publish(node, topic, values, batch_num_messages=10)
            service.run_once()
        wait_until(lambda: client.archives.get(topic).partitions[0].start > 0, "retention")
        state = client.archives.get(topic)
    location = ArchiveLocation(path, storage)
    table = ArchiveTable.open(location)
    compacted = compact_archive(table, ArchivedTopicId(topic, state.topic_id), files_min=2)

    rows = (
        reading(subscribe=topic, includeDeleted="true")
        .option("archiveOptions", json.dumps(storage))
        .load()
        .collect()
    )

    assert (compacted.files_before > 1, compacted.files_after) == (True, 1)
    assert [int(row["value"]) for row in rows] == list(range(200))
    (verdict,) = verify_archive(node.bootstrap, state, storage)
    assert (verdict.records, verdict.is_sound(compacts=False)) == (200, True)

    unarchived = new_topic(node)
    publish(node, unarchived, [b"1", b"2"])
    scope = Scope(
        topics=(topic, unarchived),
        bootstrap=node.bootstrap,
        url=node.http_url,
        includes_deleted=True,
        storage=storage,
    )
    counted = traffic_report(spark, scope).as_json()["tables"]["partitions"]
    assert [each["records"] for each in counted] == [200, 2]


def test_of_two_jobs_one_commits(storage: dict[str, str]) -> None:
    location = ArchiveLocation(f"s3://{BUCKET}/shared", storage)
    topic = ArchivedTopicId("orders", "0c1e")
    first, second = ArchiveTable.create(location), ArchiveTable.create(location)
    first.add(topic, [], {0: 10})

    with pytest.raises(Conflict, match="topic orders: another job has changed the archive"):
        second.add(topic, [], {0: 20})

    assert ArchiveTable.open(location).position(topic, 0) == 10


def test_what_the_store_says_is_told_in_one_line(storage: dict[str, str]) -> None:
    def told(path: str, options: dict[str, str]) -> str:
        with pytest.raises((ArchiveUnavailable, InvalidRequest)) as caught:
            ArchiveTable.create(ArchiveLocation(path, options))
        assert len(str(caught.value).splitlines()) == 1
        return str(caught.value)

    plain = {name: value for name, value in storage.items() if name != "AWS_ALLOW_HTTP"}

    absent = told("s3://nowhere/archive", storage)
    assert absent.startswith("the archive at s3://nowhere/archive cannot be reached: ")
    assert absent.endswith("NoSuchBucket: The specified bucket does not exist")
    assert "AWS_ALLOW_HTTP=true" in told(f"s3://{BUCKET}/archive", plain)
    assert told("ice://attic", storage).endswith("Unknown scheme: ice")
