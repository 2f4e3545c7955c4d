"""Queue groups in a cluster: every node answers for every partition."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster_views import leader_of
from tests.kafka_clients import unique, wait_until
from tests.processes import ClusterProcess
from tests.queue_diary import Caller, Json

pytestmark = pytest.mark.crash

NODES = (1, 2, 3)
GROUP = "workers"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with ClusterProcess(tmp_path_factory.mktemp("queues"), 3) as cluster:
        yield cluster


def call(cluster: ClusterProcess, node: int, path: str, body: Json) -> Any:
    """Call one node until it answers: it may not have heard of a new topic yet."""
    caller = Caller(lambda: [cluster[node].http_port], seed=node)
    answers: list[Any] = []
    wait_until(lambda: answers.append(caller.post(path, body)) or answers[-1], path)
    return answers[-1]


def new_topic(cluster: ClusterProcess, **settings: str) -> str:
    topic = unique("queue")
    body = {"name": topic, "partitions": 1, "replication_factor": 3, "settings": settings}
    call(cluster, 1, "/v1/topics", body)
    return topic


def publish(cluster: ClusterProcess, node: int, topic: str, *values: str) -> None:
    body = {"messages": [{"value": value} for value in values]}
    answer = call(cluster, node, f"/v1/topics/{topic}/messages", body)
    assert answer["failed"] == 0, answer


def receive(cluster: ClusterProcess, node: int, topic: str, **body: Any) -> list[Json]:
    answer = call(cluster, node, f"/v1/topics/{topic}/groups/{GROUP}/receive", body)
    messages: list[Json] = answer["messages"]
    return messages


def settle(
    cluster: ClusterProcess, node: int, topic: str, verb: str, receipts: list[Any], **body: Any
) -> Json:
    path = f"/v1/topics/{topic}/groups/{GROUP}/{verb}"
    answer: Json = call(cluster, node, path, {"receipts": receipts, **body})
    return answer


def test_every_node_carries_out_every_verb(cluster: ClusterProcess) -> None:
    topic = new_topic(cluster)
    for node in NODES:
        publish(cluster, node, topic, f"ack {node}", f"nack {node}", f"reject {node}")
        messages = receive(cluster, node, topic, max=10, wait="10s")
        by_verb = {message["value"].split()[0]: message["receipt"] for message in messages}
        assert len(by_verb) == 3

        for verb in ("extend", "ack", "nack", "reject"):
            receipt = by_verb["ack" if verb == "extend" else verb]
            options = {"lease": "60s"} if verb == "extend" else {}
            if verb == "nack":
                options = {"delay": "0s"}
            answer = settle(cluster, node, topic, verb, [receipt], **options)
            assert answer == {"accepted": 1, "failed": []}, (node, verb)
        (again,) = receive(cluster, node, topic, max=10, wait="10s")
        assert (again["value"], again["attempt"]) == (f"nack {node}", 2)
        refused = settle(cluster, node, topic, "ack", [by_verb["nack"]])
        assert refused["failed"][0]["error"]["type"] == "LeaseExpired"
        settle(cluster, node, topic, "ack", [again["receipt"]])


def test_an_ack_is_answered_by_the_next_leader_when_the_first_one_hangs(
    cluster: ClusterProcess,
) -> None:
    topic = new_topic(cluster)
    publish(cluster, 1, topic, "first", "second")
    messages = receive(cluster, 1, topic, max=10, wait="10s", lease="120s")
    receipts = [message["receipt"] for message in messages]
    # The answer comes after everything before it is committed, the leases among it.
    assert settle(cluster, 1, topic, "extend", receipts, lease="120s")["failed"] == []
    leader = leader_of(cluster, topic)
    other = next(node for node in NODES if node != leader)

    cluster[leader].suspend()
    try:
        answer = settle(cluster, other, topic, "ack", receipts)
    finally:
        cluster[leader].resume()

    assert answer == {"accepted": 2, "failed": []}
    assert receive(cluster, other, topic, max=10) == []


def test_who_waits_at_any_node_is_answered_when_a_message_arrives(cluster: ClusterProcess) -> None:
    topic = new_topic(cluster)
    leader = leader_of(cluster, topic)
    for node in NODES:
        found: list[tuple[str, float]] = []

        def wait(at: int = node, into: list[tuple[str, float]] = found) -> None:
            (message,) = receive(cluster, at, topic, max=1, wait="20s")
            into.append((message["value"], time.monotonic()))
            settle(cluster, at, topic, "ack", [message["receipt"]])

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(1.5)
        publish(cluster, leader, topic, f"for {node}")
        published_s = time.monotonic()
        waiting.join()

        ((value, came_s),) = found
        print(
            f"node {node}, leader {leader}: answered {1000 * (came_s - published_s):.1f} ms after"
        )
        assert value == f"for {node}"
