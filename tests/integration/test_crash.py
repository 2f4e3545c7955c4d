"""kill -9 under load: what was acknowledged is there, once, in order, where it was said to be.

`PENSTOCK_TEST_CRASH_ROUNDS` sets the number of kills, `PENSTOCK_TEST_SEED` repeats a run's choices.
"""

import os
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import NewTopic

from tests.integration.clients import (
    admin,
    create_topic,
    delete_topic,
    metrics,
    producer,
    publish,
    read,
    topics,
    verify,
    watermarks,
)
from tests.integration.conftest import StartNode
from tests.processes import NodeProcess

ROUNDS = int(os.environ.get("PENSTOCK_TEST_CRASH_ROUNDS", "12"))
SEED = int(os.environ.get("PENSTOCK_TEST_SEED", str(random.randrange(2**32))))
TOPIC = "orders"
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "none")
# How many messages a producer has out at a time, so that a slow machine ends in time as well.
IN_FLIGHT_MAX = 500

pytestmark = pytest.mark.crash


@dataclass
class Publisher:
    """One producer that publishes numbered messages, and what it was told about them."""

    name: str
    sender: Producer
    partition: int
    is_idempotent: bool
    next_number: int = 0
    acknowledged: dict[int, int] = field(default_factory=dict)
    failures: list[KafkaError] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        """Publish until told to stop, then wait for what is out."""
        while not stop.is_set():
            if len(self.sender) < IN_FLIGHT_MAX:
                self._publish()
            self.sender.poll(0.001)
        left = self.sender.flush(60)
        if left:
            self.problems.append(f"{left} messages of {self.name} were never answered")

    def _publish(self) -> None:
        number = self.next_number
        self.next_number += 1

        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(error)
            else:
                self.acknowledged[number] = message.offset() or 0

        value = f"{self.name} {number} {'x' * (number % 200)}"
        self.sender.produce(
            TOPIC, value.encode(), self.name, partition=self.partition, on_delivery=note
        )


def new_publishers(node: NodeProcess) -> list[Publisher]:
    publishers = []
    for number, codec in enumerate(CODECS):
        is_idempotent = number % 2 == 0
        settings = {
            "enable.idempotence": is_idempotent,
            "compression.type": codec,
            "linger.ms": number,
            "message.timeout.ms": 120_000,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            # Without sequence numbers only one request at a time keeps the order over retries.
            "max.in.flight": 5 if is_idempotent else 1,
        }
        name = f"p{number}-{codec}"
        sender = producer(node, **settings)
        publishers.append(Publisher(name, sender, number % PARTITIONS, is_idempotent))
    return publishers


def kill_under_load(
    node: NodeProcess, publishers: list[Publisher], choices: random.Random
) -> list[list[int]]:
    """Kill and restart the node again and again; return the watermarks seen after each start."""
    seen = []
    for _ in range(ROUNDS):
        before = [len(each.acknowledged) for each in publishers]
        deadline = time.monotonic() + 30
        # Every round acknowledges something, and then ends at any moment.
        while sum(len(each.acknowledged) for each in publishers) < sum(before) + 20:
            assert time.monotonic() < deadline, "nothing was acknowledged after a restart"
            time.sleep(0.005)
        time.sleep(choices.random() * 0.25)
        node.kill()
        node.start()
        seen.append(high_watermarks(node))
    return seen


def high_watermarks(node: NodeProcess) -> list[int]:
    found = metrics(node)
    labels = [f'{{partition="{number}",topic="{TOPIC}"}}' for number in range(PARTITIONS)]
    return [int(found[f"penstock_partition_high_watermark{each}"]) for each in labels]


@pytest.mark.timeout(900 + 10 * ROUNDS)
def test_nothing_acknowledged_is_lost_when_the_node_is_killed_under_load(
    start_node: StartNode,
) -> None:
    print(f"seed {SEED}, {ROUNDS} rounds")
    node = start_node("--segment-bytes", "256KiB", "--checkpoint-interval-ms", "50")
    create_topic(node, TOPIC, PARTITIONS)
    publishers = new_publishers(node)
    stop = threading.Event()
    threads = [threading.Thread(target=each.run, args=(stop,)) for each in publishers]
    for thread in threads:
        thread.start()
    try:
        seen = kill_under_load(node, publishers, random.Random(SEED))
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    for publisher in publishers:
        assert publisher.problems == []
        assert publisher.failures == [], publisher.failures[0]
        assert len(publisher.acknowledged) == publisher.next_number > 0
    for before, after in pairwise(seen):
        assert all(low <= high for low, high in zip(before, after, strict=True)), seen
    for number in range(PARTITIONS):
        stored = read(node, TOPIC, number)
        check_partition(stored, [each for each in publishers if each.partition == number])
    node.kill()
    result = verify(node)
    assert result.returncode == 0, result.stdout + result.stderr


def check_partition(stored: list[Message], publishers: list[Publisher]) -> None:
    """Compare what a reader finds with what the producers were told."""
    assert [message.offset() for message in stored] == list(range(len(stored)))
    offsets: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for message in stored:
        name, number, padding = (message.value() or b"").decode().split(" ")
        assert len(padding) == int(number) % 200
        offsets[name][int(number)].append(message.offset() or 0)
    for publisher in publishers:
        found = offsets[publisher.name]
        for number, offset in publisher.acknowledged.items():
            assert offset in found[number], (publisher.name, number, offset, found[number])
        firsts = [found[number][0] for number in sorted(found)]
        assert firsts == sorted(firsts), f"{publisher.name} is out of order"
        if publisher.is_idempotent:
            repeated = {number: each for number, each in found.items() if len(each) > 1}
            assert repeated == {}, f"{publisher.name} has duplicates"


def test_producer_ids_are_never_given_twice(start_node: StartNode) -> None:
    node = start_node()
    create_topic(node, TOPIC)
    for _ in range(2):
        publish(node, TOPIC, [b"v"], **{"enable.idempotence": True})
        node.kill()
        node.start()

    first, second = producer_ids(node)
    assert first != second


def producer_ids(node: NodeProcess) -> list[int]:
    """Return the producer id of every stored batch, from the bytes themselves."""
    data = (node.data_dir / "topics" / TOPIC / "0" / f"{1:020}.log").read_bytes()
    found, position = [], 0
    while position < len(data):
        found.append(int.from_bytes(data[position + 43 : position + 51], "big"))
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found


def test_a_kill_while_topics_are_made_and_deleted_leaves_whole_topics(
    start_node: StartNode,
) -> None:
    print(f"seed {SEED}")
    choices = random.Random(SEED)
    node = start_node("--auto-create-topics", "false")
    create_topic(node, "kept", 2)
    for _ in range(2):
        stop = threading.Event()
        thread = threading.Thread(target=_make_and_delete, args=(node, stop))
        thread.start()
        time.sleep(0.2 + choices.random() * 0.3)
        node.kill()
        stop.set()
        thread.join()
        node.start()

        if "churned" in topics(node):
            delete_topic(node, "churned")
        create_topic(node, "churned", 2)
        assert node.get("/ready")[0] == 200, node.get("/ready")[1]
        assert [watermarks(node, "churned", number) for number in range(2)] == [(0, 0), (0, 0)]
        delete_topic(node, "churned")
    node.kill()
    result = verify(node)
    assert result.returncode == 0, result.stdout + result.stderr


def _make_and_delete(node: NodeProcess, stop: threading.Event) -> None:
    """Create, fill and delete one topic again and again, until the node is gone."""
    client = admin(node)
    sender = producer(node, **{"message.timeout.ms": 2000})
    while not stop.is_set():
        topic = NewTopic("churned", num_partitions=2, replication_factor=1)
        try:
            client.create_topics([topic], request_timeout=2)["churned"].result(3)
            sender.produce("churned", b"v", partition=0)
            sender.flush(0.2)
            client.delete_topics(["churned"], request_timeout=2)["churned"].result(3)
        except (KafkaException, TimeoutError):
            time.sleep(0.01)
