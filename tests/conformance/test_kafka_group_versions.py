"""The group APIs in every version: the same outcome, with errors where the version has them."""

import datetime as dt
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as FindOneRequest
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest as FindSeveralRequest
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.leave_group.v2.request import LeaveGroupRequest as LeaveAloneRequest
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.offset_commit.v9 import request as named_commit
from kio.schema.offset_commit.v10 import request as commit_by_id
from kio.schema.offset_fetch.v7 import request as fetch_one
from kio.schema.offset_fetch.v9 import request as fetch_several
from kio.schema.offset_fetch.v10 import request as fetch_by_id
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from penstock.protocols.kafka.codec import carry_over
from tests.kafka_clients import new_topic, unique
from tests.kafka_wire import WireClient
from tests.processes import NodeProcess

TIMEOUT = i32Timedelta.parse(dt.timedelta(seconds=10))


@pytest.fixture(scope="module")
def topic(node: NodeProcess) -> str:
    return new_topic(node, 2)


@pytest.fixture
def client(node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(node.kafka_port) as connected:
        yield connected


def in_version(request: Any, version: int) -> Any:
    """Return a request in the classes of an older version, which has fewer fields."""
    return carry_over(request, load_request_schema(int(request.__api_key__), version))


def topic_id(client: WireClient, topic: str) -> uuid.UUID:
    """Return the id of a topic."""
    asked = MetadataRequestTopic(name=TopicName(topic), topic_id=None)
    request = MetadataRequest(topics=(asked,), include_topic_authorized_operations=False)
    found: uuid.UUID = client.ask(request).topics[0].topic_id
    return found


# Coordinators.


@pytest.mark.parametrize("version", range(4))
def test_the_coordinator_of_one_group_is_found(
    node: NodeProcess, client: WireClient, version: int
) -> None:
    found = client.ask(in_version(FindOneRequest(key="group"), version))

    assert (found.error_code, found.port) == (ErrorCode.none, node.kafka_port)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_coordinators_of_several_groups_are_found(
    node: NodeProcess, client: WireClient, version: int
) -> None:
    request = FindSeveralRequest(coordinator_keys=("a", "b"))

    found = client.ask(in_version(request, version)).coordinators

    assert [(each.key, each.port) for each in found] == [
        ("a", node.kafka_port),
        ("b", node.kafka_port),
    ]


def test_a_transactional_producer_is_told_that_there_are_no_transactions(
    client: WireClient,
) -> None:
    found = client.ask(FindOneRequest(key="transaction", key_type=i8(1)))

    assert found.error_code is ErrorCode.cluster_authorization_failed
    assert "not supported" in found.error_message


# Members of classic groups.


def joined(client: WireClient, group: str, version: int) -> Any:
    """Join, a second time where the version wants that, and return the answer."""
    request = JoinGroupRequest(
        group_id=GroupId(group),
        session_timeout=TIMEOUT,
        rebalance_timeout=TIMEOUT,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b"metadata"),),
    )
    answer = client.ask(in_version(request, version))
    if version < 4:
        return answer
    assert answer.error_code is ErrorCode.member_id_required
    named = JoinGroupRequest(
        group_id=request.group_id,
        session_timeout=TIMEOUT,
        rebalance_timeout=TIMEOUT,
        member_id=answer.member_id,
        protocol_type="consumer",
        protocols=request.protocols,
    )
    return client.ask(in_version(named, version))


def leave_request(group: str, member_id: str, version: int) -> Any:
    if version < 3:
        alone = LeaveAloneRequest(group_id=GroupId(group), member_id=member_id)
        return in_version(alone, version)
    members = (MemberIdentity(member_id=member_id),)
    return in_version(LeaveGroupRequest(group_id=GroupId(group), members=members), version)


@pytest.mark.parametrize(
    ("join", "sync", "heartbeat", "leave"),
    [
        (0, 0, 0, 0),
        (2, 1, 1, 1),
        (3, 2, 2, 2),
        (4, 2, 2, 2),
        (5, 3, 3, 3),
        (7, 4, 4, 4),
        (9, 5, 4, 5),
    ],
)
def test_a_member_joins_syncs_lives_and_leaves(
    client: WireClient, join: int, sync: int, heartbeat: int, leave: int
) -> None:
    group = unique("group")

    member = joined(client, group, join)
    assert (member.error_code, member.leader) == (ErrorCode.none, member.member_id)
    assert [each.metadata for each in member.members] == [b"metadata"]

    share = SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"share")
    synced = client.ask(
        in_version(
            SyncGroupRequest(
                group_id=GroupId(group),
                generation_id=member.generation_id,
                member_id=member.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=(share,),
            ),
            sync,
        )
    )
    assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"share")

    alive = HeartbeatRequest(
        group_id=GroupId(group), generation_id=member.generation_id, member_id=member.member_id
    )
    assert client.ask(in_version(alive, heartbeat)).error_code is ErrorCode.none

    leaving = leave_request(group, member.member_id, leave)
    assert client.ask(leaving).error_code is ErrorCode.none
    assert client.ask(in_version(alive, heartbeat)).error_code is ErrorCode.unknown_member_id


def test_a_stranger_cannot_leave(client: WireClient) -> None:
    group = unique("group")
    member = joined(client, group, 3)

    alone = client.ask(leave_request(group, "stranger", 2))
    listed = client.ask(leave_request(group, "stranger", 5))

    assert member.error_code is ErrorCode.none
    assert alone.error_code is ErrorCode.unknown_member_id
    assert listed.error_code is ErrorCode.none
    assert listed.members[0].error_code is ErrorCode.unknown_member_id


# Offsets.


def commit_request(group: str, topic: str, offset: int, *, generation: int = -1) -> Any:
    partition = named_commit.OffsetCommitRequestPartition(
        partition_index=i32(0), committed_offset=i64(offset), committed_metadata="note"
    )
    return named_commit.OffsetCommitRequest(
        group_id=GroupId(group),
        generation_id_or_member_epoch=i32(generation),
        member_id="",
        topics=(
            named_commit.OffsetCommitRequestTopic(name=TopicName(topic), partitions=(partition,)),
        ),
    )


def fetch_request(group: str, topic: str, version: int) -> Any:
    """Ask for both partitions of the topic."""
    partitions = (i32(0), i32(1))
    if version < 8:
        one = fetch_one.OffsetFetchRequestTopic(name=TopicName(topic), partition_indexes=partitions)
        request: Any = fetch_one.OffsetFetchRequest(group_id=GroupId(group), topics=(one,))
    else:
        several = fetch_several.OffsetFetchRequestTopics(
            name=TopicName(topic), partition_indexes=partitions
        )
        wanted = fetch_several.OffsetFetchRequestGroup(group_id=GroupId(group), topics=(several,))
        request = fetch_several.OffsetFetchRequest(groups=(wanted,))
    return in_version(request, version)


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_are_committed_in_every_version(
    client: WireClient, topic: str, version: int
) -> None:
    group = unique("group")

    answer = client.ask(in_version(commit_request(group, topic, 5), version))

    assert answer.topics[0].partitions[0].error_code is ErrorCode.none
    (found, missing) = client.ask(fetch_request(group, topic, 7)).topics[0].partitions
    assert (found.committed_offset, found.metadata) == (5, "note")
    assert (missing.committed_offset, missing.error_code) == (-1, ErrorCode.none)


@pytest.mark.parametrize("version", range(1, 10))
def test_offsets_are_fetched_in_every_version(client: WireClient, topic: str, version: int) -> None:
    group = unique("group")
    client.ask(commit_request(group, topic, 5))

    answer = client.ask(fetch_request(group, topic, version))

    topics = answer.topics if version < 8 else answer.groups[0].topics
    assert [each.committed_offset for each in topics[0].partitions] == [5, -1]


def test_an_error_of_the_group_stands_where_the_version_has_it(
    client: WireClient, topic: str
) -> None:
    oldest = client.ask(fetch_request("", topic, 1))
    older = client.ask(fetch_request("", topic, 5))
    newer = client.ask(fetch_request("", topic, 8))

    codes = {each.error_code for each in oldest.topics[0].partitions}
    assert codes == {ErrorCode.invalid_group_id}
    assert (older.error_code, older.topics) == (ErrorCode.invalid_group_id, ())
    assert newer.groups[0].error_code is ErrorCode.invalid_group_id


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.illegal_generation), (9, ErrorCode.group_id_not_found)]
)
def test_a_member_of_a_missing_group_cannot_commit(
    client: WireClient, topic: str, version: int, code: ErrorCode
) -> None:
    request = commit_request(unique("group"), topic, 5, generation=3)

    answer = client.ask(in_version(request, version))

    assert answer.topics[0].partitions[0].error_code is code


def test_offsets_are_kept_under_the_ids_of_topics(client: WireClient, topic: str) -> None:
    group, known, unknown = unique("group"), topic_id(client, topic), uuid.uuid4()
    position = commit_by_id.OffsetCommitRequestPartition(
        partition_index=i32(0), committed_offset=i64(7), committed_metadata=None
    )
    request = commit_by_id.OffsetCommitRequest(
        group_id=GroupId(group),
        member_id="",
        topics=tuple(
            commit_by_id.OffsetCommitRequestTopic(topic_id=each, partitions=(position,))
            for each in (unknown, known)
        ),
    )

    codes = {each.topic_id: each.partitions[0].error_code for each in client.ask(request).topics}

    assert codes == {known: ErrorCode.none, unknown: ErrorCode.unknown_topic_id}
    wanted = tuple(
        fetch_by_id.OffsetFetchRequestTopics(topic_id=each, partition_indexes=(i32(0),))
        for each in (unknown, known)
    )
    for topics in (wanted, None):
        asked = fetch_by_id.OffsetFetchRequestGroup(group_id=GroupId(group), topics=topics)
        answer = client.ask(fetch_by_id.OffsetFetchRequest(groups=(asked,)))
        found = {each.topic_id: each.partitions[0] for each in answer.groups[0].topics}
        assert found[known].committed_offset == 7
        if topics is not None:
            assert found[unknown].error_code is ErrorCode.unknown_topic_id


# Descriptions.


def describe_request(group: str) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=(GroupId(group),), include_authorized_operations=False)


def test_a_missing_group_is_dead_and_in_newer_versions_an_error(client: WireClient) -> None:
    request = describe_request(unique("group"))

    (older,) = client.ask(in_version(request, 5)).groups
    (newer,) = client.ask(request).groups

    assert (older.error_code, older.group_state) == (ErrorCode.none, "Dead")
    assert (newer.error_code, newer.group_state) == (ErrorCode.group_id_not_found, "Dead")


def test_an_incremental_group_is_no_classic_one(client: WireClient, topic: str) -> None:
    group = unique("group")
    joining = ConsumerGroupHeartbeatRequest(
        group_id=GroupId(group),
        member_id="member",
        member_epoch=i32(0),
        rebalance_timeout=TIMEOUT,
        subscribed_topic_names=(TopicName(topic),),
        topic_partitions=(),
    )

    answer = client.ask(joining)

    assert (answer.error_code, answer.member_epoch) == (ErrorCode.none, 1)
    owned = answer.assignment.topic_partitions
    assert [(each.topic_id, each.partitions) for each in owned] == [
        (topic_id(client, topic), (0, 1))
    ]
    (described,) = client.ask(describe_request(group)).groups
    assert described.error_code is ErrorCode.group_id_not_found
    (older,) = client.ask(in_version(describe_request(group), 5)).groups
    assert older.group_state == "Dead"


def test_a_topic_is_found_by_its_id_whatever_stands_for_its_name(
    client: WireClient, topic: str
) -> None:
    known = topic_id(client, topic)
    for name in (None, TopicName("")):
        asked = (
            MetadataRequestTopic(name=name, topic_id=known),
            MetadataRequestTopic(name=name, topic_id=uuid.uuid4()),
        )
        request = MetadataRequest(topics=asked, include_topic_authorized_operations=False)

        found, missing = client.ask(request).topics

        assert (found.error_code, found.name) == (ErrorCode.none, topic)
        assert (missing.error_code, missing.name) == (ErrorCode.unknown_topic_id, None)
