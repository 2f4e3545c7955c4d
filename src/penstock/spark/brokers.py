"""The brokers of a cluster: their partitions, who leads these, and which offsets they hold.

One `Brokers` belongs to one Python process and one cluster. Connections are lent out and come back
when nothing is outstanding on them, so that tasks which follow each other in one worker reuse them.
Nothing is retried here: what fails raises `Unavailable`, and those who ask decide.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from typing import Any

from kio.schema.describe_configs.v4.request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.list_offsets.v7.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import BrokerId, ProducerId, TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from penstock.errors import NotLeader, PenstockError, TopicNotFound, Unavailable
from penstock.ids import TopicPartition
from penstock.spark.connection import Address, BrokerConnection, addresses_of

# In place of a time, these ask for the ends of a partition.
LATEST = -1
EARLIEST = -2
_CONSUMER = BrokerId(-1)
_TOPIC_RESOURCE = 2
_BATCH_BYTES_MAX = "max.message.bytes"
_INIT_PRODUCER = InitProducerIdRequest(
    transactional_id=None,
    transaction_timeout=i32Timedelta.parse(timedelta(0)),
    producer_id=ProducerId(-1),
    producer_epoch=i16(-1),
)


class Brokers:
    """The brokers of one cluster as one process sees them."""

    def __init__(self, bootstrap: str, wait_s: float) -> None:
        self._bootstrap = addresses_of(bootstrap)
        self._wait_s = wait_s
        self._known: list[Address] = []
        self._leaders: dict[TopicPartition, Address] = {}
        self._ids: dict[str, str] = {}
        self._idle: dict[Address, list[BrokerConnection]] = {}

    def partitions(self, topics: Collection[str] | None) -> dict[str, list[int]]:
        """Return the partitions of these topics, or of all; a topic that is not there raises."""
        answer = self._describe(topics)
        return {
            str(topic.name): sorted(int(each.partition_index) for each in topic.partitions)
            for topic in answer.topics
            if not topic.is_internal or topics is not None
        }

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic, which tells it from an earlier one of its name."""
        return str(self._describe([topic]).topics[0].topic_id)

    def ids_nowait(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of topics as they were last described; brokers without ids give none."""
        return {topic: self._ids[topic] for topic in topics if topic in self._ids}

    def offsets(
        self, times_ms: Mapping[TopicPartition, int], *, is_committed_only: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the first offset at or after a time in each partition; -1 where there is none.

        `EARLIEST` and `LATEST` stand for the ends of the partition.
        """
        missing = {each.topic for each in times_ms if each not in self._leaders}
        if missing:
            self._describe(missing)
        led: dict[Address, list[TopicPartition]] = defaultdict(list)
        for each in times_ms:
            led[self._leader(each)].append(each)
        found: dict[TopicPartition, int] = {}
        for address, partitions in led.items():
            request = _list_offsets(
                {each: times_ms[each] for each in partitions}, is_committed_only
            )
            found.update(self._found_offsets(self._ask(address, request)))
        return found

    def leader_of(self, partition: TopicPartition) -> Address:
        """Return where the leader of a partition listens."""
        if partition not in self._leaders:
            self._describe([partition.topic])
        return self._leader(partition)

    def lend_leader(self, partition: TopicPartition) -> BrokerConnection:
        """Return a connection to the leader of a partition; `give_back` or close it."""
        return self.lend(self.leader_of(partition))

    def lend(self, address: Address) -> BrokerConnection:
        """Return a connection to a broker; `give_back` or close it."""
        idle = self._idle.get(address)
        return idle.pop() if idle else BrokerConnection(address, self._wait_s)

    def batch_bytes_max(self, topic: str) -> int:
        """Return the limit of a topic's batches."""
        answer = self._ask_anyone(_describe_config(topic, _BATCH_BYTES_MAX))
        for result in answer.results:
            raise_for_code(result.error_code, f"topic {topic}")
            for config in result.configs:
                return int(config.value)
        raise PenstockError(f"topic {topic}: the broker did not tell {_BATCH_BYTES_MAX}")

    def new_producer(self) -> tuple[int, int]:
        """Return the id and the epoch of a new idempotent producer."""
        answer = self._ask_anyone(_INIT_PRODUCER)
        raise_for_code(answer.error_code, "producer id")
        return int(answer.producer_id), int(answer.producer_epoch)

    def give_back(self, connection: BrokerConnection) -> None:
        """Keep a connection for the next one, unless an answer is still to come."""
        if connection.outstanding:
            connection.close()
        else:
            self._idle.setdefault(connection.address, []).append(connection)

    def forget(self, partition: TopicPartition) -> None:
        """Ask again who leads a partition, and trust no connection that is lying about."""
        address = self._leaders.pop(partition, None)
        for connection in self._idle.pop(address, []) if address is not None else []:
            connection.close()

    def forget_leaders(self) -> None:
        """Ask again who leads what."""
        for partition in list(self._leaders):
            self.forget(partition)

    def _leader(self, partition: TopicPartition) -> Address:
        leader = self._leaders.get(partition)
        if leader is None:
            raise NotLeader(
                f"topic {partition.topic} partition {partition.partition}"
                " has no leader at the moment"
            )
        return leader

    def _describe(self, topics: Collection[str] | None) -> Any:
        answer = self._ask_anyone(_metadata_request(topics))
        brokers = {each.node_id: Address(each.host, int(each.port)) for each in answer.brokers}
        self._known = list(brokers.values())
        for topic in answer.topics:
            if topic.error_code == ErrorCode.unknown_topic_or_partition:
                raise TopicNotFound(f"there is no topic {topic.name}")
            raise_for_code(topic.error_code, f"topic {topic.name}")
            if topic.topic_id:
                self._ids[str(topic.name)] = str(topic.topic_id)
            for each in topic.partitions:
                place = TopicPartition(str(topic.name), int(each.partition_index))
                leader = brokers.get(each.leader_id)
                if leader is None:
                    self._leaders.pop(place, None)
                else:
                    self._leaders[place] = leader
        return answer

    def _ask_anyone(self, message: Any) -> Any:
        refusals = []
        for address in dict.fromkeys([*self._known, *self._bootstrap]):
            try:
                return self._ask(address, message)
            except Unavailable as error:
                refusals.append(str(error))
        raise Unavailable("; ".join(refusals))

    def _ask(self, address: Address, message: Any) -> Any:
        connection = self.lend(address)
        try:
            answer = connection.ask(message)
        except Unavailable:
            connection.close()
            raise
        self.give_back(connection)
        return answer

    def _found_offsets(self, answer: Any) -> Iterator[tuple[TopicPartition, int]]:
        for topic in answer.topics:
            for each in topic.partitions:
                place = TopicPartition(str(topic.name), int(each.partition_index))
                raise_for_code(each.error_code, f"topic {place.topic} partition {place.partition}")
                yield place, int(each.offset)


@cache
def brokers_of(bootstrap: str, wait_s: float) -> Brokers:
    """Return the brokers of a cluster; a process keeps them from task to task."""
    return Brokers(bootstrap, wait_s)


def raise_for_code(code: int, place: str) -> None:
    """Raise what a broker's error code stands for; what may pass is `Unavailable`."""
    if code == ErrorCode.none:
        return
    try:
        known = ErrorCode(code)
    except ValueError:
        raise PenstockError(f"{place}: the broker answered with error code {code}") from None
    kind = Unavailable if known.retriable else PenstockError
    raise kind(f"{place}: the broker answered {known.name.upper()} ({code})")


def _metadata_request(topics: Iterable[str] | None) -> MetadataRequest:
    named = None
    if topics is not None:
        named = tuple(
            MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in sorted(topics)
        )
    return MetadataRequest(
        topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )


def _describe_config(topic: str, name: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=i8(_TOPIC_RESOURCE), resource_name=topic, configuration_keys=(name,)
    )
    return DescribeConfigsRequest(resources=(resource,))


def _list_offsets(
    times_ms: Mapping[TopicPartition, int], is_committed_only: bool
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for (topic, partition), time_ms in times_ms.items():
        topics[topic].append(
            ListOffsetsPartition(partition_index=i32(partition), timestamp=i64(time_ms))
        )
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=i8(int(is_committed_only)),
        topics=tuple(
            ListOffsetsTopic(name=TopicName(name), partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )
