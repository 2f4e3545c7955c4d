"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups that the server assigns (KIP-848)."""

import datetime as dt

from kio.schema.consumer_group_describe.v1 import request as describe_in
from kio.schema.consumer_group_describe.v1 import response as describe_out
from kio.schema.consumer_group_heartbeat.v1 import request as beat_in
from kio.schema.consumer_group_heartbeat.v1 import response as beat_out
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta

from penstock.errors import PenstockError
from penstock.groups import (
    Assignment,
    ConsumerGroupDescribed,
    ConsumerHeartbeat,
    DescribeConsumerGroup,
    DescribedConsumer,
    Reconciled,
)
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE, milliseconds
from penstock.protocols.kafka.errors import error_fields
from penstock.protocols.kafka.group_admin import authorized_operations, check_no_share_group

_CONSUMER_MEMBER = 1
_NO_INTERVAL = i32Timedelta.parse(dt.timedelta(0))


def apis() -> list[Api]:
    """Return the two APIs."""
    return [
        plain_api(68, "ConsumerGroupHeartbeat", range(2), _heartbeat),
        plain_api(69, "ConsumerGroupDescribe", range(2), _describe_groups),
    ]


async def _heartbeat(
    request: beat_in.ConsumerGroupHeartbeatRequest, context: Context
) -> beat_out.ConsumerGroupHeartbeatResponse:
    groups = context.broker.groups
    try:
        check_no_share_group(request.group_id, context.broker)
        answer = await groups.ask(
            request.group_id, lambda ticket: _command(request, context, ticket)
        )
    except PenstockError as error:
        return beat_out.ConsumerGroupHeartbeatResponse(
            throttle_time=NO_THROTTLE,
            **error_fields(error, context.broker),
            member_epoch=i32(0),
            heartbeat_interval=_NO_INTERVAL,
        )
    assert isinstance(answer, Reconciled), answer
    return beat_out.ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=answer.member_id,
        member_epoch=i32(answer.member_epoch),
        heartbeat_interval=i32Timedelta.parse(dt.timedelta(milliseconds=answer.heartbeat_ms)),
        assignment=None if answer.assignment is None else _to_own(answer.assignment),
    )


def _command(
    request: beat_in.ConsumerGroupHeartbeatRequest, context: Context, ticket: int
) -> ConsumerHeartbeat:
    rebalance_ms = milliseconds(request.rebalance_timeout)
    return ConsumerHeartbeat(
        ticket=ticket,
        group_id=request.group_id,
        member_id=request.member_id,
        candidate_id=context.broker.groups.new_member_id(context.client.client_id),
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.client.client_id,
        client_host=context.client.host,
        rebalance_ms=rebalance_ms if rebalance_ms >= 0 else None,
        topics=request.subscribed_topic_names,
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request),
    )


def _owned(request: beat_in.ConsumerGroupHeartbeatRequest) -> Assignment | None:
    """Return what the member says that it owns; None when it says nothing about it."""
    if request.topic_partitions is None:
        return None
    return {
        topic.topic_id: frozenset(map(int, topic.partitions))
        for topic in request.topic_partitions
        if topic.topic_id is not None
    }


def _to_own(assignment: Assignment) -> beat_out.Assignment:
    return beat_out.Assignment(
        topic_partitions=tuple(
            beat_out.TopicPartitions(
                topic_id=topic_id, partitions=tuple(map(i32, sorted(partitions)))
            )
            for topic_id, partitions in assignment.items()
        )
    )


async def _describe_groups(
    request: describe_in.ConsumerGroupDescribeRequest, context: Context
) -> describe_out.ConsumerGroupDescribeResponse:
    operations = authorized_operations(is_asked_for=request.include_authorized_operations)
    return describe_out.ConsumerGroupDescribeResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(
            [await _described(group_id, context, operations) for group_id in request.group_ids]
        ),
    )


async def _described(
    group_id: GroupId, context: Context, operations: i32
) -> describe_out.DescribedGroup:
    try:
        group = await context.broker.groups.ask_currently(
            group_id, lambda ticket: DescribeConsumerGroup(ticket=ticket, group_id=group_id)
        )
    except PenstockError as error:
        return describe_out.DescribedGroup(
            **error_fields(error, context.broker),
            group_id=group_id,
            group_state="Dead",
            group_epoch=i32(0),
            assignment_epoch=i32(0),
            assignor_name="",
            members=(),
        )
    assert isinstance(group, ConsumerGroupDescribed), group
    return describe_out.DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state,
        group_epoch=i32(group.group_epoch),
        assignment_epoch=i32(group.target_epoch),
        assignor_name=group.assignor,
        members=tuple(_member(member, context) for member in group.members),
        authorized_operations=operations,
    )


def _member(member: DescribedConsumer, context: Context) -> describe_out.Member:
    return describe_out.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=i32(member.member_epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(map(TopicName, member.topics)),
        subscribed_topic_regex=member.regex,
        assignment=_shown(member.assigned, context),
        target_assignment=_shown(member.target, context),
        member_type=i8(_CONSUMER_MEMBER),
    )


def _shown(assignment: Assignment, context: Context) -> describe_out.Assignment:
    """Return partitions with the names of their topics; those of deleted topics are left out."""
    metadata = context.broker.metadata
    by_id = {topic.public_id: topic.name for topic in metadata.topics.values()}
    return describe_out.Assignment(
        topic_partitions=tuple(
            describe_out.TopicPartitions(
                topic_id=topic_id,
                topic_name=TopicName(by_id[topic_id]),
                partitions=tuple(map(i32, sorted(partitions))),
            )
            for topic_id, partitions in assignment.items()
            if topic_id in by_id
        )
    )
