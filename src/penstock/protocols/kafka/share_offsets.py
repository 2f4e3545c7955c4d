"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets (KIP-932).

The position of a share group in a partition is the floor of the queue group behind it: everything
below is settled. Positions of a group that has members cannot be set or forgotten.
"""

import uuid
from collections.abc import Awaitable, Sequence

from kio.schema.alter_share_group_offsets.v0 import request as alter_in
from kio.schema.alter_share_group_offsets.v0 import response as alter_out
from kio.schema.delete_share_group_offsets.v0 import request as delete_in
from kio.schema.delete_share_group_offsets.v0 import response as delete_out
from kio.schema.describe_share_group_offsets.v1 import request as describe_in
from kio.schema.describe_share_group_offsets.v1 import response as describe_out
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from penstock.broker import Broker, PartitionGroupStatus
from penstock.errors import GroupNotFound, PenstockError, TopicNotFound, Unavailable
from penstock.ids import TopicPartition
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE
from penstock.protocols.kafka.errors import error_fields
from penstock.protocols.kafka.group_admin import check_coordinator

_NO_POSITION = i64(-1)
_NO_LAG = i64(-1)
_NO_EPOCH = i32(-1)


def apis() -> list[Api]:
    """Return the three APIs."""
    return [
        plain_api(90, "DescribeShareGroupOffsets", range(2), _describe_offsets),
        plain_api(91, "AlterShareGroupOffsets", range(1), _alter_offsets),
        plain_api(92, "DeleteShareGroupOffsets", range(1), _delete_offsets),
    ]


async def _describe_offsets(
    request: describe_in.DescribeShareGroupOffsetsRequest, context: Context
) -> describe_out.DescribeShareGroupOffsetsResponse:
    return describe_out.DescribeShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple([await _described(group, context.broker) for group in request.groups]),
    )


async def _described(
    group: describe_in.DescribeShareGroupOffsetsRequestGroup, broker: Broker
) -> describe_out.DescribeShareGroupOffsetsResponseGroup:
    failure: PenstockError | None = None
    topics: list[describe_out.DescribeShareGroupOffsetsResponseTopic] = []
    try:
        check_coordinator(group.group_id, broker)
        read = broker.share.topics_of(group.group_id)
        wanted: dict[str, Sequence[int] | None] = dict.fromkeys(read)
        if group.topics is not None:
            wanted = {topic.topic_name: topic.partitions for topic in group.topics}
        for topic, partitions in wanted.items():
            topics.append(await _positions(group.group_id, topic, partitions, broker))
    except PenstockError as error:
        failure = error
    return describe_out.DescribeShareGroupOffsetsResponseGroup(
        group_id=group.group_id, topics=tuple(topics), **error_fields(failure, broker)
    )


async def _positions(
    group_id: str, topic: str, partitions: Sequence[int] | None, broker: Broker
) -> describe_out.DescribeShareGroupOffsetsResponseTopic:
    """Return where a group stands in some partitions of a topic, or in all of them."""
    found = broker.metadata.topics.get(topic)
    by_number: dict[int, PartitionGroupStatus] = {}
    if found is not None and group_id in found.groups:
        status = await broker.queues.status(topic, group_id)
        by_number = {each.partition: each for each in status.partitions}
    count = found.partitions if found else 0
    shown = []
    for number in range(count) if partitions is None else partitions:
        error: PenstockError | None = None
        if not 0 <= number < count:
            error = TopicNotFound(f"there is no partition {number} of topic {topic!r}")
        elif by_number and number not in by_number:
            error = Unavailable(f"partition {number} of topic {topic!r} has no leader")
        epoch = _NO_EPOCH if error else i32(broker.leader_of(TopicPartition(topic, number))[1])
        stand = by_number.get(number)
        shown.append(
            describe_out.DescribeShareGroupOffsetsResponsePartition(
                partition_index=i32(number),
                start_offset=i64(stand.floor) if stand else _NO_POSITION,
                leader_epoch=epoch,
                lag=i64(stand.unsettled) if stand else _NO_LAG,
                **error_fields(error, broker),
            )
        )
    return describe_out.DescribeShareGroupOffsetsResponseTopic(
        topic_name=TopicName(topic),
        topic_id=found.public_id if found else None,
        partitions=tuple(shown),
    )


async def _alter_offsets(
    request: alter_in.AlterShareGroupOffsetsRequest, context: Context
) -> alter_out.AlterShareGroupOffsetsResponse:
    broker = context.broker
    responses: list[alter_out.AlterShareGroupOffsetsResponseTopic] = []
    refusal = _refusal(request.group_id, broker)
    if refusal is None:
        responses += [await _altered(request.group_id, each, broker) for each in request.topics]
    return alter_out.AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE, **error_fields(refusal, broker), responses=tuple(responses)
    )


def _refusal(group_id: str, broker: Broker) -> PenstockError | None:
    """Why the positions of a group cannot be changed here and now, if they cannot."""
    try:
        check_coordinator(group_id, broker)
        broker.share.check_empty(group_id)
    except PenstockError as error:
        return error
    return None


async def _altered(
    group_id: str, topic: alter_in.AlterShareGroupOffsetsRequestTopic, broker: Broker
) -> alter_out.AlterShareGroupOffsetsResponseTopic:
    partitions = []
    for partition in topic.partitions:
        place = TopicPartition(topic.topic_name, partition.partition_index)
        failure = await _failure(broker.share.move_to(group_id, place, partition.start_offset))
        partitions.append(
            alter_out.AlterShareGroupOffsetsResponsePartition(
                partition_index=partition.partition_index, **error_fields(failure, broker)
            )
        )
    return alter_out.AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=_topic_id(topic.topic_name, broker),
        partitions=tuple(partitions),
    )


async def _failure(change: Awaitable[object]) -> PenstockError | None:
    """Wait for a change and return why it failed, if it did."""
    try:
        await change
    except PenstockError as error:
        return error
    return None


def _topic_id(topic: str, broker: Broker) -> uuid.UUID | None:
    found = broker.metadata.topics.get(topic)
    return found.public_id if found else None


async def _delete_offsets(
    request: delete_in.DeleteShareGroupOffsetsRequest, context: Context
) -> delete_out.DeleteShareGroupOffsetsResponse:
    broker = context.broker
    responses: list[delete_out.DeleteShareGroupOffsetsResponseTopic] = []
    refusal = _refusal(request.group_id, broker)
    if refusal is None:
        names = [topic.topic_name for topic in request.topics]
        responses += [await _deleted(request.group_id, name, broker) for name in names]
    return delete_out.DeleteShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE, **error_fields(refusal, broker), responses=tuple(responses)
    )


async def _deleted(
    group_id: str, topic: TopicName, broker: Broker
) -> delete_out.DeleteShareGroupOffsetsResponseTopic:
    failure = await _failure(broker.queues.delete_group(topic, group_id))
    if isinstance(failure, GroupNotFound):
        # It has no position there, which is what was asked for.
        failure = None
    return delete_out.DeleteShareGroupOffsetsResponseTopic(
        topic_name=topic, topic_id=_topic_id(topic, broker), **error_fields(failure, broker)
    )
