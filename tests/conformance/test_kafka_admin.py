"""Administration with librdkafka's admin client: topics, settings, records, groups."""

import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kio.schema.errors import ErrorCode
from kio.schema.offset_delete.v0.request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from tests.kafka_clients import (
    DEADLINE_S,
    new_admin,
    new_topic,
    open_consumer,
    publish,
    read,
    unique,
    wait_until,
)
from tests.kafka_members import Member
from tests.kafka_wire import WireClient
from tests.processes import NodeProcess


@pytest.fixture(scope="module")
def admin(node: NodeProcess) -> AdminClient:
    return new_admin(node)


def done(futures: dict[Any, Future[Any]]) -> Any:
    """Return the result of the only future."""
    (future,) = futures.values()
    return future.result(DEADLINE_S)


def refusal(ask: Callable[[], dict[Any, Future[Any]]]) -> KafkaError:
    """Return the error with which a call is refused."""
    with pytest.raises(KafkaException) as caught:
        done(ask())
    error: KafkaError = caught.value.args[0]
    return error


def settings_of(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    """Return all settings of a topic."""
    found: dict[str, ConfigEntry] = done(admin.describe_configs([topic_resource(topic)]))
    return found


def replace_settings(admin: AdminClient, resource: ConfigResource) -> dict[Any, Future[Any]]:
    """Send the older request, which librdkafka warns about and other clients still use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        futures: dict[Any, Future[Any]] = admin.alter_configs([resource])
        return futures


def topic_resource(topic: str, **settings: str) -> ConfigResource:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    return ConfigResource(ResourceType.TOPIC, topic, set_config=config)


# Topics.


def test_a_topic_lives_from_its_creation_to_its_deletion(admin: AdminClient) -> None:
    name = unique("topic")

    done(admin.create_topics([NewTopic(name, 3, 1, config={"retention.ms": "60000"})]))
    listed = admin.list_topics(timeout=DEADLINE_S).topics[name]
    assert sorted(listed.partitions) == [0, 1, 2]
    assert settings_of(admin, name)["retention.ms"].value == "60000"

    done(admin.create_partitions([NewPartitions(name, 5)]))
    described = done(admin.describe_topics(TopicCollection([name])))
    assert [partition.id for partition in described.partitions] == [0, 1, 2, 3, 4]
    assert {partition.leader.id for partition in described.partitions} == {1}

    done(admin.delete_topics([name]))
    assert name not in admin.list_topics(timeout=DEADLINE_S).topics
    error = refusal(lambda: admin.describe_topics(TopicCollection([name])))
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_that_is_created_anew_is_empty_and_has_another_id(
    node: NodeProcess, admin: AdminClient
) -> None:
    name = new_topic(node)
    publish(node, name, [b"old"] * 3)
    before = done(admin.describe_topics(TopicCollection([name])))

    done(admin.delete_topics([name]))
    done(admin.create_topics([NewTopic(name, 1, 1)]))

    after = done(admin.describe_topics(TopicCollection([name])))
    assert str(after.topic_id) != str(before.topic_id)
    with open_consumer(node, unique("reader")) as consumer:
        place = TopicPartition(name, 0)
        assert consumer.get_watermark_offsets(place, timeout=DEADLINE_S) == (0, 0)


def test_a_dry_run_changes_nothing(admin: AdminClient) -> None:
    name = unique("topic")

    done(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))

    assert name not in admin.list_topics(timeout=DEADLINE_S).topics


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (NewTopic("with space", 1, 1), KafkaError.TOPIC_EXCEPTION, ["with space"]),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION, ["249", "250"]),
        (NewTopic("many", 10_001, 1), KafkaError.INVALID_PARTITIONS, ["10000", "10001"]),
        (NewTopic("wide", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR, ["3", "1 node"]),
        (
            NewTopic("odd", 1, 1, config={"retention.ms": "soon"}),
            KafkaError.INVALID_CONFIG,
            ["retention.ms", "soon"],
        ),
        (
            NewTopic("small", 1, 1, config={"segment.bytes": "-4"}),
            KafkaError.INVALID_CONFIG,
            ["segment.bytes", "-4", "2147483647"],
        ),
        (
            NewTopic("typo", 1, 1, config={"retention.msec": "1"}),
            KafkaError.INVALID_CONFIG,
            ["retention.msec"],
        ),
        (
            NewTopic("lossy", 1, 1, config={"unclean.leader.election.enable": "true"}),
            KafkaError.INVALID_CONFIG,
            ["unclean.leader.election.enable=true", "a majority has elected"],
        ),
    ],
    ids=["name", "length", "partitions", "replicas", "value", "limit", "setting", "decided"],
)
def test_a_topic_that_cannot_be_is_refused_with_the_value_and_its_limit(
    admin: AdminClient, topic: NewTopic, code: int, words: list[str]
) -> None:
    error = refusal(lambda: admin.create_topics([topic]))

    assert error.code() == code
    for word in words:
        assert word in error.str()


def test_a_topic_may_be_told_what_is_done_anyway(admin: AdminClient) -> None:
    name = unique("topic")
    given = {
        "unclean.leader.election.enable": "false",
        "leader.replication.throttled.replicas": "",
        "follower.replication.throttled.replicas": "",
        "remote.storage.enable": "false",
        "local.retention.ms": "-2",
        "compression.zstd.level": "5",
    }

    done(admin.create_topics([NewTopic(name, 1, 1, config=given)]))

    settings = settings_of(admin, name)
    assert {setting: settings[setting].value for setting in given} == given


def test_a_topic_cannot_exist_twice_or_lose_partitions(
    node: NodeProcess, admin: AdminClient
) -> None:
    name = new_topic(node, 3)

    error = refusal(lambda: admin.create_topics([NewTopic(name, 1, 1)]))
    assert error.code() == KafkaError.TOPIC_ALREADY_EXISTS

    error = refusal(lambda: admin.create_partitions([NewPartitions(name, 2)]))
    assert error.code() == KafkaError.INVALID_PARTITIONS
    assert "2" in error.str()
    assert "3" in error.str()


# Settings.


def test_settings_are_changed_one_by_one(node: NodeProcess, admin: AdminClient) -> None:
    name = new_topic(node, retention_ms="60000")
    resource = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
            ),
        ],
    )

    done(admin.incremental_alter_configs([resource]))
    changed = settings_of(admin, name)
    assert changed["max.message.bytes"].value == "5000"
    assert changed["cleanup.policy"].value == "delete,compact"
    assert changed["retention.ms"].value == "60000"
    assert not changed["retention.ms"].is_default

    resource = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry(
                "cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SUBTRACT
            ),
        ],
    )
    done(admin.incremental_alter_configs([resource]))
    changed = settings_of(admin, name)
    assert changed["retention.ms"].is_default
    assert changed["cleanup.policy"].value == "compact"


def test_settings_are_replaced_as_a_whole(node: NodeProcess, admin: AdminClient) -> None:
    name = new_topic(node, retention_ms="60000")

    done(replace_settings(admin, topic_resource(name, max_message_bytes="5000")))

    changed = settings_of(admin, name)
    assert changed["max.message.bytes"].value == "5000"
    assert changed["retention.ms"].is_default


def test_a_wrong_setting_is_refused_and_changes_nothing(
    node: NodeProcess, admin: AdminClient
) -> None:
    name = new_topic(node, retention_ms="60000")
    wrong = topic_resource(name, max_message_bytes="-7")

    error = refusal(lambda: replace_settings(admin, wrong))

    assert error.code() == KafkaError.INVALID_CONFIG
    assert "max.message.bytes" in error.str()
    assert "-7" in error.str()
    assert settings_of(admin, name)["retention.ms"].value == "60000"


def test_options_of_the_node_are_shown_and_not_changed(admin: AdminClient) -> None:
    broker = ConfigResource(ResourceType.BROKER, "1")

    options = done(admin.describe_configs([broker]))

    assert options["durability"].value == "sync"
    assert all(option.is_read_only for option in options.values())
    broker.set_config("durability", "os")
    error = refusal(lambda: replace_settings(admin, broker))
    assert error.code() == KafkaError.INVALID_REQUEST


def test_nothing_is_taken_away_from_the_options_of_a_node(admin: AdminClient) -> None:
    resource = ConfigResource(
        ResourceType.BROKER,
        "1",
        incremental_configs=[
            ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
            for name in ("leader.replication.throttled.rate", "durability")
        ],
    )

    done(admin.incremental_alter_configs([resource]))

    options = done(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert options["durability"].value == "sync"


# Records and the cluster.


def test_records_are_deleted_up_to_an_offset(node: NodeProcess, admin: AdminClient) -> None:
    name = new_topic(node)
    publish(node, name, [b"%d" % number for number in range(10)])

    deleted = done(admin.delete_records([TopicPartition(name, 0, 4)]))
    assert deleted.low_watermark == 4
    with open_consumer(node, unique("reader")) as consumer:
        consumer.assign([TopicPartition(name, 0, 0)])
        assert read(consumer, 1)[0].value() == b"4"

    error = refusal(lambda: admin.delete_records([TopicPartition(name, 0, 11)]))
    assert error.code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_the_cluster_describes_itself(node: NodeProcess, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(DEADLINE_S)

    (only,) = cluster.nodes
    assert (only.id, only.host, only.port) == (1, "127.0.0.1", node.kafka_port)
    assert cluster.controller.id == 1
    assert cluster.cluster_id == admin.list_topics(timeout=DEADLINE_S).cluster_id


# Groups.


def grouped(node: NodeProcess, topic: str, protocol: str) -> str:
    """Make a group that has read five messages and is empty now."""
    group = unique("group")
    with open_consumer(node, group, group_protocol=protocol) as consumer:
        consumer.subscribe([topic])
        consumer.commit(read(consumer, 5)[-1], asynchronous=False)
    return group


@pytest.fixture(scope="module")
def topic(node: NodeProcess) -> str:
    """A topic with ten messages."""
    name = new_topic(node)
    publish(node, name, [b"%d" % number for number in range(10)])
    return name


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_listed_by_state_and_type(
    node: NodeProcess, admin: AdminClient, topic: str, protocol: str
) -> None:
    group = grouped(node, topic, protocol)
    kind = {"classic": ConsumerGroupType.CLASSIC, "consumer": ConsumerGroupType.CONSUMER}[protocol]

    def listed(**filters: Any) -> dict[str, Any]:
        found = admin.list_consumer_groups(**filters).result(DEADLINE_S)
        assert found.errors == []
        return {each.group_id: each for each in found.valid}

    wait_until(
        lambda: listed()[group].state is ConsumerGroupState.EMPTY, "the group has no members"
    )
    assert listed()[group].type is kind
    assert group in listed(states={ConsumerGroupState.EMPTY}, types={kind})
    assert group not in listed(states={ConsumerGroupState.STABLE})
    other = {ConsumerGroupType.CLASSIC, ConsumerGroupType.CONSUMER} - {kind}
    assert group not in listed(types=other)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_described_with_its_members(
    node: NodeProcess, admin: AdminClient, topic: str, protocol: str
) -> None:
    group = unique("group")
    with Member(node, group, [topic], group_protocol=protocol, client_id="described") as member:
        wait_until(lambda: member.readings, "the member reads")
        wait_until(
            lambda: (
                done(admin.describe_consumer_groups([group])).state is ConsumerGroupState.STABLE
            ),
            "the group is stable",
        )

        described = done(
            admin.describe_consumer_groups([group], include_authorized_operations=True)
        )

        (only,) = described.members
        assert (only.client_id, only.host) == ("described", "127.0.0.1")
        assert only.assignment.topic_partitions == [TopicPartition(topic, 0)]
        assert described.coordinator.port == node.kafka_port
        assert described.authorized_operations


def test_a_group_that_does_not_exist_is_dead(admin: AdminClient) -> None:
    described = done(admin.describe_consumer_groups([unique("group")]))

    assert described.state is ConsumerGroupState.DEAD


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_deleted_when_it_is_empty_and_not_before(
    node: NodeProcess, admin: AdminClient, topic: str, protocol: str
) -> None:
    group = unique("group")
    with Member(node, group, [topic], group_protocol=protocol) as member:
        wait_until(lambda: member.readings, "the member reads")
        error = refusal(lambda: admin.delete_consumer_groups([group]))
        assert error.code() == KafkaError.NON_EMPTY_GROUP

    done(admin.delete_consumer_groups([group]))

    error = refusal(lambda: admin.delete_consumer_groups([group]))
    assert error.code() == KafkaError.GROUP_ID_NOT_FOUND
    assert offsets_of(admin, group, topic) == [-1001]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_of_an_empty_group_are_listed_and_altered(
    node: NodeProcess, admin: AdminClient, topic: str, protocol: str
) -> None:
    group = grouped(node, topic, protocol)
    assert offsets_of(admin, group, topic) == [5]

    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    done(admin.alter_consumer_group_offsets([moved]))

    assert offsets_of(admin, group, topic) == [2]
    everything = done(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert [(each.topic, each.offset) for each in everything.topic_partitions] == [(topic, 2)]


def test_offsets_of_a_group_with_members_are_not_altered(
    node: NodeProcess, admin: AdminClient, topic: str
) -> None:
    group = unique("group")
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    for protocol in ("classic", "consumer"):
        with Member(node, group, [topic], group_protocol=protocol) as member:
            wait_until(lambda member=member: member.partitions, "the member owns the partition")
            (result,) = done(admin.alter_consumer_group_offsets([moved])).topic_partitions
            assert result.error.code() == KafkaError.UNKNOWN_MEMBER_ID


def test_offsets_are_stored_for_known_partitions_only(
    node: NodeProcess, admin: AdminClient, topic: str
) -> None:
    group = unique("group")
    wanted = [
        TopicPartition(topic, 0, 3),
        TopicPartition(topic, 7, 3),
        TopicPartition("none", 0, 3),
    ]

    result = done(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]))

    codes = {
        (each.topic, each.partition): each.error and each.error.code()
        for each in result.topic_partitions
    }
    assert codes == {
        (topic, 0): None,
        (topic, 7): KafkaError.UNKNOWN_TOPIC_OR_PART,
        ("none", 0): KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    assert offsets_of(admin, group, topic) == [3]


def test_offsets_are_deleted_unless_the_group_reads_the_topic(
    node: NodeProcess, admin: AdminClient, topic: str
) -> None:
    group = grouped(node, topic, "consumer")
    partition = OffsetDeleteRequestPartition(partition_index=i32(0))
    wanted = OffsetDeleteRequestTopic(name=TopicName(topic), partitions=(partition,))
    request = OffsetDeleteRequest(group_id=GroupId(group), topics=(wanted,))

    with WireClient(node.kafka_port) as client:
        with Member(node, group, [topic], group_protocol="consumer") as member:
            wait_until(lambda: member.partitions, "the member owns the partition")
            (answer,) = client.ask(request).topics
            assert answer.partitions[0].error_code is ErrorCode.group_subscribed_to_topic

        assert client.ask(request).error_code is ErrorCode.none

    assert offsets_of(admin, group, topic) == [-1001]


def offsets_of(admin: AdminClient, group: str, topic: str) -> list[int]:
    """Return the committed position of the topic's first partition; -1001 stands for none."""
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    found = done(admin.list_consumer_group_offsets([asked]))
    return [each.offset for each in found.topic_partitions]
