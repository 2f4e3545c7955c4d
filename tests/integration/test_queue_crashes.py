"""Queue groups under kill -9: nothing is lost, nothing acked comes back, dead letters exist once.

`PENSTOCK_TEST_CRASH_ROUNDS` sets the number of kills, `PENSTOCK_TEST_SEED` repeats a run's choices.
"""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.cluster_views import wait_for
from tests.integration.conftest import StartNode
from tests.kafka_clients import open_consumer, read, unique, wait_until
from tests.processes import ClusterProcess, NodeProcess
from tests.queue_diary import LEASE_MS, Caller, Consumers, publish_numbers

ROUNDS = int(os.environ.get("PENSTOCK_TEST_CRASH_ROUNDS", "3"))
SEED = int(os.environ.get("PENSTOCK_TEST_SEED", str(random.randrange(2**32))))
PARTITIONS = 3
_MESSAGES_PER_ROUND = 150
_QUIET_S = LEASE_MS / 1000 + 1

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900 + 20 * ROUNDS)]


def dead_letters(node: NodeProcess, topic: str) -> Counter[str]:
    """Count the dead letters of a topic by the message that each is a copy of."""
    found: Counter[str] = Counter()
    with open_consumer(node, unique("reader"), enable_auto_commit=False) as consumer:
        for partition in range(PARTITIONS):
            place = TopicPartition(f"{topic}.dlq", partition, 0)
            end = consumer.get_watermark_offsets(place, timeout=120)[1]
            consumer.assign([place])
            for message in read(consumer, end):
                found[dict(message.headers())["penstock-dlq-id"].decode()] += 1
    return found


def is_settled(node: NodeProcess, topic: str, group: str) -> bool:
    """Whether a group has come to the end of every partition."""
    status, body = node.get(f"/v1/topics/{topic}/groups/{group}")
    if status != 200:
        return False
    partitions = json.loads(body)["partitions"]
    return len(partitions) == PARTITIONS and not any(each["unsettled"] for each in partitions)


def create_topic(caller: Caller, topic: str, replicas: int) -> None:
    body = {"name": topic, "partitions": PARTITIONS, "replication_factor": replicas}
    wait_until(lambda: caller.post("/v1/topics", body), "the topic")


def run_crashes(
    nodes: list[NodeProcess], crash: Callable[[random.Random], None], replicas: int
) -> None:
    """Publish and consume while `crash` is called again and again, then check the diary."""
    print(f"seed {SEED}, {ROUNDS} rounds")
    choices = random.Random(SEED)

    def ports() -> list[int]:
        return [node.http_port for node in nodes if node.is_running]

    topic, group = unique("crashes"), "workers"
    caller = Caller(ports, SEED)
    create_topic(caller, topic, replicas)
    published: list[str] = []

    def publish() -> None:
        for start in range(0, ROUNDS * _MESSAGES_PER_ROUND, 50):
            published.extend(publish_numbers(caller, topic, range(start, start + 50)))
            time.sleep(0.1)

    with (
        ThreadPoolExecutor(1) as publisher,
        Consumers(topic, group, ports, count=4, seed=SEED) as consumers,
    ):
        publishing = publisher.submit(publish)
        for _ in range(ROUNDS):
            time.sleep(choices.uniform(0.3, 1.5))
            crash(choices)
        publishing.result()
        # On a slow machine leases end before their acks come, and messages come again and again.
        wait_for(lambda: is_settled(nodes[0], topic, group), "all is settled", deadline_s=600)
        # And nothing comes back once the last lease is over.
        consumers.wait_until_quiet(_QUIET_S, deadline_s=120)

    dead = dead_letters(nodes[0], topic)
    consumers.diary.check(published, dead, crashes=ROUNDS)
    diary = consumers.diary
    print(
        f"{len(published)} published, {len(diary.deliveries)} deliveries, {len(diary.acked)} acked,"
        f" {len(diary.doubtful)} doubtful, {len(dead)} dead, {len(diary.lost_receives)} receives"
        f" without an answer; acks were sent again because of {dict(diary.repeats)}"
    )
    assert dead


def test_one_node_that_is_killed_again_and_again_loses_nothing(start_node: StartNode) -> None:
    node = start_node()

    def crash(_: random.Random) -> None:
        node.kill()
        node.start()

    run_crashes([node], crash, replicas=1)


def test_in_a_cluster_acked_messages_never_come_back_when_leaders_die(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, 3) as cluster:

        def crash(choices: random.Random) -> None:
            node = cluster[choices.choice((1, 2, 3))]
            node.kill()
            time.sleep(choices.uniform(0.5, 2.0))
            node.start()

        run_crashes(list(cluster.nodes.values()), crash, replicas=3)
