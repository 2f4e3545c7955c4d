"""ElectLeaders: the first replicas of partitions are to lead them again.

Unclean elections, the other kind that Kafka has, would give up acknowledged records. They are
answered as Kafka answers where no replica can be elected: not needed where there is a leader, and
no eligible leader where there is none.
"""

from collections.abc import Mapping

from kio.schema.elect_leaders.v2 import request as wire_in
from kio.schema.elect_leaders.v2 import response as wire_out
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32

from penstock.errors import AlreadyLed, InvalidRequest, PenstockError
from penstock.ids import TopicPartition
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE
from penstock.protocols.kafka.errors import error_code, error_fields

_PREFERRED = 0
_UNCLEAN = 1


def apis() -> list[Api]:
    """Return the API. Version 0 knows preferred elections only."""
    return [plain_api(43, "ElectLeaders", range(3), _elect_leaders, may_wait=True)]


async def _elect_leaders(
    request: wire_in.ElectLeadersRequest, context: Context
) -> wire_out.ElectLeadersResponse:
    try:
        outcomes = await _elect(request, context)
    except PenstockError as error:
        return wire_out.ElectLeadersResponse(
            throttle_time=NO_THROTTLE,
            error_code=error_code(error, context.broker),
            replica_election_results=(),
        )
    if request.topic_partitions is None:
        # Whoever asks for all is told of those where something was to be done.
        outcomes = {
            place: error for place, error in outcomes.items() if not isinstance(error, AlreadyLed)
        }
    return wire_out.ElectLeadersResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        replica_election_results=_results(outcomes, context),
    )


async def _elect(
    request: wire_in.ElectLeadersRequest, context: Context
) -> Mapping[TopicPartition, PenstockError | None]:
    elections = context.broker.elections
    places = _places(request, context)
    if request.election_type == _PREFERRED:
        wait_ms = int(request.timeout.total_seconds() * 1000)
        return await elections.elect_preferred(places, wait_ms=wait_ms)
    if request.election_type == _UNCLEAN:
        return {place: elections.refuse_unclean(place) for place in places}
    raise InvalidRequest(
        f"the type of an election is {_PREFERRED}, preferred, or {_UNCLEAN}, unclean,"
        f" not {request.election_type}"
    )


def _places(request: wire_in.ElectLeadersRequest, context: Context) -> list[TopicPartition]:
    if request.topic_partitions is None:
        topics = context.broker.metadata.topics.values()
        return [
            TopicPartition(topic.name, number)
            for topic in topics
            for number in range(topic.partitions)
        ]
    return [
        TopicPartition(topic.topic, int(number))
        for topic in request.topic_partitions
        for number in topic.partitions
    ]


def _results(
    outcomes: Mapping[TopicPartition, PenstockError | None], context: Context
) -> tuple[wire_out.ReplicaElectionResult, ...]:
    by_topic: dict[str, list[wire_out.PartitionResult]] = {}
    for place, error in outcomes.items():
        result = wire_out.PartitionResult(
            partition_id=i32(place.partition), **error_fields(error, context.broker)
        )
        by_topic.setdefault(place.topic, []).append(result)
    return tuple(
        wire_out.ReplicaElectionResult(topic=TopicName(topic), partition_result=tuple(results))
        for topic, results in by_topic.items()
    )
