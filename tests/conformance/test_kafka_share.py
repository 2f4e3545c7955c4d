"""Share groups (KIP-932) with librdkafka's share consumer."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import AcknowledgeType, Message, ShareConsumer
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.kafka_clients import DEADLINE_S, new_admin, new_topic, publish, read_from, unique
from tests.processes import NodeProcess


def new_group(node: NodeProcess, **settings: str) -> str:
    """A group that reads from the beginning; its settings are given as Kafka's tools do."""
    group = unique("share")
    settings = {"share.auto.offset.reset": "earliest", **settings}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = new_admin(node)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(DEADLINE_S)
    return group


@contextmanager
def open_share_consumer(
    node: NodeProcess, group: str, topic: str, mode: str = "implicit"
) -> Iterator[ShareConsumer]:
    consumer = ShareConsumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": mode,
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def poll(consumer: ShareConsumer) -> list[Message]:
    """The next messages, however many come together."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        messages = [each for each in consumer.poll(1.0) if each.error() is None]
        if messages:
            return messages
    raise AssertionError("nothing came")


def test_members_share_the_messages_of_one_partition(node: NodeProcess) -> None:
    topic = new_topic(node)
    group = new_group(node)
    values = [f"{number}".encode() for number in range(200)]
    publish(node, topic, values)

    seen: list[bytes | None] = []
    with (
        open_share_consumer(node, group, topic) as first,
        open_share_consumer(node, group, topic) as second,
    ):
        deadline = time.monotonic() + DEADLINE_S
        while len(seen) < len(values) and time.monotonic() < deadline:
            for consumer in (first, second):
                seen += [each.value() for each in consumer.poll(0.5) if each.error() is None]
        first.commit_sync()
        second.commit_sync()

    assert sorted(seen, key=str) == sorted(values, key=str)
    assert len(read_from(node, topic, len(values))) == len(values)


def test_a_released_message_comes_back_and_a_rejected_one_goes_to_the_dead_letters(
    node: NodeProcess,
) -> None:
    topic = new_topic(node)
    group = new_group(node)
    publish(node, topic, [b"good", b"again", b"bad"])
    answers = {
        b"good": AcknowledgeType.ACCEPT,
        b"again": AcknowledgeType.RELEASE,
        b"bad": AcknowledgeType.REJECT,
    }

    with open_share_consumer(node, group, topic, "explicit") as consumer:
        answered: set[bytes] = set()
        while answered != set(answers):
            for message in poll(consumer):
                value = message.value() or b""
                consumer.acknowledge(message, answers[value])
                answered.add(value)
            consumer.commit_sync()
        (back,) = poll(consumer)
        consumer.acknowledge(back, AcknowledgeType.ACCEPT)
        results = consumer.commit_sync()

    assert back.value() == b"again"
    assert set(results.values()) == {None}
    (dead,) = read_from(node, f"{topic}.dlq", 1)
    assert dead.value() == b"bad"


def test_what_a_member_holds_goes_to_another_when_it_leaves(node: NodeProcess) -> None:
    topic = new_topic(node)
    group = new_group(node)
    publish(node, topic, [b"held"])

    with open_share_consumer(node, group, topic, "explicit") as leaver:
        assert [each.value() for each in poll(leaver)] == [b"held"]
    with open_share_consumer(node, group, topic) as other:
        assert [each.value() for each in poll(other)] == [b"held"]


def test_a_group_begins_at_the_end_unless_it_was_told_otherwise(node: NodeProcess) -> None:
    topic = new_topic(node)
    publish(node, topic, [b"before"])

    with open_share_consumer(node, unique("share"), topic) as consumer:
        assert list(consumer.poll(3.0)) == []
        publish(node, topic, [b"after"])
        assert [each.value() for each in poll(consumer)] == [b"after"]


def test_settings_of_a_group_can_be_described_and_are_checked(node: NodeProcess) -> None:
    group = new_group(node, **{"share.record.lock.duration.ms": "5000"})
    resource = ConfigResource(ResourceType.GROUP, group)

    admin = new_admin(node)
    (future,) = admin.describe_configs([resource]).values()
    settings = {name: entry.value for name, entry in future.result(DEADLINE_S).items()}

    assert settings["share.record.lock.duration.ms"] == "5000"
    assert settings["share.auto.offset.reset"] == "earliest"
