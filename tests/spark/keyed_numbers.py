"""Topics of numbers under few keys, which tell whether a job keeps each record and their order."""

from collections import defaultdict

from confluent_kafka import TopicPartition as KafkaPartition

from penstock.spark import read_range
from tests.kafka_clients import new_producer, open_consumer, unique
from tests.processes import NodeProcess

KEYS = 7

Held = dict[int, list[tuple[bytes | None, int]]]


def publish_numbers(node: NodeProcess, topic: str, numbers: range) -> None:
    """Publish numbers under few keys, and some without a key."""
    producer = new_producer(node)
    for number in numbers:
        value = b"%d" % number
        producer.produce(topic, value, key_of(number), headers=[("number", value)])
    assert producer.flush(60) == 0


def key_of(number: int) -> bytes | None:
    """Return the key that a number is published under."""
    return None if number % 10 == 9 else b"key-%d" % (number % KEYS)


def held(node: NodeProcess, topic: str, partitions: int) -> Held:
    """Return key and number of the records of each partition, in order."""
    found: Held = {}
    with open_consumer(node, unique("look")) as consumer:
        for partition in range(partitions):
            end = consumer.get_watermark_offsets(KafkaPartition(topic, partition), timeout=120)[1]
            batches = read_range(
                node.bootstrap, topic, partition, 0, end, columns=["key", "value", "headers"]
            )
            found[partition] = [
                (row["key"], int(row["value"])) for batch in batches for row in batch.to_pylist()
            ]
    return found


def check_each_once(found: Held, numbers: range) -> None:
    """Fail unless each number is there once, and those of a key in one partition and in order."""
    by_key = defaultdict(list)
    places = defaultdict(set)
    for partition, records in found.items():
        for key, number in records:
            by_key[key].append(number)
            places[key].add(partition)
    by_key[None].sort()
    expected = defaultdict(list)
    for number in numbers:
        expected[key_of(number)].append(number)
    assert by_key == expected
    assert all(len(places[key]) == 1 for key in places if key is not None)
