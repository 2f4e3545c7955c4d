"""Scheduled messages of real processes that are killed: each comes once, and none early.

`PENSTOCK_TEST_CRASH_ROUNDS` sets the number of kills, `PENSTOCK_TEST_SEED` repeats a run's choices.
"""

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clients import WAIT_S, consumer, create_topic, metrics, producer, wait_until
from tests.integration.conftest import StartNode
from tests.processes import ClusterProcess, NodeProcess

ROUNDS = int(os.environ.get("PENSTOCK_TEST_CRASH_ROUNDS", "8"))
SEED = int(os.environ.get("PENSTOCK_TEST_SEED", str(random.randrange(2**32))))
TOPIC = "later"
IN_FLIGHT_MAX = 200
DELAY_MS_MAX = 1_500

pytestmark = pytest.mark.crash


class Scheduler:
    """A producer that schedules numbered messages, and which of them were acknowledged."""

    def __init__(self, sender: Producer, choices: random.Random) -> None:
        self._sender = sender
        self._choices = choices
        self._count = 0
        self.acknowledged: set[int] = set()
        self.failures: list[KafkaError] = []

    def run(self, stop: threading.Event) -> None:
        """Schedule until told to stop, then wait for what is out."""
        while not stop.is_set():
            if len(self._sender) < IN_FLIGHT_MAX:
                self._schedule()
            self._sender.poll(0.001)
        assert self._sender.flush(WAIT_S) == 0

    def _schedule(self) -> None:
        number = self._count
        self._count += 1

        def note(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self.failures.append(error)
            else:
                self.acknowledged.add(number)

        # Some at once, so that batches are mixed.
        due_ms = int(time.time() * 1000) + max(0, self._choices.randrange(-300, DELAY_MS_MAX))
        self._sender.produce(
            TOPIC,
            f"{number} {due_ms}".encode(),
            partition=0,
            headers=[("penstock-deliver-at", str(due_ms).encode())],
            on_delivery=note,
        )


def new_scheduler(node: NodeProcess, *, is_idempotent: bool) -> Scheduler:
    settings = {
        "enable.idempotence": is_idempotent,
        "message.timeout.ms": 120_000,
        "reconnect.backoff.max.ms": 100,
        "retry.backoff.ms": 20,
        "linger.ms": 3,
    }
    return Scheduler(producer(node, **settings), random.Random(SEED))


def check_released(node: NodeProcess, scheduler: Scheduler, *, is_idempotent: bool) -> None:
    """Read everything and compare it with what was acknowledged."""
    counts: Counter[int] = Counter()
    reader = consumer(node)
    _, end = reader.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=WAIT_S)
    reader.assign([TopicPartition(TOPIC, 0, 0)])
    deadline = time.monotonic() + WAIT_S
    while sum(counts.values()) < end and time.monotonic() < deadline:
        for message in reader.consume(1000, timeout=0.5):
            number, due_ms = map(int, (message.value() or b"").split())
            counts[number] += 1
            assert message.timestamp()[1] >= due_ms or b"-s" not in _id_of(message)
        if reader.position([TopicPartition(TOPIC, 0)])[0].offset >= end:
            break
    reader.close()
    assert scheduler.failures == []
    assert scheduler.acknowledged <= set(counts), scheduler.acknowledged - set(counts)
    if is_idempotent:
        assert [number for number, count in counts.items() if count > 1] == []


def _id_of(message: Message) -> bytes:
    return dict(message.headers() or []).get("penstock-id", b"")


def wait_all_released(node: NodeProcess) -> None:
    label = f'penstock_partition_scheduled{{partition="0",topic="{TOPIC}"}}'
    wait_until(lambda: metrics(node).get(label) == 0, "all messages are released")


@pytest.mark.timeout(900 + 10 * ROUNDS)
@pytest.mark.parametrize("is_idempotent", [True, False])
def test_scheduled_messages_come_once_although_the_node_is_killed(
    start_node: StartNode, *, is_idempotent: bool
) -> None:
    print(f"seed {SEED}, {ROUNDS} rounds")
    choices = random.Random(SEED)
    node = start_node("--segment-bytes", "256KiB", "--checkpoint-interval-ms", "50")
    create_topic(node, TOPIC)
    scheduler = new_scheduler(node, is_idempotent=is_idempotent)
    stop = threading.Event()
    thread = threading.Thread(target=scheduler.run, args=(stop,))
    thread.start()
    try:
        for _ in range(ROUNDS):
            before = len(scheduler.acknowledged)
            wait_until(lambda n=before: len(scheduler.acknowledged) > n + 20, "acknowledgements")
            time.sleep(choices.random() * 0.5)
            node.kill()
            node.start()
    finally:
        stop.set()
        thread.join()

    wait_all_released(node)
    check_released(node, scheduler, is_idempotent=is_idempotent)


def test_scheduled_messages_survive_their_leader(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, 3) as cluster:
        node = cluster[1]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(WAIT_S)
        scheduler = new_scheduler(node, is_idempotent=True)
        stop = threading.Event()
        thread = threading.Thread(target=scheduler.run, args=(stop,))
        thread.start()
        try:
            for _ in range(3):
                before = len(scheduler.acknowledged)
                wait_until(lambda n=before: len(scheduler.acknowledged) > n + 50, "progress")
                leader = wait_until(lambda: _leader(cluster), "a leader")
                cluster[leader].kill()
                before = len(scheduler.acknowledged)
                wait_until(lambda n=before: len(scheduler.acknowledged) > n + 50, "a new leader")
                cluster.start()
        finally:
            stop.set()
            thread.join()

        wait_all_released(cluster[wait_until(lambda: _leader(cluster), "a leader")])
        check_released(node, scheduler, is_idempotent=True)


def _leader(cluster: ClusterProcess) -> int | None:
    """The node that tells how many messages wait: only the leader does."""
    label = f'penstock_partition_scheduled{{partition="0",topic="{TOPIC}"}}'
    return next((n for n in cluster.running if label in metrics(cluster[n])), None)
