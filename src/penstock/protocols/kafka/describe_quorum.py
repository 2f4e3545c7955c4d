"""DescribeQuorum: who votes on the metadata of the cluster, which Kafka has its own name for."""

from collections.abc import Iterable

from kio.schema.describe_quorum.v2 import request as wire_in
from kio.schema.describe_quorum.v2 import response as wire_out
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i64, u16

from penstock.broker import QuorumReplica, QuorumStatus
from penstock.errors import PenstockError, TopicNotFound
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.errors import error_fields

_METADATA_TOPIC = "__cluster_metadata"
# The address that the nodes of a cluster know each other by.
_LISTENER = "PEER"


def apis() -> list[Api]:
    """Return the API."""
    return [plain_api(55, "DescribeQuorum", range(3), _describe_quorum)]


async def _describe_quorum(
    request: wire_in.DescribeQuorumRequest, context: Context
) -> wire_out.DescribeQuorumResponse:
    try:
        status = await context.broker.quorum.status()
    except PenstockError as error:
        return wire_out.DescribeQuorumResponse(
            **error_fields(error, context.broker), topics=(), nodes=()
        )
    return wire_out.DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            wire_out.TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    _partition(topic.topic_name, int(each.partition_index), status, context)
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        nodes=_nodes(status, context),
    )


def _partition(
    topic: TopicName, number: int, status: QuorumStatus, context: Context
) -> wire_out.PartitionData:
    if (topic, number) != (_METADATA_TOPIC, 0):
        error = TopicNotFound(f"{topic}-{number} is not {_METADATA_TOPIC}-0, which nodes vote on")
        return wire_out.PartitionData(
            partition_index=i32(number),
            **error_fields(error, context.broker),
            leader_id=BrokerId(-1),
            leader_epoch=i32(-1),
            high_watermark=i64(-1),
            current_voters=(),
            observers=(),
        )
    return wire_out.PartitionData(
        partition_index=i32(0),
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=BrokerId(status.leader),
        leader_epoch=i32(status.term),
        high_watermark=i64(status.committed_end),
        current_voters=_replicas(status.voters),
        observers=_replicas(status.learners),
    )


def _replicas(replicas: Iterable[QuorumReplica]) -> tuple[wire_out.ReplicaState, ...]:
    """Describe replicas. Leaders do not note when they heard from whom, so no times are told."""
    return tuple(
        wire_out.ReplicaState(
            replica_id=BrokerId(each.node),
            replica_directory_id=None,
            log_end_offset=i64(each.end),
        )
        for each in replicas
    )


def _nodes(status: QuorumStatus, context: Context) -> tuple[wire_out.Node, ...]:
    known = context.broker.metadata.nodes
    return tuple(
        wire_out.Node(
            node_id=BrokerId(each.node),
            listeners=(
                wire_out.Listener(
                    name=_LISTENER,
                    host=known[each.node].peer_host,
                    port=u16(known[each.node].peer_port),
                ),
            ),
        )
        for each in status.voters
        if each.node in known
    )
