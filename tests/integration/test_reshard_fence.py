"""A fenced topic through every door, and the switch of a topic in a cluster that loses nodes."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from confluent_kafka import KafkaError, Message

from penstock.client import Client, StagedWriter, StageName, TopicFence
from penstock.errors import TopicFenced, Unavailable
from penstock.ids import TopicPartition
from penstock.record import Record, encode_batch
from tests.integration.conftest import StartNode
from tests.kafka_clients import new_producer, open_consumer, unique, wait_until
from tests.processes import ClusterProcess
from tests.sqs_clients import new_sqs

# Enough for a retry, and short of waiting for the end of the fence.
BRIEF_S = 0.2
PATIENCE_S = 60.0
RECORDS = 30


def fence(client: Client, topic: str, partitions: int = 3) -> tuple[str, TopicFence]:
    """Begin a reshard of a topic with an empty copy, and turn writes away."""
    reshard_id = str(uuid.uuid4())
    client.create_topic(f"{topic}.copy", partitions=partitions)
    client.reshards.begin(topic, reshard_id, target=f"{topic}.copy")
    return reshard_id, client.reshards.fence(topic, reshard_id)


def test_every_door_turns_writes_away_until_the_fence_is_lifted(start_node: StartNode) -> None:
    node = start_node()
    sqs = new_sqs(node)
    topic = unique("queue")
    queue = sqs.create_queue(QueueName=topic)["QueueUrl"]
    with Client(node.http_url, retry_s=BRIEF_S) as client:
        client.tasks.enqueue("mail", {})
        client.publish(topic, b"bad")
        (bad,) = client.receive(topic, "workers")
        client.reject(bad, reason="on purpose")
        wait_until(lambda: client.dead_letters.search(topic), "a dead letter")
        places = TopicPartition(topic, 0)
        batch = bytes(encode_batch([Record(0, 1, b"k", b"staged", ())]))
        writer = StagedWriter(node.http_url, retry_s=BRIEF_S)
        name = StageName(home=topic, writer="w", epoch=0, run="r", stage="s")

        ways: dict[str, Callable[[], object]] = {
            "publish": lambda: client.publish(topic, b"a"),
            "schedule": lambda: client.publish(topic, b"b", delay_s=60),
            "task": lambda: client.tasks.enqueue("mail", {}),
            "stage": lambda: writer.stage(name, places, 0, batch),
        }
        _, raised = fence(client, topic)
        _, of_tasks = fence(client, "tasks.mail")

        for way, write in ways.items():
            with pytest.raises(TopicFenced):
                pytest.fail(f"{way}: {write()}")
        redriven = client.dead_letters.redrive(topic)
        assert (redriven.moved, redriven.failed) == (0, 1)
        with pytest.raises(ClientError, match="takes no writes"):
            sqs.send_message(QueueUrl=queue, MessageBody="c")
        failures: list[KafkaError | None] = []
        impatient = new_producer(node, message_timeout_ms=1_000)
        patient = new_producer(node, enable_idempotence=True)
        for producer in (impatient, patient):
            producer.produce(topic, b"d", on_delivery=lambda error, _: failures.append(error))
        assert impatient.flush(PATIENCE_S) == 0
        assert len(failures) == 1
        assert failures[0] is not None

        client.reshards.lift(topic, raised.fence)
        client.reshards.lift("tasks.mail", of_tasks.fence)
        for write in ways.values():
            write()
        assert client.dead_letters.redrive(topic).moved == 1
        sqs.send_message(QueueUrl=queue, MessageBody="c")
        assert patient.flush(PATIENCE_S) == 0
        assert failures[1:] == [None]


@pytest.mark.crash
@pytest.mark.timeout(240)
def test_a_cluster_switches_a_topic_although_nodes_die_behind_the_fence(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, 3) as cluster:
        urls = [node.http_url for node in cluster.nodes.values()]
        with Client(urls, retry_s=PATIENCE_S) as client:
            client.create_topic("orders", partitions=2, replication_factor=3)
            client.create_topic("orders.copy", partitions=3, replication_factor=3)
            for topic in ("orders", "orders.copy"):
                for number in range(RECORDS):
                    client.publish(topic, b"%d" % number, key=b"%d" % number)
            consumer_of(cluster, "billing", "orders", RECORDS)
            reshard_id = str(uuid.uuid4())
            client.reshards.begin("orders", reshard_id, target="orders.copy")
            raised = client.reshards.fence("orders", reshard_id)
            assert sum(each.end for each in raised.partitions) == RECORDS

            first = leader_of(client, "orders")
            cluster[first].kill()
            left = [cluster[node].http_url for node in cluster.running]
            # Whoever leads now has the fence in the log, whatever it knows of the metadata.
            wait_until(lambda: is_refused(left, "orders"), "another node leads and refuses")
            again = client.reshards.fence("orders", reshard_id)
            assert again == raised
            client.reshards.switch(
                "orders",
                reshard_id,
                fence=again.fence,
                former_name="orders.before",
                positions={"billing": (1, 2, 3)},
            )
            for number in range(RECORDS, 2 * RECORDS):
                client.publish("orders", b"%d" % number, key=b"%d" % number)
            cluster[first].start()
            read = consumer_of(cluster, "billing", "orders", 2 * RECORDS - 6)

            assert {*range(RECORDS, 2 * RECORDS)} <= set(read)
            for node in cluster.nodes.values():
                with Client(node.http_url) as each:
                    assert [topic.name for topic in each.topics()] == ["orders", "orders.before"]
                    assert each.reshards.get("orders.before").phase == "switched"
                    assert len(each.topic("orders").partitions) == 3


def is_refused(urls: list[str], topic: str) -> bool:
    """True when a publish is turned away because of the fence, and not for want of a leader."""
    with Client(urls, retry_s=BRIEF_S) as client:
        try:
            client.publish(topic, b"lost", key=b"0")
        except TopicFenced:
            return True
        except Unavailable:
            return False
    raise AssertionError("a fenced topic took a message")


def leader_of(client: Client, topic: str) -> int:
    return int(client.topic(topic).partitions[0].leader or 0)


def consumer_of(cluster: ClusterProcess, group: str, topic: str, count: int) -> list[int]:
    """Read as a member of a group until so many records came, and commit."""
    found: list[int] = []

    def poll() -> bool:
        message: Message | None = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(int(message.value() or b""))
        return len(found) >= count

    with open_consumer(cluster[2], group, bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.subscribe([topic])
        wait_until(poll, f"{count} records of {topic}")
        consumer.commit(asynchronous=False)
    return found
