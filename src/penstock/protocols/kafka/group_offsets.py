"""OffsetCommit, OffsetFetch and OffsetDelete: the positions that groups keep.

OffsetFetch carries one group up to version 7 and several from version 8 on; handlers see the newer
form only. Versions that know topics by their ids are in `group_offsets_by_id`.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v9 import request as commit_in
from kio.schema.offset_commit.v9 import response as commit_out
from kio.schema.offset_delete.v0 import request as delete_in
from kio.schema.offset_delete.v0 import response as delete_out
from kio.schema.offset_fetch.v7 import response as single_fetch_out
from kio.schema.offset_fetch.v9 import request as fetch_in
from kio.schema.offset_fetch.v9 import response as fetch_out
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from penstock.broker import Broker
from penstock.errors import PenstockError, TopicNotFound
from penstock.groups import (
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    OffsetRow,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    OffsetToCommit,
)
from penstock.ids import TopicPartition
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE, carry_over
from penstock.protocols.kafka.errors import error_code
from penstock.protocols.kafka.group_admin import check_no_share_group

_SEVERAL_GROUPS_FROM = 8
_GROUP_ERROR_FROM = 2
_MEMBER_EPOCHS_FROM = 9
# What an older version calls the errors of members that only newer ones know.
_OLDER_COMMIT_ERRORS = {
    ErrorCode.group_id_not_found: ErrorCode.illegal_generation,
    ErrorCode.stale_member_epoch: ErrorCode.unsupported_version,
}

Refusals = dict[TopicPartition, PenstockError]


def named_offset_apis() -> list[Api]:
    """Return the three APIs in the versions that name topics."""
    return [
        plain_api(8, "OffsetCommit", range(2, 10), commit_offsets, downgrade=_older_commit),
        plain_api(
            9,
            "OffsetFetch",
            range(1, 10),
            fetch_offsets,
            upgrade=_several_groups,
            downgrade=_older_fetch,
        ),
        plain_api(47, "OffsetDelete", range(1), _delete_offsets),
    ]


def _parted(
    places: Iterable[TopicPartition], broker: Broker
) -> tuple[frozenset[TopicPartition], Refusals]:
    """Part the partitions into those that exist and those that are refused."""
    refused: Refusals = {}
    known = set()
    for place in places:
        topic = broker.metadata.topics.get(place.topic)
        if topic is not None and 0 <= place.partition < topic.partitions:
            known.add(place)
        else:
            refused[place] = TopicNotFound(f"there is no partition {place}")
    return frozenset(known), refused


def _code(place: TopicPartition, refused: Refusals, broker: Broker) -> ErrorCode:
    return error_code(refused.get(place), broker)


# Committing.


async def commit_offsets(
    request: commit_in.OffsetCommitRequest, context: Context
) -> commit_out.OffsetCommitResponse:
    """Store positions; what is wrong with one of them does not keep the others back."""
    places = [
        TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    known, refused = _parted(places, context.broker)
    try:
        check_no_share_group(request.group_id, context.broker)
        answer = await context.broker.groups.ask(
            request.group_id, lambda ticket: _commit_command(request, known, ticket)
        )
        assert isinstance(answer, OffsetsCommitted), answer
        refused |= answer.refused
    except PenstockError as error:
        refused = dict.fromkeys(places, error)
    return commit_out.OffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            commit_out.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    commit_out.OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=_code(
                            TopicPartition(topic.name, each.partition_index),
                            refused,
                            context.broker,
                        ),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _commit_command(
    request: commit_in.OffsetCommitRequest, known: frozenset[TopicPartition], ticket: int
) -> CommitOffsets:
    return CommitOffsets(
        ticket=ticket,
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        offsets=tuple(
            OffsetToCommit(
                topic.name,
                each.partition_index,
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata or "",
            )
            for topic in request.topics
            for each in topic.partitions
            if TopicPartition(topic.name, each.partition_index) in known
        ),
    )


def _older_commit(response: commit_out.OffsetCommitResponse, version: int) -> Any:
    """Use only error codes that a client of this version can know."""
    if version >= _MEMBER_EPOCHS_FROM:
        return response
    return replace(
        response,
        topics=tuple(
            replace(
                topic,
                partitions=tuple(
                    replace(
                        each,
                        error_code=_OLDER_COMMIT_ERRORS.get(each.error_code, each.error_code),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in response.topics
        ),
    )


# Fetching.


async def fetch_offsets(
    request: fetch_in.OffsetFetchRequest, context: Context
) -> fetch_out.OffsetFetchResponse:
    """Answer committed positions. Without transactions all of them are stable."""
    return fetch_out.OffsetFetchResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple([await _group_offsets(group, context) for group in request.groups]),
    )


async def _group_offsets(
    group: fetch_in.OffsetFetchRequestGroup, context: Context
) -> fetch_out.OffsetFetchResponseGroup:
    wanted = _wanted(group)
    try:
        answer = await context.broker.groups.ask_currently(
            group.group_id,
            lambda ticket: FetchOffsets(
                ticket=ticket,
                group_id=group.group_id,
                partitions=wanted,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
            ),
        )
    except PenstockError as error:
        code = error_code(error, context.broker)
        return fetch_out.OffsetFetchResponseGroup(
            group_id=group.group_id,
            topics=_by_topic(wanted or (), lambda place: _no_position(place, code)),
            error_code=code,
        )
    assert isinstance(answer, OffsetsFetched), answer
    found = answer.offsets
    return fetch_out.OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=_by_topic(
            tuple(found) if wanted is None else wanted,
            lambda place: (
                _position(found[place]) if place in found else _no_position(place, ErrorCode.none)
            ),
        ),
        error_code=ErrorCode.none,
    )


def _wanted(group: fetch_in.OffsetFetchRequestGroup) -> tuple[TopicPartition, ...] | None:
    if group.topics is None:
        return None
    return tuple(
        TopicPartition(topic.name, int(partition))
        for topic in group.topics
        for partition in topic.partition_indexes
    )


def _by_topic(
    places: tuple[TopicPartition, ...],
    answer: Callable[[TopicPartition], fetch_out.OffsetFetchResponsePartitions],
) -> tuple[fetch_out.OffsetFetchResponseTopics, ...]:
    by_topic: dict[str, list[fetch_out.OffsetFetchResponsePartitions]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(answer(place))
    return tuple(
        fetch_out.OffsetFetchResponseTopics(name=TopicName(name), partitions=tuple(partitions))
        for name, partitions in by_topic.items()
    )


def _position(row: OffsetRow) -> fetch_out.OffsetFetchResponsePartitions:
    return fetch_out.OffsetFetchResponsePartitions(
        partition_index=i32(row.partition),
        committed_offset=i64(row.offset),
        committed_leader_epoch=i32(row.leader_epoch),
        metadata=row.note,
        error_code=ErrorCode.none,
    )


def _no_position(place: TopicPartition, code: ErrorCode) -> fetch_out.OffsetFetchResponsePartitions:
    return fetch_out.OffsetFetchResponsePartitions(
        partition_index=i32(place.partition),
        committed_offset=i64(-1),
        metadata="",
        error_code=code,
    )


def _several_groups(message: Any) -> Any:
    if message.__version__ >= _SEVERAL_GROUPS_FROM:
        return message
    topics = message.topics
    group = fetch_in.OffsetFetchRequestGroup(
        group_id=message.group_id,
        topics=None
        if topics is None
        else tuple(carry_over(topic, fetch_in.OffsetFetchRequestTopics) for topic in topics),
    )
    return fetch_in.OffsetFetchRequest(
        groups=(group,), require_stable=getattr(message, "require_stable", False)
    )


def _older_fetch(response: fetch_out.OffsetFetchResponse, version: int) -> Any:
    """Put errors of a group where the version has a place for them."""
    groups = response.groups
    if version >= _GROUP_ERROR_FROM:
        groups = tuple(replace(each, topics=()) if each.error_code else each for each in groups)
    if version >= _SEVERAL_GROUPS_FROM:
        return replace(response, groups=groups)
    (group,) = groups
    return single_fetch_out.OffsetFetchResponse(
        throttle_time=response.throttle_time,
        topics=tuple(
            carry_over(topic, single_fetch_out.OffsetFetchResponseTopic) for topic in group.topics
        ),
        error_code=group.error_code,
    )


# Deleting.


async def _delete_offsets(
    request: delete_in.OffsetDeleteRequest, context: Context
) -> delete_out.OffsetDeleteResponse:
    places = [
        TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    known, refused = _parted(places, context.broker)
    try:
        answer = await context.broker.groups.ask(
            request.group_id,
            lambda ticket: DeleteOffsets(
                ticket=ticket, group_id=request.group_id, partitions=tuple(sorted(known))
            ),
        )
        assert isinstance(answer, OffsetsDeleted), answer
        refused |= answer.refused
    except PenstockError as error:
        return delete_out.OffsetDeleteResponse(
            error_code=error_code(error, context.broker), throttle_time=NO_THROTTLE, topics=()
        )
    return delete_out.OffsetDeleteResponse(
        error_code=ErrorCode.none,
        throttle_time=NO_THROTTLE,
        topics=tuple(
            delete_out.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    delete_out.OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=_code(
                            TopicPartition(topic.name, each.partition_index),
                            refused,
                            context.broker,
                        ),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
