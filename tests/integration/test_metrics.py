"""Every metric of a node moves when that happens of which it speaks."""

import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from confluent_kafka import KafkaException, TopicPartition

from penstock.client import Client, LeasedMessage
from tests.http_calls import call, http_topic, receive
from tests.integration.clients import (
    add_partitions,
    alter_topic,
    ask,
    create_topic,
    delete_topic,
    metrics,
    publish,
    read_values,
    wait_until,
)
from tests.integration.conftest import StartNode
from tests.kafka_clients import new_producer
from tests.processes import NodeProcess
from tests.sqs_clients import new_sqs

PARTITION = '{partition="0",topic="orders"}'


def send_garbage(node: NodeProcess) -> None:
    with socket.create_connection(("127.0.0.1", node.kafka_port), timeout=120) as connection:
        connection.sendall(b"\x7f\xff\xff\xff not Kafka")
        assert connection.recv(1) == b""


def publish_batch(node: NodeProcess, topic: str, *values: bytes) -> None:
    producer = new_producer(node, **{"linger.ms": 60_000})
    # One that learns of the topic while it is told to hurry sends the values one by one.
    producer.list_topics(topic)
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(120) == 0


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
        lambda: publish_batch(node, "orders", b"a", b"b", b"c"),
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


def wait_until_in_flight(node: NodeProcess) -> None:
    name = "penstock_queue_group_in_flight"
    wait_until(
        lambda: any(value for each, value in metrics(node).items() if each.startswith(name)),
        "a message is in flight",
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
    # A lease counts when it is committed, a moment after its message is there.
    changes = check(lambda: (receive(lease_s=0.2), receive(), wait_until_in_flight(node)))
    assert changes["penstock_messages_expired_total"] == 1
    changes = check(
        lambda: (client.publish("later", "soon", delay_s=2), receive_from(client, "later"))
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


def counted(node: NodeProcess, door: str, action: Callable[[], object]) -> dict[str, float]:
    """Return what an action adds to a door's requests and errors, by operation and by error."""
    changes = moved(node, action)
    return {
        name.rsplit('="', 1)[1].removesuffix('"}'): change
        for name, change in changes.items()
        if f'{{door="{door}",' in name and 'operation="metrics"' not in name
    }


KAFKA_REFUSALS: dict[str, tuple[str, Callable[[NodeProcess], object]]] = {
    "CreateTopics": ("TopicExists", lambda node: create_topic(node, "orders")),
    "CreatePartitions": ("InvalidPartitionCount", lambda node: add_partitions(node, "orders", 1)),
    "IncrementalAlterConfigs": (
        "InvalidSetting",
        lambda node: alter_topic(node, "orders", retention_ms="soon"),
    ),
    "DeleteRecords": (
        "OffsetOutOfRange",
        lambda node: ask(
            node, lambda client: client.delete_records([TopicPartition("orders", 0, 99)])
        ),
    ),
    "DeleteTopics": ("TopicNotFound", lambda node: delete_topic(node, "nothing")),
    "DeleteGroups": (
        "GroupNotFound",
        lambda node: ask(node, lambda client: client.delete_consumer_groups(["nobody"])),
    ),
}


def test_every_refusal_of_the_kafka_door_is_counted_by_its_kind(start_node: StartNode) -> None:
    node = start_node()
    create_topic(node, "orders")

    for operation, (error, action) in KAFKA_REFUSALS.items():

        def be_refused(action: Callable[[NodeProcess], object] = action) -> None:
            with pytest.raises(KafkaException):
                action(node)

        changes = counted(node, "kafka", be_refused)
        assert (changes.get(operation), changes.get(error)) == (1, 1), (operation, changes)


def test_requests_of_the_http_door_are_counted_by_endpoint(start_node: StartNode) -> None:
    node = start_node()
    path = http_topic(node)

    def publish(**options: Any) -> httpx.Response:
        return httpx.post(f"{node.http_url}{path}/publish", timeout=120, **options)

    short = counted(node, "http", lambda: publish(content=b'{"value": "a"}'))
    long = counted(node, "http", lambda: publish(content=iter([b'{"value": "b"}'])))
    looks = counted(node, "http", lambda: call(node, "GET", path))
    task = counted(node, "http", lambda: call(node, "POST", "/tasks", type="mail", payload=1))
    page = counted(node, "http", lambda: call(node, "GET", "/docs"))

    assert short == long == {"publish": 1}
    assert looks == {"topic": 1}
    assert task == {"enqueue-task": 1}
    assert page == {"docs": 1}


def test_every_refusal_of_the_http_door_is_counted_by_its_kind(start_node: StartNode) -> None:
    node = start_node()
    path = http_topic(node)
    name = path.rsplit("/", 1)[1]

    def refused(method: str, path: str, **body: Any) -> dict[str, float]:
        return counted(node, "http", lambda: call(node, method, path, **body))

    receive(node, f"{path}/groups/workers", wait=0)
    assert refused("POST", "/v1/topics", name=name) == {"create-topic": 1, "TopicExists": 1}
    assert refused("POST", f"{path}/publish", nothing=1) == {"publish": 1, "InvalidRequest": 1}
    assert refused("GET", "/v1/topics/nothing") == {"topic": 1, "TopicNotFound": 1}
    # A part of a request that fails alone.
    acked = refused("POST", f"{path}/groups/workers/ack", receipts=["wrong"])
    assert acked == {"ack": 1, "InvalidReceipt": 1}
    # Paths are made up by callers, so that none of them may become a series.
    assert refused("GET", "/v1/made-up") == {"NotFound": 1}
    assert refused("PUT", "/health") == {"MethodNotAllowed": 1}


def test_requests_and_refusals_of_the_sqs_door_are_counted(start_node: StartNode) -> None:
    node = start_node()
    sqs = new_sqs(node, retries=0)
    url = sqs.create_queue(QueueName="jobs")["QueueUrl"]

    def be_refused() -> None:
        with pytest.raises(ClientError):
            sqs.get_queue_url(QueueName="nothing")

    def delete_batch() -> None:
        entries = [{"Id": "1", "ReceiptHandle": "wrong"}]
        assert sqs.delete_message_batch(QueueUrl=url, Entries=entries)["Failed"]

    def make_up_an_action() -> None:
        headers = {"X-Amz-Target": "AmazonSQS.MadeUp"}
        assert httpx.post(node.http_url, headers=headers, json={}).status_code == 400

    sent = counted(node, "sqs", lambda: sqs.send_message(QueueUrl=url, MessageBody="a"))
    assert sent == {"SendMessage": 1}
    assert counted(node, "sqs", be_refused) == {"GetQueueUrl": 1, "QueueDoesNotExist": 1}
    assert counted(node, "sqs", delete_batch) == {"DeleteMessageBatch": 1, "InvalidReceipt": 1}
    assert counted(node, "sqs", make_up_an_action) == {"InvalidAction": 1}
    # What the door of a guest has counted is not counted twice.
    assert counted(node, "http", be_refused) == {}
