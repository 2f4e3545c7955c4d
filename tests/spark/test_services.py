"""Services on Spark end in good order when they are told to, and go on where they were."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from penstock.client import Client
from penstock.spark import ArchiveLocation, ArchiveTable
from tests.kafka_clients import new_producer, new_topic, read_from
from tests.processes import NodeProcess
from tests.spark.services import DEADLINE_S, Service, ends_of, wait_for

PIPELINE = """\
name: copy
checkpoint: state
trigger: 100 milliseconds
sources:
  lines: {{topic: {source}, value: text, start: earliest}}
sinks:
  copy: {{from: lines, topic: {target}, value: value}}
"""


class Publishing(threading.Thread):
    """Publishes numbers until it is stopped, so that signals come while there is work."""

    def __init__(self, producer: Producer, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = producer
        self._topic = topic
        self._stopping = threading.Event()
        self.published = 0

    def run(self) -> None:
        while not self._stopping.wait(0.02):
            for _ in range(5):
                number = self.published
                self._producer.produce(self._topic, b"%d" % number, partition=number % 2)
                self.published += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        assert self._producer.flush(DEADLINE_S) == 0


@contextmanager
def started(tmp_path: Path, node: NodeProcess, source: str) -> Iterator[tuple[Service, Service]]:
    """Run both services; nothing of them is left behind."""
    address = ("--bootstrap", node.bootstrap, "--url", node.http_url)
    file = str(tmp_path / "copy.yml")
    pipeline = Service(tmp_path / "pipeline.log", "pipeline", "run", file, *address)
    archive = Service(tmp_path / "archive.log", "archive", "run", source, "--every", "1s", *address)
    try:
        yield pipeline, archive
    finally:
        pipeline.kill()
        archive.kill()


@pytest.mark.usefixtures("java")
def test_a_pipeline_and_an_archive_end_by_signals_and_go_on_where_they_were(
    node: NodeProcess, tmp_path: Path
) -> None:
    source, target = new_topic(node, partitions=2), new_topic(node)
    (tmp_path / "copy.yml").write_text(PIPELINE.format(source=source, target=target))
    path = tmp_path / "archive"
    ArchiveTable.create(ArchiveLocation(str(path)))
    with Client(node.http_url) as client:
        client.alter_topic(source, settings={"archive.path": str(path)})

    def archived() -> list[int]:
        table = DeltaTable(str(path)).to_pyarrow_table(columns=["value"])
        return [int(value) for value in table["value"].to_pylist()]

    publishing = Publishing(new_producer(node), source)
    publishing.start()

    with started(tmp_path, node, source) as (pipeline, archive):
        wait_for(lambda: ends_of(node, target) > 0, "the pipeline has copied something")
        wait_for(lambda: archived() != [], "something is archived")
        pipeline.signal_all(signal.SIGTERM)
        archive.signal(signal.SIGTERM)
        assert pipeline.has_ended_well(), pipeline.told()
        assert archive.has_ended_well(), archive.told()
    publishing.stop()
    with started(tmp_path, node, source) as (pipeline, archive):
        wait_for(lambda: ends_of(node, target) >= publishing.published, "all is copied")
        wait_for(lambda: len(archived()) >= publishing.published, "all is archived")
        pipeline.signal(signal.SIGINT)
        archive.signal_all(signal.SIGINT)
        assert pipeline.has_ended_well(), pipeline.told()
        assert archive.has_ended_well(), archive.told()

    written = read_from(node, target, publishing.published)
    numbers = list(range(publishing.published))
    assert sorted(int(message.value() or b"") for message in written) == numbers
    assert ends_of(node, target) == publishing.published
    assert sorted(archived()) == numbers
    assert pipeline.told().count("copy stopped:") == 2


@pytest.mark.usefixtures("java")
def test_a_job_that_is_interrupted_ends_without_a_trace(node: NodeProcess, tmp_path: Path) -> None:
    topic = new_topic(node, partitions=2)
    command = ("insight", "traffic", topic, "--bootstrap", node.bootstrap)
    insight = Service(tmp_path / "insight.log", *command)
    try:
        wait_for(lambda: "counting" in insight.told(), "Spark counts")

        insight.signal_all(signal.SIGINT)

        assert insight.exit_code() == 130, insight.told()
    finally:
        insight.kill()
    assert "Traceback" not in insight.told()
