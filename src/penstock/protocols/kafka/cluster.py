"""DescribeCluster, DescribeLogDirs and InitProducerId."""

from collections import defaultdict

from kio.schema.describe_cluster.v1 import request as cluster_in
from kio.schema.describe_cluster.v1 import response as cluster_out
from kio.schema.describe_log_dirs.v4 import request as dirs_in
from kio.schema.describe_log_dirs.v4 import response as dirs_out
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4 import request as producer_in
from kio.schema.init_producer_id.v4 import response as producer_out
from kio.schema.types import BrokerId, ProducerId, TopicName
from kio.static.primitive import i16, i32, i64

from penstock.broker import Partition
from penstock.errors import PenstockError, UnsupportedVersion
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE
from penstock.protocols.kafka.errors import error_code


def apis() -> list[Api]:
    """Return the APIs."""
    return [
        plain_api(22, "InitProducerId", range(5), _init_producer_id),
        plain_api(35, "DescribeLogDirs", range(1, 5), _describe_log_dirs),
        plain_api(60, "DescribeCluster", range(2), _describe_cluster),
    ]


async def _describe_cluster(
    request: cluster_in.DescribeClusterRequest, context: Context
) -> cluster_out.DescribeClusterResponse:
    del request
    metadata = context.broker.metadata
    return cluster_out.DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        cluster_id=str(metadata.cluster_id),
        controller_id=BrokerId(context.broker.controller),
        brokers=tuple(
            cluster_out.DescribeClusterBroker(
                broker_id=BrokerId(node.node_id), host=node.kafka_host, port=i32(node.kafka_port)
            )
            for node in context.broker.listed_nodes
        ),
    )


async def _describe_log_dirs(
    request: dirs_in.DescribeLogDirsRequest, context: Context
) -> dirs_out.DescribeLogDirsResponse:
    broker = context.broker
    by_topic: dict[str, list[Partition]] = defaultdict(list)
    for partition in broker.partitions:
        if _is_asked_for(partition, request):
            by_topic[partition.place.topic].append(partition)
    return dirs_out.DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        results=(
            dirs_out.DescribeLogDirsResult(
                error_code=ErrorCode.none,
                log_dir=str(broker.options.data_dir.absolute()),
                topics=tuple(
                    _topic_sizes(topic, partitions) for topic, partitions in by_topic.items()
                ),
                usable_bytes=i64(broker.space.free_bytes),
            ),
        ),
    )


def _is_asked_for(partition: Partition, request: dirs_in.DescribeLogDirsRequest) -> bool:
    return request.topics is None or any(
        topic.topic == partition.place.topic and partition.place.partition in topic.partitions
        for topic in request.topics
    )


def _topic_sizes(topic: str, partitions: list[Partition]) -> dirs_out.DescribeLogDirsTopic:
    return dirs_out.DescribeLogDirsTopic(
        name=TopicName(topic),
        partitions=tuple(
            dirs_out.DescribeLogDirsPartition(
                partition_index=i32(partition.place.partition),
                partition_size=i64(partition.log.log.size_bytes),
                offset_lag=i64(0),
                is_future_key=False,
            )
            for partition in partitions
        ),
    )


async def _init_producer_id(
    request: producer_in.InitProducerIdRequest, context: Context
) -> producer_out.InitProducerIdResponse:
    """Give an idempotent producer an id that nobody else has.

    An id that the request names says nothing: some clients write 0 where they have none.
    """
    try:
        if request.transactional_id is not None:
            # Clients look for a coordinator first and are told there. This answer has no room for
            # words, so its code has to say it.
            raise UnsupportedVersion("transactions are not supported")
        producer_id = await context.broker.new_producer_id()
    except PenstockError as error:
        return producer_out.InitProducerIdResponse(
            throttle_time=NO_THROTTLE,
            error_code=error_code(error, context.broker),
            producer_epoch=i16(-1),
        )
    return producer_out.InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(0),
    )
