"""Publishing with librdkafka, and with frames made by hand where a client hides what happens."""

import datetime as dt
import time

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.produce.v9.response import PartitionProduceResponse
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import Records, i16, i32, i32Timedelta

from penstock.record import Record, encode_batch
from tests.kafka_clients import (
    DEADLINE_S,
    new_producer,
    new_topic,
    open_consumer,
    publish,
    read,
    read_from,
    unique,
)
from tests.kafka_wire import WireClient
from tests.processes import NodeProcess

TIMEOUT = i32Timedelta.parse(dt.timedelta(seconds=20))
VALUES: list[bytes | None] = [f"value {number}".encode() for number in range(500)]


@pytest.mark.parametrize("acks", ["1", "all"])
def test_an_acknowledged_message_has_its_offset_and_is_read_back(
    node: NodeProcess, acks: str
) -> None:
    topic = new_topic(node)

    acknowledged = publish(node, topic, VALUES, acks=acks)

    assert [message.offset() for message in acknowledged] == list(range(len(VALUES)))
    assert [message.value() for message in read_from(node, topic, len(VALUES))] == VALUES


def test_messages_without_acks_are_stored_all_the_same(node: NodeProcess) -> None:
    topic = new_topic(node)

    publish(node, topic, VALUES, acks="0")

    assert [message.value() for message in read_from(node, topic, len(VALUES))] == VALUES


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_stored_and_read_back(node: NodeProcess, codec: str) -> None:
    topic = new_topic(node)

    publish(node, topic, VALUES, compression_type=codec, linger_ms=50)

    assert [message.value() for message in read_from(node, topic, len(VALUES))] == VALUES


def test_key_value_headers_and_time_arrive_as_they_were_given(node: NodeProcess) -> None:
    topic = new_topic(node)
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None)]
    now_ms = int(time.time() * 1000) - 5_000
    producer = new_producer(node)

    producer.produce(topic, b"value", b"key", 0, timestamp=now_ms, headers=headers)
    producer.produce(topic, None, b"tombstone", 0, timestamp=now_ms + 1)
    producer.produce(topic, b"", None, 0, timestamp=now_ms + 2)
    assert producer.flush(DEADLINE_S) == 0

    first, tombstone, keyless = read_from(node, topic, 3)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", headers)
    assert [message.timestamp()[1] - now_ms for message in (first, tombstone, keyless)] == [0, 1, 2]
    assert (tombstone.key(), tombstone.value()) == (b"tombstone", None)
    assert (keyless.key(), keyless.value()) == (None, b"")


def test_messages_of_one_key_share_a_partition_and_keep_their_order(node: NodeProcess) -> None:
    topic = new_topic(node, 4)
    producer = new_producer(node)
    for number in range(400):
        producer.produce(topic, str(number), f"key-{number % 10}")
    assert producer.flush(DEADLINE_S) == 0

    with open_consumer(node, unique("reader")) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
        messages = read(consumer, 400)

    homes = {(message.key(), message.partition()) for message in messages}
    assert len(homes) == 10
    assert len({partition for _, partition in homes}) > 1
    for key in {message.key() for message in messages}:
        numbers = [int(message.value()) for message in messages if message.key() == key]
        assert numbers == sorted(numbers)


def test_an_idempotent_producer_writes_every_message_once(node: NodeProcess) -> None:
    topic = new_topic(node)

    acknowledged = publish(node, topic, VALUES, enable_idempotence=True, batch_num_messages=10)

    assert [message.offset() for message in acknowledged] == list(range(len(VALUES)))
    assert [message.value() for message in read_from(node, topic, len(VALUES))] == VALUES


def test_a_batch_above_the_limit_of_its_topic_is_refused(node: NodeProcess) -> None:
    topic = new_topic(node, max_message_bytes="1000")

    with pytest.raises(KafkaException) as refusal:
        publish(node, topic, [b"x" * 2_000])

    assert refusal.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    publish(node, topic, [b"small"])
    assert [message.value() for message in read_from(node, topic, 1)] == [b"small"]


def test_a_topic_is_created_when_it_is_first_named(node: NodeProcess) -> None:
    topic = unique("topic")

    publish(node, topic, [b"first"])

    assert [message.value() for message in read_from(node, topic, 1)] == [b"first"]


def test_an_unknown_topic_is_refused_when_topics_are_not_created(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("no-creation")
    with NodeProcess(directory, "--auto-create-topics", "false") as node:
        with pytest.raises(KafkaException) as refusal:
            publish(node, "missing", [b"x"], topic_metadata_propagation_max_ms=100)

        codes = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
        assert refusal.value.args[0].code() in codes


# Sequences, which clients manage themselves: frames are made by hand.


def test_a_transactional_producer_ends_at_once_and_says_why(node: NodeProcess) -> None:
    producer = new_producer(node, transactional_id="payments")

    with pytest.raises(KafkaException, match=r"transactions are not supported") as caught:
        producer.init_transactions(DEADLINE_S)

    error: KafkaError = caught.value.args[0]
    assert error.fatal()
    assert error.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_no_producer_id_is_given_for_transactions(node: NodeProcess) -> None:
    request = InitProducerIdRequest(
        transactional_id=TransactionalId("payments"), transaction_timeout=TIMEOUT
    )

    with WireClient(node.kafka_port) as client:
        answer = client.ask(request)

    assert answer.error_code is ErrorCode.unsupported_version
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


def test_producers_that_name_the_same_id_are_given_ids_of_their_own(node: NodeProcess) -> None:
    topic = new_topic(node)
    request = InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout=TIMEOUT,
        producer_id=ProducerId(0),
        producer_epoch=i16(0),
    )

    with WireClient(node.kafka_port) as client:
        answers = [client.ask(request) for _ in range(2)]
        stored = [
            Sequencer(client, topic, answer.producer_id).send(0, epoch=answer.producer_epoch)
            for answer in answers
        ]

    assert [answer.base_offset for answer in stored] == [0, 2]
    assert answers[0].producer_id != answers[1].producer_id
    assert {answer.producer_epoch for answer in answers} == {0}


class Sequencer:
    """An idempotent producer that sends whichever sequence and epoch it is told to."""

    def __init__(self, client: WireClient, topic: str, producer_id: int | None = None) -> None:
        self._client = client
        self._topic = topic
        self.producer_id = self._new_id() if producer_id is None else producer_id

    def _new_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout=TIMEOUT)
        return int(self._client.ask(request).producer_id)

    def send(
        self, sequence: int, *, epoch: int = 0, count: int = 2, acks: int = -1
    ) -> PartitionProduceResponse:
        """Publish `count` records that begin with `sequence`, and return the answer."""
        now_ms = int(time.time() * 1000)
        batch = encode_batch(
            [Record(number, now_ms, None, b"%d" % (sequence + number)) for number in range(count)],
            producer_id=self.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        data = PartitionProduceData(index=i32(0), records=Records(bytes(batch)))
        topic = TopicProduceData(name=TopicName(self._topic), partition_data=(data,))
        request = ProduceRequest(acks=i16(acks), timeout=TIMEOUT, topic_data=(topic,))
        response: PartitionProduceResponse = (
            self._client.ask(request).responses[0].partition_responses[0]
        )
        return response


def test_a_repeated_sequence_is_answered_with_its_first_offset(node: NodeProcess) -> None:
    topic = new_topic(node)
    with WireClient(node.kafka_port) as client:
        producer = Sequencer(client, topic)
        first, second = producer.send(0), producer.send(2)

        again = [producer.send(0), producer.send(2), producer.send(0)]

    assert (first.base_offset, second.base_offset) == (0, 2)
    assert [answer.base_offset for answer in again] == [0, 2, 0]
    assert {answer.error_code for answer in again} == {ErrorCode.none}
    values = [message.value() for message in read_from(node, topic, 4)]
    assert values == [b"0", b"1", b"2", b"3"]


def test_a_gap_in_sequences_is_refused(node: NodeProcess) -> None:
    with WireClient(node.kafka_port) as client:
        producer = Sequencer(client, new_topic(node))
        producer.send(0)

        assert producer.send(4).error_code is ErrorCode.out_of_order_sequence_number
        assert producer.send(2).error_code is ErrorCode.none


def test_an_acknowledgement_that_does_not_exist_is_refused(node: NodeProcess) -> None:
    with WireClient(node.kafka_port) as client:
        producer = Sequencer(client, new_topic(node))

        assert producer.send(0, acks=2).error_code is ErrorCode.invalid_required_acks
        assert producer.send(0).error_code is ErrorCode.none


def test_an_older_epoch_of_a_producer_is_refused(node: NodeProcess) -> None:
    with WireClient(node.kafka_port) as client:
        producer = Sequencer(client, new_topic(node))
        producer.send(0, epoch=0)
        producer.send(0, epoch=1)

        assert producer.send(2, epoch=0).error_code is ErrorCode.invalid_producer_epoch
        assert producer.send(2, epoch=1).error_code is ErrorCode.none


def test_sequences_and_epochs_are_remembered_over_a_crash(fresh_node: NodeProcess) -> None:
    topic = new_topic(fresh_node)
    with WireClient(fresh_node.kafka_port) as client:
        producer = Sequencer(client, topic)
        producer.send(0, epoch=1)
        producer.send(2, epoch=1)

    fresh_node.kill()
    fresh_node.start()

    with WireClient(fresh_node.kafka_port) as client:
        producer = Sequencer(client, topic, producer.producer_id)
        assert producer.send(2, epoch=1).base_offset == 2
        assert producer.send(6, epoch=1).error_code is ErrorCode.out_of_order_sequence_number
        assert producer.send(4, epoch=0).error_code is ErrorCode.invalid_producer_epoch
        assert producer.send(4, epoch=1).base_offset == 4
        assert Sequencer(client, topic).producer_id != producer.producer_id
