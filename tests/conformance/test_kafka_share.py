"""Share groups (KIP-932) with librdkafka's share consumer."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kio.schema.alter_share_group_offsets.v0 import request as alter_in
from kio.schema.delete_groups.v2 import request as group_delete_in
from kio.schema.delete_share_group_offsets.v0 import request as delete_in
from kio.schema.describe_share_group_offsets.v1 import request as describe_in
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5 import request as list_in
from kio.schema.share_group_describe.v1 import request as group_describe_in
from kio.schema.share_group_heartbeat.v1 import request as beat_in
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from tests.kafka_clients import DEADLINE_S, new_admin, new_topic, publish, read_from, unique
from tests.kafka_wire import WireClient
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
    given = {"share.record.lock.duration.ms": "5000", "share.isolation.level": "read_committed"}
    group = new_group(node, **given)
    resource = ConfigResource(ResourceType.GROUP, group)

    admin = new_admin(node)
    (future,) = admin.describe_configs([resource]).values()
    settings = {name: entry.value for name, entry in future.result(DEADLINE_S).items()}

    assert {name: settings[name] for name in given} == given
    assert settings["share.auto.offset.reset"] == "earliest"


def ask_listed(node: NodeProcess, **filters: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Groups by name, each with its type and state."""
    with WireClient(node.kafka_port) as client:
        answer = client.ask(
            list_in.ListGroupsRequest(**{"states_filter": (), "types_filter": ()} | filters)
        )
    return {each.group_id: (each.group_type, each.group_state) for each in answer.groups}


def ask_positions(
    node: NodeProcess, group: str, topics: tuple[str, ...] | None = None
) -> tuple[ErrorCode, dict[str, list[tuple[int, int, ErrorCode]]]]:
    """Where a share group stands: start offset, lag and error of partition 0 of each topic."""
    wanted = topics and tuple(
        describe_in.DescribeShareGroupOffsetsRequestTopic(
            topic_name=TopicName(topic), partitions=(i32(0),)
        )
        for topic in topics
    )
    asked = describe_in.DescribeShareGroupOffsetsRequestGroup(
        group_id=GroupId(group), topics=wanted
    )
    with WireClient(node.kafka_port) as client:
        (answer,) = client.ask(describe_in.DescribeShareGroupOffsetsRequest(groups=(asked,))).groups
    return answer.error_code, {
        topic.topic_name: [
            (each.start_offset, each.lag, each.error_code) for each in topic.partitions
        ]
        for topic in answer.topics
    }


def move(node: NodeProcess, group: str, topic: str, offset: int) -> tuple[ErrorCode, ErrorCode]:
    """Set the position in partition 0; the errors of the request and of the partition."""
    partition = alter_in.AlterShareGroupOffsetsRequestPartition(
        partition_index=i32(0), start_offset=i64(offset)
    )
    wanted = alter_in.AlterShareGroupOffsetsRequestTopic(
        topic_name=TopicName(topic), partitions=(partition,)
    )
    with WireClient(node.kafka_port) as client:
        answer = client.ask(
            alter_in.AlterShareGroupOffsetsRequest(group_id=GroupId(group), topics=(wanted,))
        )
    codes = [each.error_code for topic in answer.responses for each in topic.partitions]
    return answer.error_code, codes[0] if codes else ErrorCode.none


def forget_offsets(node: NodeProcess, group: str, topic: str) -> tuple[ErrorCode, list[ErrorCode]]:
    wanted = delete_in.DeleteShareGroupOffsetsRequestTopic(topic_name=TopicName(topic))
    with WireClient(node.kafka_port) as client:
        answer = client.ask(
            delete_in.DeleteShareGroupOffsetsRequest(group_id=GroupId(group), topics=(wanted,))
        )
    return answer.error_code, [each.error_code for each in answer.responses]


def delete_group(node: NodeProcess, group: str) -> ErrorCode:
    with WireClient(node.kafka_port) as client:
        (result,) = client.ask(
            group_delete_in.DeleteGroupsRequest(groups_names=(GroupId(group),))
        ).results
    return ErrorCode(result.error_code)


def describe_group(node: NodeProcess, group: str) -> tuple[ErrorCode, str, int]:
    """Error, state and number of members of a share group."""
    with WireClient(node.kafka_port) as client:
        (found,) = client.ask(
            group_describe_in.ShareGroupDescribeRequest(
                group_ids=(GroupId(group),), include_authorized_operations=False
            )
        ).groups
    return found.error_code, found.group_state, len(found.members)


def test_share_groups_are_listed_and_described_with_members_and_without(node: NodeProcess) -> None:
    topic = new_topic(node)
    group = new_group(node)
    publish(node, topic, [b"one"])
    assert group not in ask_listed(node)

    with open_share_consumer(node, group, topic) as consumer:
        poll(consumer)
        assert ask_listed(node)[group] == ("share", "Stable")
        assert describe_group(node, group) == (ErrorCode.none, "Stable", 1)
        assert delete_group(node, group) is ErrorCode.non_empty_group
        assert move(node, group, topic, 0)[0] is ErrorCode.non_empty_group
        assert forget_offsets(node, group, topic)[0] is ErrorCode.non_empty_group

    assert ask_listed(node)[group] == ("share", "Empty")
    assert describe_group(node, group) == (ErrorCode.none, "Empty", 0)
    assert group in ask_listed(node, types_filter=("Share",), states_filter=("empty",))
    assert group not in ask_listed(node, types_filter=("consumer",))
    assert group not in ask_listed(node, states_filter=("Stable",))
    # As with Kafka, librdkafka's list of consumer groups leaves others out.
    admin = new_admin(node)
    listed = admin.list_consumer_groups().result(DEADLINE_S)
    assert listed.errors == []
    assert group not in {each.group_id for each in listed.valid}

    assert delete_group(node, group) is ErrorCode.none
    assert group not in ask_listed(node)
    assert describe_group(node, group)[:2] == (ErrorCode.group_id_not_found, "Dead")


def test_positions_of_a_share_group_are_shown_set_and_forgotten(node: NodeProcess) -> None:
    topic, other = new_topic(node), new_topic(node)
    group = new_group(node)
    publish(node, topic, [b"zero", b"one", b"two"])
    with open_share_consumer(node, group, topic) as consumer:
        seen = [each.value() for each in poll(consumer)]
        while len(seen) < 3:
            seen += [each.value() for each in poll(consumer)]
        consumer.commit_sync()

    assert ask_positions(node, group) == (ErrorCode.none, {topic: [(3, 0, ErrorCode.none)]})
    assert move(node, group, topic, 1) == (ErrorCode.none, ErrorCode.none)
    assert ask_positions(node, group, (topic, other, "nowhere")) == (
        ErrorCode.none,
        {
            topic: [(1, 2, ErrorCode.none)],
            other: [(-1, -1, ErrorCode.none)],
            "nowhere": [(-1, -1, ErrorCode.unknown_topic_or_partition)],
        },
    )
    assert move(node, group, topic, 4) == (ErrorCode.none, ErrorCode.offset_out_of_range)
    assert move(node, group, "nowhere", 0)[1] is ErrorCode.unknown_topic_or_partition

    with open_share_consumer(node, group, topic) as consumer:
        assert poll(consumer)[0].value() == b"one"
    assert forget_offsets(node, group, topic) == (ErrorCode.none, [ErrorCode.none])
    assert forget_offsets(node, group, topic) == (ErrorCode.none, [ErrorCode.none])
    assert ask_positions(node, group) == (ErrorCode.none, {})
    with open_share_consumer(node, group, topic) as consumer:
        assert poll(consumer)[0].value() == b"zero"


def test_a_share_group_without_positions_is_there_until_it_is_deleted(
    fresh_node: NodeProcess,
) -> None:
    topic, group = new_topic(fresh_node), new_group(fresh_node)
    publish(fresh_node, topic, [b"one"])
    with open_share_consumer(fresh_node, group, topic) as consumer:
        poll(consumer)

    assert forget_offsets(fresh_node, group, topic) == (ErrorCode.none, [ErrorCode.none])
    assert ask_listed(fresh_node)[group] == ("share", "Empty")
    admin = new_admin(fresh_node)
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    fresh_node.kill()
    fresh_node.start()
    assert ask_listed(fresh_node)[group] == ("share", "Empty")

    assert delete_group(fresh_node, group) is ErrorCode.none
    assert group not in ask_listed(fresh_node)


def test_offsets_of_a_share_group_that_does_not_exist_are_not_found(node: NodeProcess) -> None:
    topic = new_topic(node)
    group = unique("share")

    assert ask_positions(node, group)[0] is ErrorCode.group_id_not_found
    assert move(node, group, topic, 0)[0] is ErrorCode.group_id_not_found
    assert forget_offsets(node, group, topic)[0] is ErrorCode.group_id_not_found
    assert delete_group(node, group) is ErrorCode.group_id_not_found


def commit(node: NodeProcess, group: str, topic: str) -> KafkaError | None:
    """Commit the first offset of a topic for a consumer group without members."""
    admin = new_admin(node)
    place = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])
    try:
        (future,) = admin.alter_consumer_group_offsets([place]).values()
        (found,) = future.result(DEADLINE_S).topic_partitions
    except KafkaException as error:
        refused: KafkaError = error.args[0]
        return refused
    return found.error  # type: ignore[no-any-return]


def first_error(consumer: Consumer | ShareConsumer) -> KafkaError:
    """The error by which a consumer learns that it cannot be a member of its group."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            found = consumer.poll(1.0)
        except KafkaException as error:
            return error.args[0]  # type: ignore[no-any-return]
        for message in [found] if isinstance(found, Message) else found or ():
            if message.error() is not None:
                return message.error()  # type: ignore[no-any-return]
    raise AssertionError("nobody objected")


def test_a_share_group_and_a_consumer_group_cannot_have_one_name(node: NodeProcess) -> None:
    topic = new_topic(node)
    publish(node, topic, [b"one"])
    group, other = new_group(node), unique("consumers")
    with open_share_consumer(node, group, topic) as consumer:
        poll(consumer)
        consumer.commit_sync()
    assert commit(node, other, topic) is None
    settings = {"bootstrap.servers": node.bootstrap, "group.id": group}

    refused = commit(node, group, topic)
    errors = []
    for protocol in ("classic", "consumer"):
        member = Consumer({**settings, "group.protocol": protocol})
        member.subscribe([topic])
        errors.append(first_error(member).code())
        member.close()
    with WireClient(node.kafka_port) as client:
        beat = client.ask(
            beat_in.ShareGroupHeartbeatRequest(
                group_id=GroupId(other),
                member_id="m",
                member_epoch=i32(0),
                rack_id=None,
                subscribed_topic_names=(TopicName(topic),),
            )
        )

    assert refused is not None
    assert refused.code() == KafkaError.GROUP_ID_NOT_FOUND
    # librdkafka gives up when it is told that there is no such group.
    assert errors == [KafkaError.INCONSISTENT_GROUP_PROTOCOL, KafkaError._FATAL]
    assert beat.error_code is ErrorCode.group_id_not_found
    assert ask_positions(node, group) == (ErrorCode.none, {topic: [(1, 0, ErrorCode.none)]})
    assert delete_group(node, other) is ErrorCode.none
    assert ask_positions(node, group) == (ErrorCode.none, {topic: [(1, 0, ErrorCode.none)]})
