"""Metadata: which topics there are and where their partitions are led.

Clients ask often and the answer changes rarely, so the bytes of the whole answer are kept until the
cluster's metadata changes.
"""

import asyncio
import uuid
from contextlib import suppress
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v13 import request as wire_in
from kio.schema.metadata.v13 import response as wire
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from penstock.broker import Topic
from penstock.errors import (
    PenstockError,
    TopicIdMismatch,
    TopicNotFound,
    Unavailable,
)
from penstock.ids import TopicPartition
from penstock.protocols.kafka.api import Api, Context, Reply, Request
from penstock.protocols.kafka.codec import (
    NO_THROTTLE,
    carry_over,
    decode_request,
    encode_body,
    frame_bytes,
)
from penstock.protocols.kafka.errors import error_code

KEY = 3
VERSIONS = range(14)
_CACHED_MAX = 64


def metadata_api() -> Api:
    """Return the API with the answers that it keeps."""
    answers = _Answers()

    def start(request: Request, reply: Reply) -> asyncio.Task[None]:
        message = _upgrade(decode_request(request.frame, request.header), request.header.version)
        return asyncio.create_task(answers.answer(request, message, reply))

    return Api(KEY, "Metadata", VERSIONS[0], VERSIONS[-1], start)


class _Answers:
    """Bodies by version and topics asked for, as of one version of the cluster's metadata."""

    def __init__(self) -> None:
        self._bodies: dict[tuple[int, tuple[str | uuid.UUID, ...] | None], bytes] = {}
        self._metadata_version = -1

    async def answer(
        self, request: Request, message: wire_in.MetadataRequest, reply: Reply
    ) -> None:
        context = request.context
        if context.broker.was_removed:
            # Clients that are sent away ask a node of the cluster.
            raise Unavailable("this node was removed from its cluster")
        if message.topics and message.allow_auto_topic_creation:
            await _create_missing(message, context)
        version = context.broker.metadata_version
        if self._metadata_version != version or len(self._bodies) > _CACHED_MAX:
            self._bodies.clear()
            self._metadata_version = version
        wanted = _wanted(message)
        body = self._bodies.get((request.header.version, wanted))
        if body is None:
            response = _response(message, context)
            body = encode_body(KEY, request.header.version, response)
            if _is_settled(response):
                self._bodies[request.header.version, wanted] = body
            elif context.broker.is_cut_off:
                # Clients like to ask again where they asked before. With the connection gone they
                # ask another node, which may know the leader.
                raise Unavailable("this node has no contact to a majority")
        reply([frame_bytes(request.header, body)])


def _is_settled(response: wire.MetadataResponse) -> bool:
    """Only an answer without errors is worth keeping: the others are asked for again soon."""
    return not any(
        topic.error_code or any(partition.error_code for partition in topic.partitions)
        for topic in response.topics
    )


def _upgrade(message: Any, version: int) -> wire_in.MetadataRequest:
    """Bring a request to the newest version; version 0 asks for all topics by naming none."""
    upgraded: wire_in.MetadataRequest = carry_over(message, wire_in.MetadataRequest)
    if version == 0 and not upgraded.topics:
        return wire_in.MetadataRequest(topics=None, include_topic_authorized_operations=False)
    return upgraded


def _wanted(message: wire_in.MetadataRequest) -> tuple[str | uuid.UUID, ...] | None:
    if message.topics is None:
        return None
    return tuple(topic.topic_id or topic.name or "" for topic in message.topics)


async def _create_missing(message: wire_in.MetadataRequest, context: Context) -> None:
    broker = context.broker
    if not broker.options.auto_create_topics:
        return
    for topic in message.topics or ():
        if topic.name and topic.name not in broker.metadata.topics:
            # The answer says why not: the topic is not there, or its name is wrong.
            with suppress(PenstockError):
                await broker.topics.find_or_create(topic.name)


def _response(message: wire_in.MetadataRequest, context: Context) -> wire.MetadataResponse:
    metadata = context.broker.metadata
    if message.topics is None:
        found = tuple(_topic(topic, context) for topic in metadata.topics.values())
    else:
        found = tuple(_named_topic(topic, context) for topic in message.topics)
    return wire.MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=tuple(
            wire.MetadataResponseBroker(
                node_id=BrokerId(node.node_id), host=node.kafka_host, port=i32(node.kafka_port)
            )
            for node in context.broker.listed_nodes
        ),
        cluster_id=str(metadata.cluster_id) if metadata.cluster_id else None,
        controller_id=BrokerId(context.broker.controller),
        topics=found,
        error_code=ErrorCode.none,
    )


def _named_topic(
    wanted: wire_in.MetadataRequestTopic, context: Context
) -> wire.MetadataResponseTopic:
    try:
        return _topic(_find(wanted, context), context)
    except PenstockError as error:
        return wire.MetadataResponseTopic(
            error_code=error_code(error, context.broker),
            name=None if wanted.topic_id else wanted.name,
            topic_id=wanted.topic_id,
            partitions=(),
        )


def _find(wanted: wire_in.MetadataRequestTopic, context: Context) -> Topic:
    # Clients that ask by id leave the name empty or null; a null id stands for none.
    if wanted.topic_id is None:
        return context.broker.topics.find(wanted.name or "")
    try:
        return context.broker.metadata.topic_by_public_id(wanted.topic_id)
    except TopicNotFound as error:
        raise TopicIdMismatch(str(error)) from error


def _topic(topic: Topic, context: Context) -> wire.MetadataResponseTopic:
    return wire.MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName(topic.name),
        topic_id=topic.public_id,
        partitions=tuple(
            _partition(TopicPartition(topic.name, number), context)
            for number in range(topic.partitions)
        ),
    )


def _partition(place: TopicPartition, context: Context) -> wire.MetadataResponsePartition:
    leader, term = context.broker.leader_of(place)
    error = None if leader >= 0 else Unavailable(f"nobody leads {place}")
    replicas = context.broker.replicas_of(place)
    # As with Kafka, those that are to go are listed until they have gone.
    nodes = tuple(BrokerId(node) for node in (*replicas.nodes, *replicas.leaving_nodes))
    # One that is being filled counts only when it leads, which it does when it is full.
    unfilled = set(replicas.joining_nodes) - {leader}
    return wire.MetadataResponsePartition(
        error_code=error_code(error, context.broker),
        partition_index=i32(place.partition),
        leader_id=BrokerId(leader),
        leader_epoch=i32(term),
        replica_nodes=nodes,
        isr_nodes=tuple(
            node for node in nodes if context.broker.is_reachable(node) and node not in unfilled
        ),
        offline_replicas=tuple(node for node in nodes if not context.broker.is_reachable(node)),
    )
