"""Stock Kafka clients with deadlines, as these tests use them."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.processes import NodeProcess

WAIT_S = 120.0
_QUIET = {"log_level": "0", "broker.address.family": "v4"}


def wait_until(condition: Callable[[], Any], what: str, wait_s: float = WAIT_S) -> Any:
    """Ask again until the answer is true; fail with `what` when it never is."""
    deadline = time.monotonic() + wait_s
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}, not within {wait_s} s")
        time.sleep(0.02)
    return answer


# Topics.


def admin(node: NodeProcess) -> AdminClient:
    """Return an admin client."""
    return AdminClient({"bootstrap.servers": node.bootstrap, **_QUIET})


def ask(node: NodeProcess, call: Callable[[AdminClient], dict[Any, Any]]) -> list[Any]:
    """Make an admin call and wait for all its results; raise what went wrong."""
    client = admin(node)
    return [future.result(WAIT_S) for future in call(client).values()]


def create_topic(node: NodeProcess, name: str, partitions: int = 1, **settings: str) -> None:
    """Create a topic; underscores of setting names stand for dots."""
    config = {key.replace("_", "."): value for key, value in settings.items()}
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
    ask(node, lambda client: client.create_topics([topic]))


def delete_topic(node: NodeProcess, name: str) -> None:
    """Delete a topic."""
    ask(node, lambda client: client.delete_topics([name]))


def add_partitions(node: NodeProcess, name: str, partitions: int) -> None:
    """Let a topic grow."""
    grown = NewPartitions(name, partitions)
    ask(node, lambda client: client.create_partitions([grown]))


def alter_topic(node: NodeProcess, name: str, **settings: str) -> None:
    """Change settings of a topic."""
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    ask(node, lambda client: client.incremental_alter_configs([resource]))


def topic_settings(node: NodeProcess, name: str) -> dict[str, str]:
    """Return all settings of a topic."""
    resource = ConfigResource(ResourceType.TOPIC, name)
    (config,) = ask(node, lambda client: client.describe_configs([resource]))
    return {key: entry.value for key, entry in config.items()}


def topics(node: NodeProcess) -> dict[str, int]:
    """Return the number of partitions of each topic."""
    listed = admin(node).list_topics(timeout=WAIT_S).topics
    return {name: len(topic.partitions) for name, topic in listed.items()}


# Messages.


def producer(node: NodeProcess, **settings: Any) -> Producer:
    """Return a producer that waits for its acknowledgements."""
    return Producer({"bootstrap.servers": node.bootstrap, "acks": "all", **_QUIET, **settings})


def publish(
    node: NodeProcess,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    key: bytes | None = None,
    timestamp: int = 0,
    **settings: Any,
) -> list[int]:
    """Publish values and return their offsets; raise when one was refused."""
    acknowledged: list[int] = []
    refused: list[KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(message.offset() or 0)
        else:
            refused.append(error)

    sender = producer(node, **{"linger.ms": 0, **settings})
    for value in values:
        sender.produce(
            topic, value, key, partition=partition, timestamp=timestamp, on_delivery=note
        )
        sender.poll(0)
    sender.flush(WAIT_S)
    assert not refused, refused[0]
    return acknowledged


def publish_batches(node: NodeProcess, topic: str, values: Iterable[bytes]) -> list[int]:
    """Publish each value in a batch of its own."""
    return [offset for value in values for offset in publish(node, topic, [value])]


def consumer(node: NodeProcess, group: str = "unused", **settings: Any) -> Consumer:
    """Return a consumer that checks every checksum."""
    return Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            **_QUIET,
            **settings,
        }
    )


def watermarks(node: NodeProcess, topic: str, partition: int = 0) -> tuple[int, int]:
    """Return the first offset and the one after the last."""
    reader = consumer(node)
    try:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S)
        return low, high
    finally:
        reader.close()


def read(
    node: NodeProcess, topic: str, partition: int = 0, *, start: int | None = None
) -> list[Message]:
    """Return all messages of a partition from `start` or its beginning."""
    low, high = watermarks(node, topic, partition)
    reader = consumer(node, **{"enable.partition.eof": True})
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    reader.assign([TopicPartition(topic, partition, low if start is None else start)])
    try:
        while high > low and time.monotonic() < deadline:
            for message in reader.consume(10_000, timeout=0.2):
                if message.error() is None:
                    found.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    return found
        assert high == low, f"only {len(found)} messages of {topic} were read"
        return found
    finally:
        reader.close()


def read_values(
    node: NodeProcess, topic: str, partition: int = 0, *, start: int | None = None
) -> list[bytes | None]:
    """Return the values of all messages of a partition."""
    return [message.value() for message in read(node, topic, partition, start=start)]


# The node itself.


def metrics(node: NodeProcess) -> dict[str, float]:
    """Return every series of /metrics by name and labels."""
    status, body = node.get("/metrics")
    assert status == 200
    lines = [line for line in body.decode().splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def verify(node: NodeProcess) -> subprocess.CompletedProcess[str]:
    """Run `penstock log verify` on the data of a node."""
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", "log", "verify", str(node.data_dir)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


def logged(node: NodeProcess, message: str, begin: int = 0) -> list[dict[str, object]]:
    """Return the node's log lines of one kind."""
    return [line for line in node.log_lines(begin) if line.get("message") == message]
