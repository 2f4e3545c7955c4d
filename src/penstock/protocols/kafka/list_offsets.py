"""ListOffsets and OffsetForLeaderEpoch: from times and leader epochs to offsets."""

import asyncio

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v8 import request as list_in
from kio.schema.list_offsets.v8 import response as list_out
from kio.schema.offset_for_leader_epoch.v4 import request as epoch_in
from kio.schema.offset_for_leader_epoch.v4 import response as epoch_out
from kio.static.primitive import i32, i64

from penstock.broker import Partition, check_epoch
from penstock.errors import PenstockError
from penstock.ids import TopicPartition
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE
from penstock.protocols.kafka.errors import error_code

_LATEST = -1
_EARLIEST = -2
_NEWEST = -3
# The start of what is on local disk; nothing is kept elsewhere by the broker itself.
_EARLIEST_LOCAL = -4


def apis() -> list[Api]:
    """Return both APIs."""
    return [
        plain_api(2, "ListOffsets", range(1, 9), _list_offsets),
        plain_api(23, "OffsetForLeaderEpoch", range(2, 5), _offsets_for_epochs),
    ]


async def _list_offsets(
    request: list_in.ListOffsetsRequest, context: Context
) -> list_out.ListOffsetsResponse:
    return list_out.ListOffsetsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            await asyncio.gather(*(_topic_offsets(topic, context) for topic in request.topics))
        ),
    )


async def _topic_offsets(
    topic: list_in.ListOffsetsTopic, context: Context
) -> list_out.ListOffsetsTopicResponse:
    found = await asyncio.gather(
        *(
            _partition_offset(TopicPartition(topic.name, wanted.partition_index), wanted, context)
            for wanted in topic.partitions
        )
    )
    return list_out.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(found))


async def _partition_offset(
    place: TopicPartition, wanted: list_in.ListOffsetsPartition, context: Context
) -> list_out.ListOffsetsPartitionResponse:
    try:
        partition = context.broker.partition(place)
        check_epoch(partition, wanted.current_leader_epoch)
        # A follower, and a leader that was replaced, learns of commits later than clients do: its
        # end would seem to go back.
        await partition.wait_current()
        offset, timestamp = _find_offset(partition, wanted.timestamp)
    except PenstockError as error:
        return list_out.ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index, error_code=error_code(error, context.broker)
        )
    return list_out.ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.none,
        timestamp=i64(timestamp),
        offset=i64(offset),
        leader_epoch=i32(partition.leader_epoch if offset >= 0 else -1),
    )


def _find_offset(partition: Partition, timestamp: int) -> tuple[int, int]:
    """Return offset and time; both are -1 when no record is as new as that."""
    if timestamp == _LATEST:
        return partition.high_watermark, -1
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return partition.start_offset, -1
    found = partition.find_newest() if timestamp == _NEWEST else partition.find_time(timestamp)
    return (found.offset, found.timestamp) if found else (-1, -1)


async def _offsets_for_epochs(
    request: epoch_in.OffsetForLeaderEpochRequest, context: Context
) -> epoch_out.OffsetForLeaderEpochResponse:
    return epoch_out.OffsetForLeaderEpochResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            epoch_out.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(
                    _epoch_end(TopicPartition(topic.topic, wanted.partition), wanted, context)
                    for wanted in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _epoch_end(
    place: TopicPartition, wanted: epoch_in.OffsetForLeaderPartition, context: Context
) -> epoch_out.EpochEndOffset:
    try:
        partition = context.broker.partition(place)
        check_epoch(partition, wanted.current_leader_epoch)
        found = partition.end_offset_of_epoch(wanted.leader_epoch)
    except PenstockError as error:
        return epoch_out.EpochEndOffset(
            error_code=error_code(error, context.broker), partition=wanted.partition
        )
    epoch, end_offset = found or (-1, -1)
    return epoch_out.EpochEndOffset(
        error_code=ErrorCode.none,
        partition=wanted.partition,
        leader_epoch=i32(epoch),
        end_offset=i64(end_offset),
    )
