"""Leaders and replicas of a cluster, seen and changed with Kafka's own requests.

librdkafka asks for elections; reassignments, which it does not know, are asked for on the wire.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kio.schema.alter_partition_reassignments.v0 import request as alter_v0
from kio.schema.alter_partition_reassignments.v1 import request as alter
from kio.schema.create_topics.v7 import request as creation
from kio.schema.describe_quorum.v0 import request as quorum_v0
from kio.schema.describe_quorum.v2 import request as quorum
from kio.schema.elect_leaders.v0 import request as elect_v0
from kio.schema.elect_leaders.v2 import request as elect
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0 import request as listing
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32

from penstock.client import ClusterAdmin
from tests.kafka_clients import DEADLINE_S, new_admin, unique, wait_until
from tests.kafka_wire import WireClient
from tests.processes import ClusterProcess

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Three nodes whose leaders stay where tests bring them."""
    directory = tmp_path_factory.mktemp("cluster")
    with ClusterProcess(directory, 3, "--leader-balance-interval-ms", "0") as running:
        yield running


@pytest.fixture
def asked(cluster: ClusterProcess) -> Iterator[WireClient]:
    """A connection to a node that need not lead anything."""
    with WireClient(cluster[2].kafka_port) as client:
        yield client


def placed_topic(cluster: ClusterProcess, *places: list[int]) -> str:
    """Create a topic with these replicas, each partition led by the first of them."""
    name = unique("topic")
    admin = new_admin(cluster[1])
    topic = NewTopic(name, num_partitions=len(places), replica_assignment=list(places))
    admin.create_topics([topic])[name].result(DEADLINE_S)
    for number, nodes in enumerate(places):
        lead(cluster, name, number, nodes[0])
    return name


def lead(cluster: ClusterProcess, topic: str, number: int, node_id: int) -> None:
    """Let a node lead a partition."""
    operator = ClusterAdmin(cluster[1].http_url)
    wait_until(lambda: operator.partitions(topic)[number].leader is not None, "there is a leader")
    operator.transfer_leader(topic, number, node_id)
    wait_until(lambda: leader_of(cluster, topic, number) == node_id, f"node {node_id} leads")


def leader_of(cluster: ClusterProcess, topic: str, number: int = 0) -> int | None:
    return ClusterAdmin(cluster[2].http_url).partitions(topic)[number].leader


def elected(
    admin: AdminClient, kind: ElectionType, places: list[TopicPartition] | None
) -> dict[tuple[str, int], int]:
    """Ask for elections and return the code of each partition."""
    results = admin.elect_leaders(kind, places).result(DEADLINE_S)
    return {
        (place.topic, place.partition): error.code() if error else KafkaError.NO_ERROR
        for place, error in results.items()
    }


# The metadata.


@pytest.mark.parametrize("asked_node", [1, 2, 3])
def test_every_node_tells_who_votes_on_the_metadata(
    cluster: ClusterProcess, asked_node: int
) -> None:
    with WireClient(cluster[asked_node].kafka_port) as client:
        answer = client.ask(quorum_request("__cluster_metadata"))
        oldest = client.ask(quorum_request("__cluster_metadata", quorum_v0))
        other = client.ask(quorum_request("orders"))

    ((found,),) = [topic.partitions for topic in answer.topics]
    leader = ClusterAdmin(cluster[1].http_url).overview().metadata_leader
    assert (answer.error_code, found.error_code) == (ErrorCode.none, ErrorCode.none)
    assert found.leader_id == leader
    assert found.leader_epoch > 0
    assert sorted(each.replica_id for each in found.current_voters) == [1, 2, 3]
    ends = {each.replica_id: each.log_end_offset for each in found.current_voters}
    assert 1 < found.high_watermark <= ends[leader]
    assert {node.node_id: node.listeners[0].port for node in answer.nodes} == cluster.peer_ports
    assert oldest.topics[0].partitions[0].leader_id == leader
    assert other.topics[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition


def quorum_request(topic: str, schema: Any = quorum) -> Any:
    partition = schema.PartitionData(partition_index=i32(0))
    wanted = schema.TopicData(topic_name=TopicName(topic), partitions=(partition,))
    return schema.DescribeQuorumRequest(topics=(wanted,))


# Elections.


def test_the_first_replica_leads_again_when_the_election_is_answered(
    cluster: ClusterProcess,
) -> None:
    topic = placed_topic(cluster, [1, 2, 3], [2, 3, 1])
    lead(cluster, topic, 0, 3)

    places = [TopicPartition(topic, number) for number in (0, 1, 7)]
    codes = elected(new_admin(cluster[2]), ElectionType.PREFERRED, places)

    assert leader_of(cluster, topic) == 1
    assert codes == {
        (topic, 0): KafkaError.NO_ERROR,
        (topic, 1): KafkaError.ELECTION_NOT_NEEDED,
        (topic, 7): KafkaError.UNKNOWN_TOPIC_OR_PART,
    }


def test_an_election_of_all_tells_of_those_that_it_changed(cluster: ClusterProcess) -> None:
    topic = placed_topic(cluster, [1, 2, 3], [2, 3, 1])
    lead(cluster, topic, 1, 1)

    codes = elected(new_admin(cluster[3]), ElectionType.PREFERRED, None)

    assert codes[topic, 1] == KafkaError.NO_ERROR
    assert (topic, 0) not in codes
    assert leader_of(cluster, topic, 1) == 2


def test_no_election_gives_up_acknowledged_records(cluster: ClusterProcess) -> None:
    topic = placed_topic(cluster, [1, 2, 3])
    lead(cluster, topic, 0, 2)

    codes = elected(new_admin(cluster[1]), ElectionType.UNCLEAN, [TopicPartition(topic, 0)])

    assert codes == {(topic, 0): KafkaError.ELECTION_NOT_NEEDED}
    assert leader_of(cluster, topic) == 2


def test_elections_of_other_versions_and_types(cluster: ClusterProcess, asked: WireClient) -> None:
    topic = placed_topic(cluster, [1, 2, 3])
    lead(cluster, topic, 0, 3)
    wanted = elect_v0.TopicPartitions(topic=TopicName(topic), partitions=(i32(0),))

    (answer,) = asked.ask(
        elect_v0.ElectLeadersRequest(topic_partitions=(wanted,))
    ).replica_election_results
    refused = asked.ask(elect.ElectLeadersRequest(election_type=i8(2), topic_partitions=()))

    assert [each.error_code for each in answer.partition_result] == [ErrorCode.none]
    assert leader_of(cluster, topic) == 1
    assert refused.error_code is ErrorCode.invalid_request


# Reassignments.


def reassign(
    client: WireClient, topic: str, nodes: list[int] | None, number: int = 0, **options: Any
) -> Any:
    """Ask for replicas, or for the end of a move, and return the answer for the partition."""
    replicas = None if nodes is None else tuple(map(BrokerId, nodes))
    partition = alter.ReassignablePartition(partition_index=i32(number), replicas=replicas)
    wanted = alter.ReassignableTopic(name=TopicName(topic), partitions=(partition,))
    request = alter.AlterPartitionReassignmentsRequest(topics=(wanted,), **options)
    ((answer,),) = [each.partitions for each in client.ask(request).responses]
    return answer


def moving(client: WireClient, topic: str | None = None) -> dict[str, Any]:
    """Return what is being moved, of one topic or of all."""
    wanted = None
    if topic is not None:
        name = TopicName(topic)
        wanted = (listing.ListPartitionReassignmentsTopics(name=name, partition_indexes=(i32(0),)),)
    answer = client.ask(listing.ListPartitionReassignmentsRequest(topics=wanted))
    assert answer.error_code is ErrorCode.none
    return {each.name: each.partitions for each in answer.topics}


def replicas_of(cluster: ClusterProcess, topic: str, number: int = 0) -> tuple[int, ...]:
    return ClusterAdmin(cluster[1].http_url).partitions(topic)[number].nodes
    return ClusterAdmin(cluster[1].http_url).partitions(topic)[0].nodes


def test_a_partition_is_reassigned_to_other_nodes(
    cluster: ClusterProcess, asked: WireClient
) -> None:
    topic = placed_topic(cluster, [1, 2])

    answer = reassign(asked, topic, [3, 2])
    wait_until(lambda: not moving(asked, topic), "the move is done")

    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    assert replicas_of(cluster, topic) == (3, 2)
    codes = elected(new_admin(cluster[1]), ElectionType.PREFERRED, [TopicPartition(topic, 0)])
    assert codes[topic, 0] in (KafkaError.NO_ERROR, KafkaError.ELECTION_NOT_NEEDED)
    assert leader_of(cluster, topic) == 3


@pytest.mark.parametrize(
    ("nodes", "code", "words"),
    [
        ([1, 9], ErrorCode.invalid_replica_assignment, "[1, 9]"),
        ([1, 1], ErrorCode.invalid_replica_assignment, "[1, 1]"),
        ([], ErrorCode.invalid_replica_assignment, "[]"),
        (None, ErrorCode.no_reassignment_in_progress, "is not being moved"),
    ],
    ids=["unknown", "twice", "none", "cancelled"],
)
def test_a_reassignment_that_cannot_be_is_refused(
    cluster: ClusterProcess,
    asked: WireClient,
    nodes: list[int] | None,
    code: ErrorCode,
    words: str,
) -> None:
    topic = placed_topic(cluster, [1, 2])

    answer = reassign(asked, topic, nodes)

    assert answer.error_code is code
    assert words in answer.error_message
    assert not moving(asked, topic)


def test_partitions_that_nobody_knows_are_not_reassigned(
    cluster: ClusterProcess, asked: WireClient
) -> None:
    topic = placed_topic(cluster, [1, 2])

    for answer in (reassign(asked, topic, [1], number=4), reassign(asked, "nowhere", None)):
        assert answer.error_code is ErrorCode.unknown_topic_or_partition


def test_the_number_of_replicas_stays_when_the_request_says_so(
    cluster: ClusterProcess, asked: WireClient
) -> None:
    topic = placed_topic(cluster, [1, 2])

    refused = reassign(asked, topic, [1, 2, 3], allow_replication_factor_change=False)
    assert refused.error_code is ErrorCode.invalid_replication_factor
    assert "3 replicas" in refused.error_message

    assert reassign(asked, topic, [1, 2, 3]).error_code is ErrorCode.none
    wait_until(lambda: not moving(asked, topic), "the third replica is there")
    assert replicas_of(cluster, topic) == (1, 2, 3)


def test_what_is_being_moved_is_listed_and_can_be_cancelled(
    cluster: ClusterProcess, asked: WireClient
) -> None:
    topic = placed_topic(cluster, [1, 2])
    cluster[3].kill()

    assert reassign(asked, topic, [1, 3]).error_code is ErrorCode.none
    (listed,) = moving(asked)[topic]
    assert moving(asked, topic)[topic] == (listed,)
    assert not moving(asked, "another")
    cancelled = asked.ask(cancellation_v0(topic))
    wait_until(lambda: not moving(asked, topic), "the move is taken back")

    assert (listed.partition_index, listed.replicas) == (0, (1, 3, 2))
    assert (listed.adding_replicas, listed.removing_replicas) == ((3,), (2,))
    assert cancelled.responses[0].partitions[0].error_code is ErrorCode.none
    assert replicas_of(cluster, topic) == (1, 2)
    cluster[3].start()


def cancellation_v0(topic: str) -> Any:
    partition = alter_v0.ReassignablePartition(partition_index=i32(0), replicas=None)
    wanted = alter_v0.ReassignableTopic(name=TopicName(topic), partitions=(partition,))
    return alter_v0.AlterPartitionReassignmentsRequest(topics=(wanted,))


def test_a_replica_that_is_down_is_not_elected_and_no_other_in_its_place(
    cluster: ClusterProcess,
) -> None:
    topic = placed_topic(cluster, [3, 1, 2])
    lone = placed_topic(cluster, [3])
    cluster[3].kill()
    wait_until(lambda: leader_of(cluster, topic) in (1, 2), "another node leads")
    wait_until(lambda: leader_of(cluster, lone) is None, "nobody leads")
    places = [TopicPartition(topic, 0), TopicPartition(lone, 0)]

    preferred = elected(new_admin(cluster[1]), ElectionType.PREFERRED, places)
    unclean = elected(new_admin(cluster[1]), ElectionType.UNCLEAN, places)

    assert set(preferred.values()) == {KafkaError.PREFERRED_LEADER_NOT_AVAILABLE}
    assert unclean == {
        (topic, 0): KafkaError.ELECTION_NOT_NEEDED,
        (lone, 0): KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
    cluster[3].start()


def test_replicas_at_unknown_nodes_are_refused_at_creation(cluster: ClusterProcess) -> None:
    name = unique("topic")
    admin = new_admin(cluster[1])
    topic = NewTopic(name, num_partitions=1, replica_assignment=[[1, 9]])

    with pytest.raises(KafkaException, match=r"\[1, 9\]") as caught:
        admin.create_topics([topic])[name].result(DEADLINE_S)

    assert caught.value.args[0].code() == KafkaError.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("is_tried_only", [False, True])
def test_who_creates_a_topic_is_told_how_many_replicas_it_has(
    asked: WireClient, is_tried_only: bool
) -> None:
    topic = creation.CreatableTopic(
        name=TopicName(unique("topic")),
        num_partitions=i32(2),
        replication_factor=i16(3),
        assignments=(),
        configs=(creation.CreatableTopicConfig(name="retention.ms", value="7000"),),
    )

    (created,) = asked.ask(
        creation.CreateTopicsRequest(topics=(topic,), validate_only=is_tried_only)
    ).topics

    assert created.error_code is ErrorCode.none
    assert (created.num_partitions, created.replication_factor) == (2, 3)
    assert {each.name: each.value for each in created.configs}["retention.ms"] == "7000"
    assert (created.topic_id is None) == is_tried_only


def test_new_partitions_get_the_replicas_that_are_asked_for(cluster: ClusterProcess) -> None:
    topic = placed_topic(cluster, [1, 2])
    admin = new_admin(cluster[1])

    def grow(*places: list[int]) -> None:
        wanted = NewPartitions(topic, 3, replica_assignment=list(places))
        admin.create_partitions([wanted])[topic].result(DEADLINE_S)

    with pytest.raises(KafkaException, match="2 new partitions") as caught:
        grow([3, 1], [2])
    grow([3, 1], [2, 3])

    assert caught.value.args[0].code() == KafkaError.INVALID_REPLICA_ASSIGNMENT
    assert [replicas_of(cluster, topic, number) for number in range(3)] == [(1, 2), (3, 1), (2, 3)]
