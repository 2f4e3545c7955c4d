"""What the commands of the metadata do, once and when they come again."""

import uuid
from typing import Any

import pytest

from penstock.cluster import ClusterMetadata
from penstock.cluster.commands import (
    AddPartitions,
    ChangeReplicas,
    Command,
    CreateTopic,
    DeleteTopic,
    RegisterNode,
    RemoveNode,
    SettleReplicas,
    encode_command,
)
from penstock.cluster.described import Node, Replicas
from penstock.errors import InvalidPartitionCount, TopicExists, TopicNotFound, Unavailable
from penstock.ids import EntryIndex
from penstock.log import StateEntry

ONE, TWO, THREE, FOUR = (1, 10), (2, 20), (3, 30), (4, 40)


def applied(metadata: ClusterMetadata, command: Command) -> Any:
    return metadata.apply_state(StateEntry(1, 1, 0, encode_command(command)))


def with_topic(*members: tuple[int, int]) -> tuple[ClusterMetadata, uuid.UUID]:
    metadata, topic_id = ClusterMetadata(), uuid.uuid4()
    applied(metadata, CreateTopic("orders", topic_id, [members], {}))
    return metadata, topic_id


def replicas_of(metadata: ClusterMetadata) -> Replicas:
    return metadata.topic("orders").replicas[0]


def test_the_first_members_of_a_new_group_found_it() -> None:
    metadata, _ = with_topic(ONE, TWO, THREE)

    assert replicas_of(metadata).founders == replicas_of(metadata).members == (ONE, TWO, THREE)


def test_a_node_that_was_removed_comes_back_by_a_start_alone() -> None:
    metadata, _ = with_topic(ONE)
    node = Node(4, 44, "four", 9191, "four", 9092, 8080)
    applied(metadata, RegisterNode(node))
    applied(metadata, RemoveNode(4))

    applied(metadata, RegisterNode(node, is_repeated=True))
    assert 4 not in metadata.nodes

    applied(metadata, RegisterNode(node))
    assert metadata.nodes[4] == node


def test_the_first_members_found_a_group_also_while_it_is_being_moved() -> None:
    metadata, _ = with_topic(ONE, TWO, THREE)
    group = replicas_of(metadata).group

    applied(metadata, ChangeReplicas(group, (TWO, THREE, FOUR)))
    assert replicas_of(metadata).founders == (ONE, TWO, THREE)

    applied(metadata, SettleReplicas(group, (TWO, THREE, FOUR)))
    assert replicas_of(metadata).founders == ()


def test_a_member_that_left_and_came_back_does_not_found_the_group_again() -> None:
    metadata, _ = with_topic(ONE, TWO, THREE)
    group = replicas_of(metadata).group

    for members in ((ONE, TWO, FOUR), (ONE, TWO, THREE)):
        applied(metadata, ChangeReplicas(group, members))
        applied(metadata, SettleReplicas(group, members))

    assert replicas_of(metadata).members == (ONE, TWO, THREE)
    assert replicas_of(metadata).founders == ()


def test_a_command_that_is_sent_again_is_carried_out_once() -> None:
    metadata, topic_id = with_topic(ONE)

    again = applied(metadata, CreateTopic("orders", topic_id, [(TWO,)], {}))
    assert again.replicas == (replicas_of(metadata),)
    with pytest.raises(TopicExists):
        applied(metadata, CreateTopic("orders", uuid.uuid4(), [(TWO,)], {}))

    applied(metadata, DeleteTopic(topic_id))
    applied(metadata, DeleteTopic(topic_id))
    assert metadata.was_deleted(topic_id)
    with pytest.raises(TopicNotFound):
        applied(metadata, DeleteTopic(uuid.uuid4()))


def test_a_topic_that_was_deleted_is_not_created_again_by_a_late_repetition() -> None:
    metadata, topic_id = with_topic(ONE)
    applied(metadata, DeleteTopic(topic_id))

    with pytest.raises(TopicNotFound):
        applied(metadata, CreateTopic("orders", topic_id, [(ONE,)], {}))

    assert metadata.topics == {}
    assert applied(metadata, CreateTopic("orders", uuid.uuid4(), [(ONE,)], {})).name == "orders"


def test_a_snapshot_holds_everything_and_groups_are_never_numbered_twice() -> None:
    metadata, topic_id = with_topic(ONE, TWO)
    group = replicas_of(metadata).group
    applied(metadata, DeleteTopic(topic_id))

    again = ClusterMetadata()
    again.restore(metadata.snapshot(), EntryIndex(5))

    assert again.snapshot() == metadata.snapshot()
    assert again.was_deleted(topic_id)
    applied(again, CreateTopic("orders", uuid.uuid4(), [(ONE,)], {}))
    assert replicas_of(again).group == group + 1


def test_a_request_to_grow_that_is_sent_again_adds_nothing_and_gets_the_same_answer() -> None:
    metadata, topic_id = with_topic(ONE)
    command = AddPartitions(topic_id, 3, [(ONE,), (TWO,)], uuid.uuid4())

    grown = applied(metadata, command)

    assert applied(metadata, command) == grown == metadata.topic("orders")
    assert grown.partitions == 3
    with pytest.raises(InvalidPartitionCount, match="3 was asked for"):
        applied(metadata, AddPartitions(topic_id, 3, [(ONE,), (TWO,)], uuid.uuid4()))


def test_a_node_that_is_still_learning_does_not_say_that_a_topic_is_missing() -> None:
    metadata = ClusterMetadata()
    metadata.is_current = False

    with pytest.raises(Unavailable):
        metadata.topic("orders")
    metadata.is_current = True
    with pytest.raises(TopicNotFound):
        metadata.topic("orders")


def test_a_node_that_is_cut_off_does_not_say_that_a_topic_is_missing() -> None:
    metadata = ClusterMetadata()
    metadata.is_outdated = lambda: True

    with pytest.raises(Unavailable, match="cut off"):
        metadata.topic("orders")
