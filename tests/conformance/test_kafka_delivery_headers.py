"""Delay, priority and idempotency keys for stock Kafka clients, by headers."""

import datetime as dt
import time

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from kio.schema.errors import ErrorCode
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.produce.v9.response import PartitionProduceResponse
from kio.schema.types import TopicName
from kio.static.primitive import Records, i16, i32, i32Timedelta

from penstock.record import Record, encode_batch
from tests.kafka_clients import DEADLINE_S, new_producer, new_topic, open_consumer, read, unique
from tests.kafka_wire import WireClient
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
    [("penstock-priority", b"42"), ("penstock-deliver-at", b"tomorrow")],
)
@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_record_whose_header_makes_no_sense_is_told_from_others_of_its_batch(
    node: NodeProcess, name: str, value: bytes, *, is_idempotent: bool
) -> None:
    topic = new_topic(node)
    settings = {"linger_ms": 50, "enable_idempotence": is_idempotent}

    bad = (b"bad", {name: value})
    # librdkafka tells records of a batch apart when more than one of them is refused.
    told = publish(node, topic, (b"good", {}), bad, bad, **settings)
    publish(node, topic, (b"next", {}), **settings)

    # They came in one batch, which is stored as a whole or not at all.
    assert [isinstance(each, KafkaError) and each.code() for each in told] == [
        KafkaError._INVALID_DIFFERENT_RECORD,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_RECORD,
    ]
    assert [message.value() for message in read_all(node, topic, 1)] == [b"next"]


def test_one_producer_goes_on_after_a_record_that_was_refused(node: NodeProcess) -> None:
    topic = new_topic(node)
    producer = new_producer(node, enable_idempotence=True)
    told: list[KafkaError | None] = []
    for value, headers in ((b"a", []), (b"bad", [("penstock-priority", b"42")]), (b"b", [])):
        producer.produce(
            topic,
            value,
            partition=0,
            headers=headers,
            on_delivery=lambda error, _: told.append(error),
        )
        assert producer.flush(DEADLINE_S) == 0

    assert [error and error.code() for error in told] == [None, KafkaError.INVALID_RECORD, None]
    assert [message.value() for message in read_all(node, topic, 2)] == [b"a", b"b"]


def answered(node: NodeProcess, topic: str, *records: Record) -> PartitionProduceResponse:
    """Publish a batch and return the answer with all that librdkafka leaves out."""
    data = PartitionProduceData(index=i32(0), records=Records(bytes(encode_batch(list(records)))))
    wanted = TopicProduceData(name=TopicName(topic), partition_data=(data,))
    timeout = i32Timedelta.parse(dt.timedelta(seconds=20))
    request = ProduceRequest(acks=i16(-1), timeout=timeout, topic_data=(wanted,))
    with WireClient(node.kafka_port) as client:
        response: PartitionProduceResponse = client.ask(request).responses[0].partition_responses[0]
    return response


def test_the_answer_names_each_record_that_is_refused_with_header_value_and_limit(
    node: NodeProcess,
) -> None:
    headers = [(), (("penstock-priority", b"42"),), (("penstock-deliver-at", b"tomorrow"),)]

    answer = answered(
        node,
        new_topic(node),
        *(Record(number, 0, None, b"value", each) for number, each in enumerate(headers)),
    )

    assert answer.error_code is ErrorCode.invalid_record
    told = {each.batch_index: each.batch_index_error_message for each in answer.record_errors}
    assert told[1] == "penstock-priority is '42', not 0 to 9 or low, normal, high"
    assert "penstock-deliver-at is 'tomorrow', not milliseconds" in (told[2] or "")
    assert sorted(told) == [1, 2]
    assert answer.error_message == f"record 1 of the batch: {told[1]}, and 1 more cannot be stored"


def test_each_record_without_a_key_is_named_where_keys_are_needed(node: NodeProcess) -> None:
    topic = new_topic(node, cleanup_policy="compact")

    answer = answered(node, topic, *(Record(n, 0, key, b"") for n, key in enumerate([b"k", None])))

    assert answer.error_code is ErrorCode.invalid_record
    (told,) = answer.record_errors
    assert told.batch_index == 1
    assert "it has no key" in (told.batch_index_error_message or "")
