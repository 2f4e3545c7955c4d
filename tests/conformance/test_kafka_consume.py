"""Reading with librdkafka: positions, times, waits and limits."""

import time

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from tests.kafka_clients import (
    DEADLINE_S,
    new_admin,
    new_producer,
    new_topic,
    open_consumer,
    publish,
    read,
    unique,
)
from tests.processes import NodeProcess

NUMBERS: list[bytes | None] = [b"%d" % number for number in range(100)]


def numbers(consumer: Consumer, count: int) -> list[int]:
    """Return the values of the next messages."""
    return [int(message.value()) for message in read(consumer, count)]


def test_reading_starts_at_the_position_that_is_assigned(node: NodeProcess) -> None:
    topic = new_topic(node)
    publish(node, topic, NUMBERS)

    with open_consumer(node, unique("reader")) as consumer:
        consumer.assign([TopicPartition(topic, 0, 40)])
        assert numbers(consumer, 3) == [40, 41, 42]

        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert numbers(consumer, 2) == [0, 1]


def test_a_reader_moves_back_and_forth(node: NodeProcess) -> None:
    topic = new_topic(node)
    publish(node, topic, NUMBERS)

    with open_consumer(node, unique("reader")) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        read(consumer, 100)

        consumer.seek(TopicPartition(topic, 0, 10))
        assert numbers(consumer, 2) == [10, 11]
        consumer.seek(TopicPartition(topic, 0, 97))
        assert numbers(consumer, 3) == [97, 98, 99]


def test_watermarks_follow_what_is_published_and_deleted(node: NodeProcess) -> None:
    topic = new_topic(node)
    publish(node, topic, NUMBERS)
    place = TopicPartition(topic, 0)

    with open_consumer(node, unique("reader")) as consumer:
        assert consumer.get_watermark_offsets(place, timeout=DEADLINE_S) == (0, 100)

        admin = new_admin(node)
        admin.delete_records([TopicPartition(topic, 0, 30)])[place].result(DEADLINE_S)
        assert consumer.get_watermark_offsets(place, timeout=DEADLINE_S) == (30, 100)


def test_offsets_are_found_by_time(node: NodeProcess) -> None:
    topic = new_topic(node)
    start_ms = int(time.time() * 1000) - 100_000
    producer = new_producer(node)
    for number in range(100):
        producer.produce(topic, str(number), partition=0, timestamp=start_ms + number * 1_000)
    assert producer.flush(DEADLINE_S) == 0

    def offset_at(when_ms: int) -> int:
        asked = [TopicPartition(topic, 0, when_ms)]
        (found,) = consumer.offsets_for_times(asked, timeout=DEADLINE_S)
        return int(found.offset)

    with open_consumer(node, unique("reader")) as consumer:
        assert offset_at(0) == 0
        assert offset_at(start_ms + 50_000) == 50
        assert offset_at(start_ms + 50_001) == 51
        assert offset_at(start_ms + 99_001) == OFFSET_END


def test_ends_and_the_newest_message_are_listed(node: NodeProcess) -> None:
    topic = new_topic(node)
    now_ms = int(time.time() * 1000)
    producer = new_producer(node)
    for number, age_ms in enumerate((3_000, 1_000, 2_000)):
        producer.produce(topic, str(number), partition=0, timestamp=now_ms - age_ms)
    assert producer.flush(DEADLINE_S) == 0
    place = TopicPartition(topic, 0)

    def listed(spec: OffsetSpec) -> tuple[int, int]:
        result = admin.list_offsets({place: spec})[place].result(DEADLINE_S)
        return result.offset, result.timestamp

    admin = new_admin(node)
    assert listed(OffsetSpec.earliest())[0] == 0
    assert listed(OffsetSpec.latest())[0] == 3
    assert listed(OffsetSpec.max_timestamp()) == (1, now_ms - 1_000)
    assert listed(OffsetSpec.for_timestamp(now_ms - 1_500)) == (1, now_ms - 1_000)


def test_a_waiting_reader_gets_a_message_soon_after_it_is_published(node: NodeProcess) -> None:
    topic = new_topic(node)
    producer = new_producer(node, linger_ms=0)
    begin_s = time.monotonic()

    with open_consumer(node, unique("reader"), fetch_wait_max_ms=50_000) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        for _ in range(5):
            producer.produce(topic, b"x", partition=0)
            producer.poll(0)
            read(consumer, 1)

    # Not even one of the waits has lasted.
    assert time.monotonic() - begin_s < 50


def test_a_batch_above_every_limit_of_the_reader_is_read_all_the_same(node: NodeProcess) -> None:
    topic = new_topic(node)
    values: list[bytes | None] = [b"%d" % number * 20_000 for number in range(10)]
    publish(node, topic, values, linger_ms=100)

    limits = {"fetch_max_bytes": 1_000, "message_max_bytes": 1_000, "max_partition_fetch_bytes": 1}
    with open_consumer(node, unique("reader"), **limits) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in read(consumer, 10)] == values


def test_many_partitions_are_read_side_by_side(node: NodeProcess) -> None:
    topic = new_topic(node, 60)
    places = [TopicPartition(topic, partition, 0) for partition in range(60)]
    producer = new_producer(node)

    with open_consumer(node, unique("reader")) as consumer:
        consumer.assign(places)
        for round_number in range(3):
            for place in places:
                producer.produce(topic, str(round_number), partition=place.partition)
            assert producer.flush(DEADLINE_S) == 0

            messages = read(consumer, 60)

            assert {message.partition() for message in messages} == set(range(60))
            assert {message.value() for message in messages} == {b"%d" % round_number}


@pytest.mark.parametrize(("reset", "expected"), [("earliest", b"30"), ("latest", b"new")])
def test_a_position_that_is_gone_is_reset_as_the_reader_wishes(
    node: NodeProcess, reset: str, expected: bytes
) -> None:
    topic = new_topic(node)
    publish(node, topic, NUMBERS)
    gone = TopicPartition(topic, 0, 30)
    admin = new_admin(node)
    admin.delete_records([gone])[gone].result(DEADLINE_S)

    with open_consumer(
        node, unique("reader"), auto_offset_reset=reset, enable_partition_eof=True
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0, 5)])
        if reset == "latest":
            wait_for_end(consumer)
            publish(node, topic, [b"new"])

        assert read(consumer, 1)[0].value() == expected


def test_a_position_that_is_gone_is_an_error_for_readers_that_want_one(node: NodeProcess) -> None:
    topic = new_topic(node)
    publish(node, topic, NUMBERS)

    with open_consumer(node, unique("reader"), auto_offset_reset="error") as consumer:
        consumer.assign([TopicPartition(topic, 0, 500)])
        with pytest.raises(KafkaException) as refusal:
            read(consumer, 1)

    assert refusal.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


def wait_for_end(consumer: Consumer) -> None:
    """Wait until the reader says that it has come to the end of its partition."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.05)
        if message is not None and message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            return
    raise AssertionError("the end of the partition was not reached")
