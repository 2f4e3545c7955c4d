"""Delay, priority and idempotency keys for stock Kafka clients, by headers."""

import time

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from tests.kafka_clients import DEADLINE_S, new_producer, new_topic, open_consumer, read, unique
from tests.processes import NodeProcess


def publish(
    node: NodeProcess, topic: str, *messages: tuple[bytes, dict[str, bytes]], **settings: object
) -> list[Message | KafkaError]:
    """Publish values with headers to partition 0; return what the producer was told."""
    producer = new_producer(node, **settings)
    told: list[Message | KafkaError] = []
    for value, headers in messages:
        producer.produce(
            topic,
            value,
            partition=0,
            headers=list(headers.items()),
            on_delivery=lambda error, message: told.append(error or message),
        )
    assert producer.flush(DEADLINE_S) == 0
    return told


def read_all(node: NodeProcess, topic: str, count: int) -> list[Message]:
    with open_consumer(node, unique("reader"), enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return read(consumer, count)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_delayed_message_comes_after_those_sent_later_and_never_early(
    node: NodeProcess, codec: str, *, is_idempotent: bool
) -> None:
    topic = new_topic(node)
    due_ms = int(time.time() * 1000) + 1500
    headers = {"penstock-deliver-at": str(due_ms).encode(), "trace": b"1"}

    publish(
        node,
        topic,
        (b"later", headers),
        (b"at once", {}),
        compression_type=codec,
        enable_idempotence=is_idempotent,
        linger_ms=50,
    )
    publish(node, topic, (b"at once too", {}))
    found = read_all(node, topic, 3)
    arrived_ms = int(time.time() * 1000)

    assert {message.value() for message in found[:2]} == {b"at once", b"at once too"}
    assert found[2].value() == b"later"
    assert arrived_ms >= due_ms
    assert found[2].timestamp()[1] >= due_ms
    kept = dict(found[2].headers() or [])
    assert {name: kept[name] for name in headers} == headers
    assert kept["penstock-id"].startswith(b"0-s")


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_key_is_published_once(node: NodeProcess, *, is_idempotent: bool) -> None:
    topic = new_topic(node)
    keyed = {"penstock-idempotency-key": b"order-17"}

    (first,) = publish(node, topic, (b"a", keyed), enable_idempotence=is_idempotent)
    (again,) = publish(node, topic, (b"a", keyed), enable_idempotence=is_idempotent)
    publish(node, topic, (b"a", keyed), (b"b", {}), (b"a", keyed), linger_ms=50)

    assert isinstance(first, Message)
    assert isinstance(again, Message)
    assert first.offset() == again.offset() == 0
    assert [message.value() for message in read_all(node, topic, 2)] == [b"a", b"b"]


def test_one_producer_goes_on_after_duplicates(node: NodeProcess) -> None:
    topic = new_topic(node)
    producer = new_producer(node, enable_idempotence=True)
    keyed = [("penstock-idempotency-key", b"once")]
    for value, headers in ((b"a", keyed), (b"a", keyed), (b"b", []), (b"a", keyed), (b"c", [])):
        producer.produce(topic, value, partition=0, headers=headers)
        assert producer.flush(DEADLINE_S) == 0

    assert [message.value() for message in read_all(node, topic, 3)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("penstock-priority", b"11"), ("penstock-deliver-at", b"tomorrow")],
)
def test_a_header_that_makes_no_sense_is_refused(
    node: NodeProcess, name: str, value: bytes
) -> None:
    (told,) = publish(node, new_topic(node), (b"a", {name: value}))

    assert isinstance(told, KafkaError)
    assert not told.retriable()
