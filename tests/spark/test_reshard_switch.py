"""A topic gets another number of partitions under its name, while it is written to and read."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.client import Admin, Client, Connection, Reshards
from penstock.errors import Conflict, NotFound, PenstockError, TopicFenced
from penstock.spark import ReshardVerdict, Switch, SwitchOutcome, SwitchSettings
from tests.kafka_clients import new_producer, new_topic, open_consumer, unique
from tests.processes import NodeProcess
from tests.spark.keyed_numbers import held, publish_numbers
from tests.spark.spark_daemons import ENVIRON

KEYS = 5
DEADLINE_S = 240.0
# Runs the command in a process that is killed where the argument says.
KILLED = """
import os, signal, sys
from penstock.cli import main
from penstock.client import Reshards

where = sys.argv.pop(1)
switch = Reshards.switch

def switch_and_die(*arguments, **named):
    if where == "after the switch":
        switch(*arguments, **named)
    os.kill(os.getpid(), signal.SIGKILL)

if where != "nowhere":
    Reshards.switch = switch_and_die
main()
"""


class Traffic:
    """Writers and readers of a topic, each of a thread of its own, until they are stopped."""

    def __init__(self, node: NodeProcess, topic: str) -> None:
        self._node = node
        self._topic = topic
        self._is_over = threading.Event()
        self._failures: list[Exception] = []
        self.published: list[int] = []
        self.produced: list[int] = []
        self.read: list[int] = []
        self.group = unique("group")
        work = (self._publish, self._produce, self._consume)
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in work]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
        if self._failures:
            raise self._failures[0]

    def wait_for(self, what: str, is_so: Any) -> None:
        """Wait until something is so, as long as all of them go on."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not is_so():
            assert not self._failures, self._failures
            assert time.monotonic() < deadline_s, what
            time.sleep(0.05)

    def _run(self, work: Any) -> None:
        try:
            work()
        except (PenstockError, KafkaException, AssertionError) as failure:
            self._failures.append(failure)

    def _publish(self) -> None:
        """Publish even numbers by HTTP, one after the other."""
        with Client(self._node.http_url, retry_s=DEADLINE_S) as client:
            number = 0
            while not self._is_over.is_set():
                client.publish(self._topic, b"%d" % number, key=b"h%d" % (number % KEYS))
                self.published.append(number)
                number += 2
                time.sleep(0.01)

    def _produce(self) -> None:
        """Publish odd numbers by an idempotent producer, many at once."""
        producer = new_producer(self._node, enable_idempotence=True, partitioner="murmur2_random")

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            self.produced.append(int(message.value()))  # type: ignore[arg-type]

        number = 1
        while not self._is_over.is_set():
            key = b"k%d" % (number % KEYS)
            producer.produce(self._topic, b"%d" % number, key, on_delivery=delivered)
            producer.poll(0.005)
            number += 2
        assert producer.flush(DEADLINE_S) == 0

    def _consume(self) -> None:
        settings = {"auto_commit_interval_ms": 100, "session_timeout_ms": 6_000}
        with open_consumer(self._node, self.group, **settings) as consumer:
            consumer.subscribe([self._topic])
            while not self._is_over.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    self.read.append(int(message.value()))  # type: ignore[arg-type]


@pytest.fixture
def settings(node: NodeProcess, tmp_path: Path) -> SwitchSettings:
    """A topic of two partitions that is to have three."""
    return SwitchSettings(
        bootstrap=node.bootstrap,
        url=node.http_url,
        topic=new_topic(node, partitions=2),
        partitions=3,
        directory=tmp_path / "reshard",
    )


def switched(spark: SparkSession, settings: SwitchSettings) -> SwitchOutcome:
    """Reshard a topic."""
    switch = Switch(spark, settings, lambda _: None)
    try:
        return switch.run()
    finally:
        switch.close()


def test_writers_and_readers_go_on_by_themselves_and_nothing_is_lost(
    spark: SparkSession, node: NodeProcess, settings: SwitchSettings
) -> None:
    topic = settings.topic
    with Traffic(node, topic) as traffic:
        traffic.wait_for("all began", lambda: traffic.read and traffic.published)

        outcome = switched(spark, settings)

        assert outcome.is_switched
        assert outcome.verdict.is_sound
        before = len(traffic.produced), len(traffic.published)
        traffic.wait_for("the producer goes on", lambda: len(traffic.produced) > before[0] + 200)
        traffic.wait_for("publishes go on", lambda: len(traffic.published) > before[1] + 50)
        goal = {*traffic.produced, *traffic.published}
        traffic.wait_for("all is read", lambda: goal <= set(traffic.read))
    found = held(node, topic, 3)
    acknowledged = {*traffic.produced, *traffic.published}
    assert acknowledged <= {number for records in found.values() for _, number in records}
    places = defaultdict(set)
    for partition, records in found.items():
        by_key = defaultdict(list)
        for key, number in records:
            by_key[key].append(number)
            places[key].add(partition)
        for key, numbers in by_key.items():
            # Sent again after an answer that got lost, a record may be there twice.
            firsts = list(dict.fromkeys(numbers))
            assert firsts == sorted(firsts), (partition, key)
    # The node chooses the partition of what comes by HTTP.
    assert all(len(places[b"h%d" % key]) == 1 for key in range(KEYS))
    assert len(Admin(Connection(node.bootstrap)).topic(topic).partitions) == 3
    assert traffic.group in outcome.groups
    assert switched(spark, settings).is_switched, "the same command again finds it done"
    with Client(node.http_url, retry_s=0.1) as client:
        assert client.reshards.get(outcome.former).phase == "switched"
        with pytest.raises(TopicFenced):
            client.publish(outcome.former, b"late")
        with pytest.raises(NotFound, match="is not being resharded"):
            client.reshards.get(topic)


def test_queue_groups_go_on_where_their_unsettled_messages_begin(
    spark: SparkSession, node: NodeProcess, settings: SwitchSettings
) -> None:
    topic = settings.topic
    publish_numbers(node, topic, range(60))
    acked = set()
    with Client(node.http_url) as client:
        client.groups.configure(topic, "workers", {"delivery.attempts.max": "9"})
        for message in client.receive(topic, "workers", count_max=20):
            acked.add(int(message.value))
            client.ack(message)
        (out,) = client.receive(topic, "workers", count_max=1)

        outcome = switched(spark, settings)

        assert outcome.is_switched
        own = client.groups.get(topic, "workers").settings["delivery.attempts.max"]
        assert (own.value, own.is_own) == ("9", True)
        again = set()
        while got := client.receive(topic, "workers", count_max=50, wait_s=1):
            # A receipt of the former topic is not taken for one of the copy.
            with pytest.raises(Conflict):
                client.ack(out)
            again.update(int(message.value) for message in got)
            assert client.ack_batch(got) == []
    assert again >= set(range(60)) - acked


class Killed(Exception):
    """The job dies here, and does nothing any more."""


def test_a_job_that_is_killed_behind_its_fence_goes_on_when_it_is_started_again(
    spark: SparkSession,
    node: NodeProcess,
    settings: SwitchSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def die(*_: object) -> None:
        raise Killed

    topic = settings.topic
    publish_numbers(node, topic, range(200))
    with Client(node.http_url, retry_s=DEADLINE_S) as client:
        with monkeypatch.context() as dying:
            dying.setattr(Switch, "_take_name", die)
            dying.setattr(Reshards, "lift", lambda *_: None)
            with pytest.raises(Killed):
                switched(spark, settings)
        assert client.reshards.get(topic).phase == "fenced", "nobody has lifted it yet"
        writer = threading.Thread(target=client.publish, args=(topic, b"999"))
        writer.start()

        outcome = switched(spark, settings)

        writer.join(DEADLINE_S)
    # The writer goes on as soon as the next run has lifted the fence.
    assert outcome.verdict in (ReshardVerdict(200, 0, 0, 0), ReshardVerdict(201, 0, 0, 0))
    numbers = [number for records in held(node, topic, 3).values() for _, number in records]
    assert sorted(numbers) == [*range(200), 999]


@pytest.mark.crash
def test_a_command_that_is_killed_is_finished_by_the_same_command(
    node: NodeProcess, tmp_path: Path
) -> None:
    topic = new_topic(node, partitions=2)
    publish_numbers(node, topic, range(300))

    for where in ("before the switch", "after the switch"):
        assert commanded(node, topic, tmp_path, where) == -signal.SIGKILL
    assert commanded(node, topic, tmp_path, "nowhere") == 0

    publish_numbers(node, topic, range(300, 330))
    found = held(node, topic, 3)
    assert sorted(number for records in found.values() for _, number in records) == list(range(330))
    for records in found.values():
        for wanted in {key for key, _ in records if key is not None}:
            numbers = [number for key, number in records if key == wanted]
            assert numbers == sorted(numbers)


def commanded(node: NodeProcess, topic: str, directory: Path, where: str) -> int:
    """Run the command in a process of its own, killed somewhere, and return how it ended."""
    command = [sys.executable, "-c", KILLED, where, "reshard", topic, "--partitions", "3"]
    command += ["--checkpoint", str(directory / "reshard"), "--master", "local[2]"]
    command += ["--bootstrap", node.bootstrap, "--url", node.http_url]
    return subprocess.run(command, capture_output=True, timeout=800, env=ENVIRON).returncode


def test_what_would_be_left_behind_keeps_a_topic_as_it_is(
    spark: SparkSession,
    node: NodeProcess,
    settings: SwitchSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = settings.topic
    monkeypatch.setattr("penstock.spark.switching.BUSY_PAUSE_S", 0.0)
    publish_numbers(node, topic, range(10))
    with Client(node.http_url) as client:
        client.publish(topic, b"later", delay_s=3_600)

        with pytest.raises(Conflict, match=r"1 scheduled messages of topic .* wait"):
            switched(spark, settings)

        assert client.reshards.get(topic).phase == "copying"
        client.publish(topic, b"10")
        shown = invoked("status", topic, node)
        assert (shown["phase"], shown["records"], shown["target_records"]) == ("copying", 11, 10)
        assert invoked("cancel", topic, node)["cancelled"]
        client.publish(topic, b"11")
        names = [each.name for each in client.topics()]
    assert not [name for name in names if name.startswith(f"{topic}.")]
    with pytest.raises(Conflict, match="was the reshard cancelled"):
        switched(spark, settings)


def test_a_reshard_that_is_refused_leaves_no_copy_behind(
    spark: SparkSession, node: NodeProcess, settings: SwitchSettings, tmp_path: Path
) -> None:
    topic = settings.topic
    with Client(node.http_url) as client:
        client.alter_topic(topic, settings={"archive.path": str(tmp_path / "archive")})

        with pytest.raises(PenstockError, match="disable the archive first"):
            switched(spark, settings)

        names = [each.name for each in client.topics()]
    assert not [name for name in names if name.startswith(f"{topic}.")]


def invoked(action: str, topic: str, node: NodeProcess) -> dict[str, Any]:
    """What a command tells."""
    outcome = CliRunner().invoke(app, ["reshard", action, topic, "--url", node.http_url, "--json"])
    assert outcome.exit_code == 0, outcome.output
    answer: dict[str, Any] = json.loads(outcome.stdout)
    return answer
