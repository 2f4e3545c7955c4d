"""Every metric of a node moves when that happens of which it speaks."""

import socket
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition

from penstock.client import Client, LeasedMessage
from tests.integration.clients import (
    ask,
    create_topic,
    delete_topic,
    metrics,
    publish,
    read_values,
    wait_until,
)
from tests.integration.conftest import StartNode
from tests.processes import NodeProcess

PARTITION = '{partition="0",topic="orders"}'


def send_garbage(node: NodeProcess) -> None:
    with socket.create_connection(("127.0.0.1", node.kafka_port), timeout=120) as connection:
        connection.sendall(b"\x7f\xff\xff\xff not Kafka")
        assert connection.recv(1) == b""


def publish_too_much(node: NodeProcess) -> None:
    with pytest.raises(AssertionError):
        publish(
            node, "orders", [b"x" * 500], **{"message.max.bytes": 1_000_000, "retries": 0}
        )  # fmt: skip


def moved(node: NodeProcess, action: Callable[[], object]) -> dict[str, float]:
    """Return by how much each metric of ours has changed through an action."""
    before = metrics(node)
    action()
    after = metrics(node)
    return {
        name: value - before.get(name, 0.0)
        for name, value in after.items()
        if name.startswith("penstock_") and value != before.get(name, 0.0)
    } | {name: -value for name, value in before.items() if name not in after}


def test_metrics_follow_what_happens(start_node: StartNode) -> None:
    node = start_node("--connections-max", "20")
    seen: set[str] = set()

    def check(action: Callable[[], object], **expected: float) -> dict[str, float]:
        changes = moved(node, action)
        for name, change in expected.items():
            assert changes.get(f"penstock_{name}") == change, (name, changes)
        seen.update(name.split("{")[0] for name in changes)
        return changes

    changes = check(
        lambda: create_topic(node, "orders", max_message_bytes="400"), topics=1, partitions=1
    )
    assert changes['penstock_requests_total{door="kafka",operation="CreateTopics"}'] == 1
    changes = check(
        lambda: publish(node, "orders", [b"a", b"b", b"c"], **{"linger.ms": 500}),
        batches_in_total=1,
        records_in_total=3,
    )
    size = changes["penstock_bytes_in_total"]
    assert size > 0
    assert changes["penstock_partition_high_watermark" + PARTITION] == 3
    assert changes["penstock_partition_size_bytes" + PARTITION] > size
    changes = check(lambda: read_values(node, "orders"), bytes_out_total=size)
    assert changes["penstock_fetches_total"] >= 1
    changes = check(
        lambda: ask(node, lambda client: client.delete_records([TopicPartition("orders", 0, 2)]))
    )
    assert changes["penstock_partition_start_offset" + PARTITION] == 2
    changes = check(lambda: publish_too_much(node))
    assert changes['penstock_errors_total{door="kafka",error="BatchTooLarge"}'] == 1
    check(lambda: send_garbage(node), frames_malformed_total=1)
    check(lambda: too_many_connections(node), connections_refused_total=5)
    check(lambda: delete_topic(node, "orders"), topics=-1, partitions=-1)
    with Client(node.http_url) as client:
        check_deliveries(node, client, check)
    with socket.create_connection(("127.0.0.1", node.kafka_port)):
        wait_until(lambda: metrics(node)["penstock_connections"] == 1, "a connection is counted")
    wait_until(lambda: metrics(node)["penstock_connections"] == 0, "its end is counted")

    # These have tests of their own: a failed partition, a full disk.
    elsewhere = {
        "penstock_connections",
        "penstock_partitions_failed",
        "penstock_disk_free_bytes",
        "penstock_disk_is_low",
    }
    documented = {name.split("{")[0] for name in metrics(node) if name.startswith("penstock_")}
    assert documented - {name for name in documented if name.endswith("_created")} <= (
        seen | elsewhere
    )


def check_deliveries(
    node: NodeProcess, client: Client, check: Callable[..., dict[str, float]]
) -> None:
    """Let messages be acked, nacked, rejected, let one expire, and one be released in time."""

    def receive(lease_s: float = 30.0) -> LeasedMessage:
        (message,) = client.receive("jobs", "workers", count_max=1, wait_s=20, lease_s=lease_s)
        return message

    for value in ("done", "failed", "wrong"):
        client.publish("jobs", value)
    check(lambda: client.ack(receive()), messages_received_total=1, messages_acked_total=1)
    check(lambda: client.nack(receive(), delay_s=60), messages_nacked_total=1)
    changes = check(lambda: (client.reject(receive()), dead_letter(node)))
    assert changes["penstock_messages_rejected_total"] == 1
    assert changes["penstock_messages_dead_lettered_total"] == 1
    client.publish("jobs", "slow")
    changes = check(lambda: (receive(lease_s=0.2), receive()))
    assert changes["penstock_messages_expired_total"] == 1
    changes = check(
        lambda: (client.publish("later", "soon", delay_s=0.2), receive_from(client, "later"))
    )
    assert changes["penstock_scheduled_released_total"] == 1


def dead_letter(node: NodeProcess) -> None:
    name = "penstock_messages_dead_lettered_total"
    wait_until(lambda: metrics(node).get(name), "the rejected message is dead")


def receive_from(client: Client, topic: str) -> None:
    wait_until(lambda: client.receive(topic, "workers", wait_s=5), "it is released")


def too_many_connections(node: NodeProcess) -> None:
    """Open five more than are allowed."""
    wait_until(lambda: metrics(node)["penstock_connections"] == 0, "earlier clients are gone")
    opened = [socket.create_connection(("127.0.0.1", node.kafka_port)) for _ in range(25)]
    wait_until(lambda: metrics(node)["penstock_connections_refused_total"] >= 5, "some are refused")
    for each in opened:
        each.close()
    wait_until(lambda: metrics(node)["penstock_connections"] == 0, "all are gone")
