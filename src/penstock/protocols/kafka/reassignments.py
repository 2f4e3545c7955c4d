"""AlterPartitionReassignments and ListPartitionReassignments: moves of partitions, as Kafka's tools
know them.
"""

from kio.schema.alter_partition_reassignments.v1 import request as alter_in
from kio.schema.alter_partition_reassignments.v1 import response as alter_out
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0 import request as list_in
from kio.schema.list_partition_reassignments.v0 import response as list_out
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from penstock.broker import Move
from penstock.errors import PenstockError
from penstock.ids import TopicPartition
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE
from penstock.protocols.kafka.errors import error_fields


def apis() -> list[Api]:
    """Return both APIs."""
    return [
        plain_api(45, "AlterPartitionReassignments", range(2), _alter_reassignments),
        plain_api(46, "ListPartitionReassignments", range(1), _list_reassignments),
    ]


async def _alter_reassignments(
    request: alter_in.AlterPartitionReassignmentsRequest, context: Context
) -> alter_out.AlterPartitionReassignmentsResponse:
    """Begin moves, and cancel those of partitions that no replicas are given for."""
    responses = []
    for topic in request.topics:
        partitions = [
            alter_out.ReassignablePartitionResponse(
                partition_index=wanted.partition_index,
                **error_fields(await _alter(topic.name, wanted, request, context), context.broker),
            )
            for wanted in topic.partitions
        ]
        responses.append(
            alter_out.ReassignableTopicResponse(name=topic.name, partitions=tuple(partitions))
        )
    return alter_out.AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.none,
        error_message=None,
        responses=tuple(responses),
    )


async def _alter(
    topic: str,
    wanted: alter_in.ReassignablePartition,
    request: alter_in.AlterPartitionReassignmentsRequest,
    context: Context,
) -> PenstockError | None:
    place = TopicPartition(topic, int(wanted.partition_index))
    operations = context.broker.operations
    try:
        if wanted.replicas is None:
            await operations.cancel_move(place)
        else:
            await operations.move(
                place,
                [int(node) for node in wanted.replicas],
                may_resize=request.allow_replication_factor_change,
            )
    except PenstockError as error:
        return error
    return None


async def _list_reassignments(
    request: list_in.ListPartitionReassignmentsRequest, context: Context
) -> list_out.ListPartitionReassignmentsResponse:
    by_topic: dict[str, list[list_out.OngoingPartitionReassignment]] = {}
    for move in context.broker.operations.moves():
        if _is_asked_for(move.place, request):
            by_topic.setdefault(move.place.topic, []).append(_reassignment(move))
    return list_out.ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            list_out.OngoingTopicReassignment(name=TopicName(topic), partitions=tuple(partitions))
            for topic, partitions in by_topic.items()
        ),
    )


def _is_asked_for(
    place: TopicPartition, request: list_in.ListPartitionReassignmentsRequest
) -> bool:
    return request.topics is None or any(
        topic.name == place.topic and place.partition in topic.partition_indexes
        for topic in request.topics
    )


def _reassignment(move: Move) -> list_out.OngoingPartitionReassignment:
    return list_out.OngoingPartitionReassignment(
        partition_index=i32(move.place.partition),
        replicas=tuple(map(BrokerId, move.nodes)),
        adding_replicas=tuple(map(BrokerId, move.joining)),
        removing_replicas=tuple(map(BrokerId, move.leaving)),
    )
