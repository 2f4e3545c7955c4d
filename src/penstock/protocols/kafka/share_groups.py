"""ShareGroupHeartbeat and ShareGroupDescribe: the members of share groups (KIP-932)."""

import datetime as dt

from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1 import request as describe_in
from kio.schema.share_group_describe.v1 import response as describe_out
from kio.schema.share_group_heartbeat.v1 import request as beat_in
from kio.schema.share_group_heartbeat.v1 import response as beat_out
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta

from penstock.errors import PenstockError
from penstock.groups import ShareAssignment, ShareBeat, ShareMember
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE
from penstock.protocols.kafka.errors import error_fields
from penstock.protocols.kafka.group_admin import (
    authorized_operations,
    check_coordinator,
    check_no_consumer_group,
)

_NO_INTERVAL = i32Timedelta.parse(dt.timedelta(0))


def apis() -> list[Api]:
    """Return the two APIs."""
    return [
        plain_api(76, "ShareGroupHeartbeat", range(1, 2), _heartbeat),
        plain_api(77, "ShareGroupDescribe", range(1, 2), _describe_groups),
    ]


async def _heartbeat(
    request: beat_in.ShareGroupHeartbeatRequest, context: Context
) -> beat_out.ShareGroupHeartbeatResponse:
    share = context.broker.share
    try:
        check_coordinator(request.group_id, context.broker)
        await check_no_consumer_group(request.group_id, context.broker)
        epoch, assignment = await share.heartbeat(
            request.group_id,
            ShareBeat(
                member_id=request.member_id,
                epoch=request.member_epoch,
                topics=request.subscribed_topic_names,
                client_id=context.client.client_id,
                client_host=context.client.host,
            ),
        )
    except PenstockError as error:
        return beat_out.ShareGroupHeartbeatResponse(
            throttle_time=NO_THROTTLE,
            **error_fields(error, context.broker),
            member_epoch=i32(0),
            heartbeat_interval=_NO_INTERVAL,
        )
    return beat_out.ShareGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=request.member_id,
        member_epoch=i32(epoch),
        heartbeat_interval=i32Timedelta.parse(dt.timedelta(milliseconds=share.heartbeat_ms)),
        assignment=None if assignment is None else _to_fetch(assignment),
    )


def _to_fetch(assignment: ShareAssignment) -> beat_out.Assignment:
    return beat_out.Assignment(
        topic_partitions=tuple(
            beat_out.TopicPartitions(
                topic_id=topic_id, partitions=tuple(map(i32, sorted(partitions)))
            )
            for topic_id, partitions in assignment.items()
        )
    )


async def _describe_groups(
    request: describe_in.ShareGroupDescribeRequest, context: Context
) -> describe_out.ShareGroupDescribeResponse:
    operations = authorized_operations(is_asked_for=request.include_authorized_operations)
    return describe_out.ShareGroupDescribeResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(_described(group_id, context, operations) for group_id in request.group_ids),
    )


def _described(group_id: GroupId, context: Context, operations: i32) -> describe_out.DescribedGroup:
    try:
        check_coordinator(group_id, context.broker)
        group = context.broker.share.members_of(group_id)
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
    return describe_out.DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state,
        group_epoch=i32(group.epoch),
        assignment_epoch=i32(group.epoch),
        assignor_name="simple",
        members=tuple(_member(each, context) for each in group.members.values()),
        authorized_operations=operations,
    )


def _member(member: ShareMember, context: Context) -> describe_out.Member:
    return describe_out.Member(
        member_id=member.member_id,
        member_epoch=i32(member.epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(map(TopicName, member.topics)),
        assignment=_shown(member.assignment, context),
    )


def _shown(assignment: ShareAssignment, context: Context) -> describe_out.Assignment:
    """Return partitions with the names of their topics; those of deleted topics are left out."""
    by_id = {topic.public_id: topic.name for topic in context.broker.metadata.topics.values()}
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
