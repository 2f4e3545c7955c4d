"""OffsetCommit and OffsetFetch of version 10, in which topics have ids in place of names.

A topic that was deleted and created anew has another id, so a client that still means the old one
is told UNKNOWN_TOPIC_ID instead of moving positions in the new one. Everything else is the same as
in the version before, and is left to it.
"""

import asyncio
import uuid
from collections.abc import Iterable
from dataclasses import replace

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v9 import request as named_commit_in
from kio.schema.offset_commit.v10 import request as commit_in
from kio.schema.offset_commit.v10 import response as commit_out
from kio.schema.offset_fetch.v9 import request as named_fetch_in
from kio.schema.offset_fetch.v9 import response as named_fetch_out
from kio.schema.offset_fetch.v10 import request as fetch_in
from kio.schema.offset_fetch.v10 import response as fetch_out
from kio.schema.types import TopicName
from kio.static.primitive import i64

from penstock.broker import Broker
from penstock.errors import TopicIdMismatch, TopicNotFound
from penstock.protocols.kafka.api import Api, Context, Reply, Request, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE, carry_over
from penstock.protocols.kafka.errors import error_code
from penstock.protocols.kafka.group_offsets import (
    commit_offsets,
    fetch_offsets,
    named_offset_apis,
)

_IDS_FROM = 10

Names = dict[uuid.UUID, TopicName]


def apis() -> list[Api]:
    """Return OffsetCommit, OffsetFetch and OffsetDelete in all their versions."""
    by_id = {
        8: plain_api(8, "OffsetCommit", range(_IDS_FROM, 11), _commit_offsets),
        9: plain_api(9, "OffsetFetch", range(_IDS_FROM, 11), _fetch_offsets),
    }
    return [
        _in_succession(api, by_id[api.key]) if api.key in by_id else api
        for api in named_offset_apis()
    ]


def _in_succession(older: Api, newer: Api) -> Api:
    """Return one API out of two whose versions follow each other."""

    def start(request: Request, reply: Reply) -> asyncio.Task[None] | None:
        api = newer if request.header.version >= newer.version_min else older
        return api.start(request, reply)

    return replace(older, version_max=newer.version_max, start=start)


def _names(topic_ids: Iterable[uuid.UUID | None], broker: Broker) -> Names:
    """Return the names of those ids that a topic has."""
    names: Names = {}
    for topic_id in topic_ids:
        if topic_id is not None:
            try:
                names[topic_id] = TopicName(broker.metadata.topic_by_public_id(topic_id).name)
            except TopicNotFound:
                # The answer says so for each partition.
                continue
    return names


async def _commit_offsets(
    request: commit_in.OffsetCommitRequest, context: Context
) -> commit_out.OffsetCommitResponse:
    names = _names((topic.topic_id for topic in request.topics), context.broker)
    answer = await commit_offsets(_named_commit(request, names), context)
    ids = {name: topic_id for topic_id, name in names.items()}
    topics = [
        commit_out.OffsetCommitResponseTopic(
            topic_id=ids[topic.name],
            partitions=tuple(
                carry_over(each, commit_out.OffsetCommitResponsePartition)
                for each in topic.partitions
            ),
        )
        for topic in answer.topics
    ]
    topics += [
        _unknown_commit(topic, context.broker)
        for topic in request.topics
        if topic.topic_id not in names
    ]
    return commit_out.OffsetCommitResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


def _named_commit(
    request: commit_in.OffsetCommitRequest, names: Names
) -> named_commit_in.OffsetCommitRequest:
    return named_commit_in.OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=tuple(
            named_commit_in.OffsetCommitRequestTopic(
                name=names[topic.topic_id],
                partitions=tuple(
                    carry_over(each, named_commit_in.OffsetCommitRequestPartition)
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
            if topic.topic_id in names
        ),
    )


def _unknown_commit(
    topic: commit_in.OffsetCommitRequestTopic, broker: Broker
) -> commit_out.OffsetCommitResponseTopic:
    return commit_out.OffsetCommitResponseTopic(
        topic_id=topic.topic_id,
        partitions=tuple(
            commit_out.OffsetCommitResponsePartition(
                partition_index=each.partition_index,
                error_code=error_code(_unknown(topic.topic_id), broker),
            )
            for each in topic.partitions
        ),
    )


async def _fetch_offsets(
    request: fetch_in.OffsetFetchRequest, context: Context
) -> fetch_out.OffsetFetchResponse:
    asked = [topic.topic_id for group in request.groups for topic in group.topics or ()]
    names = _names(asked, context.broker)
    answer = await fetch_offsets(_named_fetch(request, names), context)
    groups = [
        _fetched_by_id(wanted, found, names, context.broker)
        for wanted, found in zip(request.groups, answer.groups, strict=True)
    ]
    return fetch_out.OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


def _named_fetch(
    request: fetch_in.OffsetFetchRequest, names: Names
) -> named_fetch_in.OffsetFetchRequest:
    return named_fetch_in.OffsetFetchRequest(
        groups=tuple(
            named_fetch_in.OffsetFetchRequestGroup(
                group_id=group.group_id,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
                topics=None
                if group.topics is None
                else tuple(
                    named_fetch_in.OffsetFetchRequestTopics(
                        name=names[topic.topic_id], partition_indexes=topic.partition_indexes
                    )
                    for topic in group.topics
                    if topic.topic_id in names
                ),
            )
            for group in request.groups
        ),
        require_stable=request.require_stable,
    )


def _fetched_by_id(
    wanted: fetch_in.OffsetFetchRequestGroup,
    found: named_fetch_out.OffsetFetchResponseGroup,
    names: Names,
    broker: Broker,
) -> fetch_out.OffsetFetchResponseGroup:
    if found.error_code is not ErrorCode.none:
        return fetch_out.OffsetFetchResponseGroup(
            group_id=found.group_id, topics=(), error_code=found.error_code
        )
    ids = {name: topic_id for topic_id, name in names.items()}
    if wanted.topics is None:
        ids = {TopicName(each.name): each.public_id for each in broker.metadata.topics.values()}
    topics = [
        fetch_out.OffsetFetchResponseTopics(
            topic_id=ids[topic.name],
            partitions=tuple(
                carry_over(each, fetch_out.OffsetFetchResponsePartitions)
                for each in topic.partitions
            ),
        )
        for topic in found.topics
        if topic.name in ids
    ]
    topics += [
        _unknown_fetch(topic, broker)
        for topic in wanted.topics or ()
        if topic.topic_id not in names
    ]
    return fetch_out.OffsetFetchResponseGroup(group_id=found.group_id, topics=tuple(topics))


def _unknown_fetch(
    topic: fetch_in.OffsetFetchRequestTopics, broker: Broker
) -> fetch_out.OffsetFetchResponseTopics:
    return fetch_out.OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=tuple(
            fetch_out.OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=i64(-1),
                metadata="",
                error_code=error_code(_unknown(topic.topic_id), broker),
            )
            for partition in topic.partition_indexes
        ),
    )


def _unknown(topic_id: uuid.UUID | None) -> TopicIdMismatch:
    return TopicIdMismatch(f"no topic has the id {topic_id}")
