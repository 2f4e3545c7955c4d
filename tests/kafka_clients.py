"""librdkafka clients for a running node, quiet and with deadlines."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.processes import NodeProcess

# Far above what anything takes here, so that a busy machine does not fail a test.
DEADLINE_S = 120.0
_POLL_S = 0.05
_QUIET: dict[str, object] = {"log_level": 0}


def new_producer(node: NodeProcess, **settings: object) -> Producer:
    """Return a producer; underscores in the names of settings stand for dots."""
    return Producer(_config(node, settings))


def new_admin(node: NodeProcess) -> AdminClient:
    """Return an administrative client."""
    return AdminClient(_config(node, {}))


@contextmanager
def open_consumer(node: NodeProcess, group: str, **settings: object) -> Iterator[Consumer]:
    """Give a consumer that starts with the first message and is closed in the end."""
    consumer = Consumer(consumer_config(node, group, **settings))
    try:
        yield consumer
    finally:
        consumer.close()


def consumer_config(node: NodeProcess, group: str, **settings: object) -> dict[str, object]:
    """Return the settings of a member of a group."""
    return _config(node, {"group_id": group, "auto_offset_reset": "earliest", **settings})


def _config(node: NodeProcess, settings: dict[str, object]) -> dict[str, object]:
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    return {**_QUIET, "bootstrap.servers": node.bootstrap, **dotted}


def unique(kind: str) -> str:
    """Return a name that no other test uses."""
    return f"{kind}-{uuid4().hex[:12]}"


def new_topic(node: NodeProcess, partitions: int = 1, **settings: str) -> str:
    """Create a topic of its own for a test."""
    name = unique("topic")
    create_topic(node, name, partitions, **settings)
    return name


def create_topic(node: NodeProcess, name: str, partitions: int = 1, **settings: str) -> None:
    """Create a topic; the names of settings have `_` where Kafka's have `.`."""
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin = new_admin(node)
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(DEADLINE_S)


def delete_topic(node: NodeProcess, name: str) -> None:
    """Delete a topic."""
    admin = new_admin(node)
    admin.delete_topics([name])[name].result(DEADLINE_S)


def publish(
    node: NodeProcess, topic: str, values: list[bytes | None], **settings: object
) -> list[Message]:
    """Publish values in order to partition 0 and return them as they were acknowledged."""
    partition = settings.pop("partition", 0)
    producer = new_producer(node, **settings)
    acknowledged: list[Message] = []
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=_collector(acknowledged))
    assert producer.flush(DEADLINE_S) == 0
    return acknowledged


def _collector(messages: list[Message]) -> Callable[[KafkaError | None, Message], None]:
    def collect(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        messages.append(message)

    return collect


def read(consumer: Consumer, count: int) -> list[Message]:
    """Return the next messages; errors that are not the end of a partition are raised."""
    messages: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came"
        message = consumer.poll(_POLL_S)
        if message is None:
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        messages.append(message)
    return messages


def read_from(node: NodeProcess, topic: str, count: int, **settings: object) -> list[Message]:
    """Return messages of partition 0 from its start."""
    with open_consumer(node, unique("reader"), enable_auto_commit=False, **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return read(consumer, count)


def wait_until(is_reached: Callable[[], object], what: str) -> None:
    """Poll a condition until it holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_reached():
        assert time.monotonic() < deadline, f"not reached in {DEADLINE_S} s: {what}"
        time.sleep(_POLL_S)
