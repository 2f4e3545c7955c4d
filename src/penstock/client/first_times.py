"""When the first records were written that a group has yet to read."""

from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.connection import Connection
from penstock.client.consumer import NO_GROUP
from penstock.client.translation import PARTITION_END
from penstock.clock import Clock
from penstock.ids import TopicPartition

# One record of each partition is wanted, and librdkafka would take all it can get.
FETCH_BYTES = 64 * 1024


def first_times_ms(
    connection: Connection, offsets: Mapping[TopicPartition, int], *, wait_s: float, clock: Clock
) -> dict[TopicPartition, int | None]:
    """Return the time of the first record at or after an offset; None where there is no record.

    Partitions that do not answer within `wait_s` are left out.
    """
    if not offsets:
        return {}
    consumer = KafkaConsumer(
        connection.settings(
            group_id=NO_GROUP,
            enable_auto_commit=False,
            enable_partition_eof=True,
            # Retention may have removed what the group would read next.
            auto_offset_reset="earliest",
            isolation_level="read_uncommitted",
            max_partition_fetch_bytes=FETCH_BYTES,
            queued_min_messages=1,
        )
    )
    found: dict[TopicPartition, int | None] = {}
    try:
        consumer.assign([KafkaPartition(*each, offset) for each, offset in offsets.items()])
        for message in _polled(consumer, clock, wait_s):
            partition = TopicPartition(message.topic(), message.partition())
            if _is_answer(message) and partition not in found:
                found[partition] = _time_ms(message)
                consumer.pause([KafkaPartition(*partition)])
            if found.keys() == offsets.keys():
                break
    finally:
        consumer.close()
    return found


def _polled(consumer: KafkaConsumer, clock: Clock, wait_s: float) -> Iterator[Any]:
    deadline_s = clock.steady_s() + wait_s
    while (left_s := deadline_s - clock.steady_s()) > 0:
        message = consumer.poll(left_s)
        if message is not None:
            yield message


def _is_answer(message: Any) -> bool:
    error = message.error()
    if error is not None:
        return bool(error.code() == PARTITION_END)
    return bool(message.timestamp()[0] != TIMESTAMP_NOT_AVAILABLE)


def _time_ms(message: Any) -> int | None:
    return None if message.error() is not None else message.timestamp()[1]
