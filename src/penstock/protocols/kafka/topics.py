"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

import uuid
from typing import Any

from kio.schema.create_partitions.v3 import request as grow_in
from kio.schema.create_partitions.v3 import response as grow_out
from kio.schema.create_topics.v7 import request as create_in
from kio.schema.create_topics.v7 import response as create_out
from kio.schema.delete_records.v2 import request as records_in
from kio.schema.delete_records.v2 import response as records_out
from kio.schema.delete_topics.v6 import request as delete_in
from kio.schema.delete_topics.v6 import response as delete_out
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32, i64

from penstock.broker import Broker, NewTopic, Topic
from penstock.errors import InvalidRequest, PenstockError, TopicIdMismatch, TopicNotFound
from penstock.ids import Offset, TopicPartition
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE
from penstock.protocols.kafka.configs import creation_configs
from penstock.protocols.kafka.errors import error_code, error_fields


def apis() -> list[Api]:
    """Return the APIs that create and delete."""
    return [
        plain_api(19, "CreateTopics", range(2, 8), _create_topics),
        plain_api(20, "DeleteTopics", range(1, 7), _delete_topics, upgrade=_upgrade_delete),
        plain_api(21, "DeleteRecords", range(3), _delete_records),
        plain_api(37, "CreatePartitions", range(4), _create_partitions),
    ]


async def _create_topics(
    request: create_in.CreateTopicsRequest, context: Context
) -> create_out.CreateTopicsResponse:
    names = [topic.name for topic in request.topics]
    results = []
    for topic in request.topics:
        try:
            if names.count(topic.name) > 1:
                raise InvalidRequest(f"topic {topic.name!r} stands twice in one request")
            created = await context.broker.topics.create(
                _new_topic(topic), dry_run=request.validate_only
            )
        except PenstockError as error:
            results.append(_refused_topic(topic.name, error, context.broker))
        else:
            results.append(_created_topic(topic.name, created, context.broker))
    return create_out.CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=tuple(results))


def _new_topic(topic: create_in.CreatableTopic) -> NewTopic:
    assignments = None
    if topic.assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise InvalidRequest(
                f"topic {topic.name!r} is given replicas, so its number of partitions and its"
                " replication factor must both be -1"
            )
        by_partition = {int(each.partition_index): each.broker_ids for each in topic.assignments}
        if sorted(by_partition) != list(range(len(topic.assignments))):
            raise InvalidRequest(
                f"the partitions of topic {topic.name!r} are not numbered from 0 without a gap"
            )
        assignments = [by_partition[number] for number in range(len(by_partition))]
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {config.name: config.value for config in topic.configs},
        assignments,
    )


def _created_topic(
    name: TopicName, created: Topic, broker: Broker
) -> create_out.CreatableTopicResult:
    return create_out.CreatableTopicResult(
        name=name,
        topic_id=created.topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=i32(created.partitions),
        replication_factor=i16(len(created.replicas[0].members)),
        configs=creation_configs(broker, created),
    )


def _refused_topic(
    name: TopicName, error: PenstockError, broker: Broker
) -> create_out.CreatableTopicResult:
    return create_out.CreatableTopicResult(
        name=name,
        topic_id=None,
        **error_fields(error, broker),
        configs=(),
    )


def _upgrade_delete(message: Any) -> Any:
    """Versions before 6 list names only."""
    if not hasattr(message, "topic_names"):
        return message
    return delete_in.DeleteTopicsRequest(
        topics=tuple(
            delete_in.DeleteTopicState(name=name, topic_id=None) for name in message.topic_names
        ),
        timeout=message.timeout,
    )


async def _delete_topics(
    request: delete_in.DeleteTopicsRequest, context: Context
) -> delete_out.DeleteTopicsResponse:
    results = []
    for topic in request.topics:
        name = topic.name
        try:
            name = _name_of(topic, context.broker)
            await context.broker.topics.delete(name)
            code, message = ErrorCode.none, None
        except PenstockError as error:
            code, message = error_code(error, context.broker), str(error)
        results.append(
            delete_out.DeletableTopicResult(
                name=name, topic_id=topic.topic_id, error_code=code, error_message=message
            )
        )
    return delete_out.DeleteTopicsResponse(throttle_time=NO_THROTTLE, responses=tuple(results))


def _name_of(topic: delete_in.DeleteTopicState, broker: Broker) -> TopicName:
    if topic.name is not None:
        return topic.name
    try:
        found = broker.metadata.topic_by_public_id(topic.topic_id or uuid.UUID(int=0))
    except TopicNotFound as error:
        raise TopicIdMismatch(str(error)) from error
    return TopicName(found.name)


async def _create_partitions(
    request: grow_in.CreatePartitionsRequest, context: Context
) -> grow_out.CreatePartitionsResponse:
    results = []
    for topic in request.topics:
        try:
            await context.broker.topics.grow(
                topic.name,
                topic.count,
                assignments=_new_places(topic),
                dry_run=request.validate_only,
            )
            code, message = ErrorCode.none, None
        except PenstockError as error:
            code, message = error_code(error, context.broker), str(error)
        results.append(
            grow_out.CreatePartitionsTopicResult(
                name=topic.name, error_code=code, error_message=message
            )
        )
    return grow_out.CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def _new_places(topic: grow_in.CreatePartitionsTopic) -> list[tuple[int, ...]] | None:
    if topic.assignments is None:
        return None
    return [tuple(map(int, each.broker_ids)) for each in topic.assignments]


async def _delete_records(
    request: records_in.DeleteRecordsRequest, context: Context
) -> records_out.DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        partitions = [
            await _delete_below(TopicPartition(topic.name, wanted.partition_index), wanted, context)
            for wanted in topic.partitions
        ]
        topics.append(
            records_out.DeleteRecordsTopicResult(name=topic.name, partitions=tuple(partitions))
        )
    return records_out.DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


async def _delete_below(
    place: TopicPartition, wanted: records_in.DeleteRecordsPartition, context: Context
) -> records_out.DeleteRecordsPartitionResult:
    try:
        partition = context.broker.partition(place)
        # -1 stands for everything that is committed.
        end = partition.high_watermark if wanted.offset == -1 else Offset(wanted.offset)
        low_watermark = await partition.delete_records(end)
        code = ErrorCode.none
    except PenstockError as error:
        low_watermark, code = Offset(-1), error_code(error, context.broker)
    return records_out.DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=i64(low_watermark), error_code=code
    )
