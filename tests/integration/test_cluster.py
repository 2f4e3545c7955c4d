"""Three real nodes: they form a cluster, lose members, and lose nothing else."""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.list_offsets.v5.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

from penstock.client import Client
from penstock.record import Record, encode_batch
from tests.cluster_views import (
    leader_of,
    new_replicated_topic,
    stored_bytes,
    up_to_offset,
    view_from,
    wait_for,
)
from tests.kafka_clients import new_producer, new_topic, open_consumer, publish, read, unique
from tests.kafka_wire import WireClient
from tests.links import LinkedCluster
from tests.processes import ClusterProcess, NodeProcess

pytestmark = pytest.mark.crash

ALL = {1, 2, 3}
# The goal is 3 s. Three nodes and the tests share two cores here, so the bound is generous.
FAILOVER_S_MAX = 30.0
WAIT_S = 60.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedCluster]:
    """One cluster for most tests of this file, because forming one takes seconds."""
    with LinkedCluster(tmp_path_factory.mktemp("cluster"), 3) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LinkedCluster) -> LinkedCluster:
    """The shared cluster with all nodes up and all links whole."""
    shared.network.heal_all()
    shared.start()
    return shared


def values_of(cluster: ClusterProcess, topic: str, count: int, partition: int = 0) -> list[bytes]:
    """Return the first values of a partition, and check that no more follow."""
    with open_consumer(cluster, unique("reader"), enable_auto_commit=False) as consumer:
        place = TopicPartition(topic, partition, 0)
        consumer.assign([place])
        values = [message.value() for message in read(consumer, count)]
        assert end_offset(consumer, place) == count
        return values


def end_offset(consumer: Consumer, place: TopicPartition) -> int:
    """Ask for the end until a leader answers."""

    def ask() -> tuple[int, int] | None:
        try:
            return consumer.get_watermark_offsets(place, timeout=5)
        except KafkaException:
            return None

    return wait_for(ask, f"the end of {place.topic}")[1]


def numbered(count: int, word: str = "value") -> list[bytes]:
    return [f"{word}-{number}".encode() for number in range(count)]


# Forming.


def test_empty_nodes_form_a_cluster_in_whatever_order_they_start(tmp_path: Path) -> None:
    cluster = ClusterProcess(tmp_path, 3)
    try:
        for node_id in (3, 2, 1):
            cluster[node_id].launch()
            wait_for(
                lambda n=node_id: (
                    any(line["message"] == "waiting for nodes" for line in cluster[n].log_lines())
                    or n == 1
                ),
                f"node {node_id} waits for the others",
            )
        for node in cluster.nodes.values():
            node.wait_until_serving()

        nodes = list(cluster.nodes.values())
        wait_for(lambda: all(view_from(node).nodes == ALL for node in nodes), "all are listed")
        assert len({view_from(node).cluster_id for node in nodes}) == 1
    finally:
        cluster.kill()


def test_replicas_and_leaders_are_spread_over_all_nodes(cluster: LinkedCluster) -> None:
    topic = new_replicated_topic(cluster, unique("spread"), partitions=6)

    places = [(topic, partition) for partition in range(6)]
    view = view_from(cluster[1])
    assert all(set(view.replicas[place]) == ALL for place in places)
    assert Counter(view.replicas[place][0] for place in places) == {1: 2, 2: 2, 3: 2}
    wait_for(
        lambda: set(Counter(view_from(cluster[2]).leaders[place] for place in places)) == ALL,
        "every node leads some of six partitions",
    )


@pytest.mark.parametrize("node_id", sorted(ALL))
def test_any_node_creates_a_topic_and_all_nodes_know_it(
    cluster: LinkedCluster, node_id: int
) -> None:
    topic = unique("any")
    new = CreatableTopic(
        name=TopicName(topic),
        num_partitions=i32(2),
        replication_factor=i16(3),
        assignments=(),
        configs=(),
    )
    request = CreateTopicsRequest(
        topics=(new,), timeout=i32Timedelta.parse(timedelta(seconds=30)), validate_only=False
    )

    with WireClient(cluster[node_id].kafka_port) as client:
        (created,) = client.ask(request).topics

    assert created.error_code == ErrorCode.none
    for node in cluster.nodes.values():
        wait_for(lambda n=node: (topic, 1) in view_from(n).leaders, f"all nodes know {topic}")


# Losing nodes.


def test_another_node_leads_soon_after_a_leader_dies(
    cluster: LinkedCluster, record_property: Callable[[str, object], None]
) -> None:
    topic = new_replicated_topic(cluster, unique("failover"))
    producer = new_producer(cluster, acks="all", linger_ms=0, retry_backoff_ms=50)
    publish(cluster, topic, numbered(100), acks="all")
    acknowledged: list[bytes] = []

    leader = leader_of(cluster, topic)
    cluster[leader].kill()
    died_s = time.monotonic()
    producer.produce(
        topic, b"after", partition=0, on_delivery=lambda _, m: acknowledged.append(m.value())
    )
    assert producer.flush(FAILOVER_S_MAX) == 0
    took_s = time.monotonic() - died_s

    record_property("failover_s", round(took_s, 2))
    print(f"a new leader acknowledged {took_s:.2f} s after the death of node {leader}")
    assert acknowledged == [b"after"]
    assert values_of(cluster, topic, 101) == [*numbered(100), b"after"]


def test_clients_are_told_of_the_nodes_that_are_up(cluster: LinkedCluster) -> None:
    wait_for(lambda: view_from(cluster[1]).nodes == ALL, "all nodes are listed")

    cluster[3].kill()
    wait_for(lambda: view_from(cluster[1]).nodes == {1, 2}, "a node that is down is not listed")
    cluster[3].start()
    wait_for(lambda: view_from(cluster[1]).nodes == ALL, "it is listed when it is back")


def test_a_node_that_is_cut_off_tells_of_all_nodes(cluster: LinkedCluster) -> None:
    wait_for(lambda: view_from(cluster[1]).nodes == ALL, "all nodes are listed")

    cluster.network.isolate(3)

    wait_for(lambda: view_from(cluster[1]).nodes == {1, 2}, "the majority goes on without it")
    wait_for(lambda: b"cut off" in cluster[3].get("/ready")[1], "node 3 finds that it is cut off")
    assert _brokers_told_by(cluster[3]) == ALL


def _brokers_told_by(node: NodeProcess) -> set[int]:
    """Ask for nodes alone: a node that is cut off does not answer for partitions."""
    request = MetadataRequest(
        topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    with WireClient(node.kafka_port) as client:
        return {int(broker.node_id) for broker in client.ask(request).brokers}


def test_a_node_that_was_away_catches_up(cluster: LinkedCluster) -> None:
    topic = new_replicated_topic(cluster, unique("away"))
    publish(cluster, topic, numbered(10, "before"), acks="all")
    away = next(node for node in ALL if node != leader_of(cluster, topic))
    cluster[away].kill()

    publish(cluster, topic, numbered(2_000, "meanwhile"), acks="all")
    cluster[away].start()

    leader = leader_of(cluster, topic)
    expected = up_to_offset(stored_bytes(cluster[leader], topic, 0), 2_010)
    wait_for(
        lambda: up_to_offset(stored_bytes(cluster[away], topic, 0), 2_010) == expected,
        "the files of the two nodes are equal",
    )


def test_topics_that_are_created_while_a_node_is_down_can_be_used_at_once(
    cluster: LinkedCluster,
) -> None:
    cluster[3].kill()
    try:
        topic = new_topic(cluster[1], partitions=6)
        for partition in range(6):
            publish(cluster[1], topic, [b"here"], partition=partition, acks="all")
    finally:
        cluster[3].start()


def test_a_minority_refuses_writes_and_drops_what_it_never_committed(
    cluster: LinkedCluster,
) -> None:
    topic = new_replicated_topic(cluster, unique("minority"))
    publish(cluster, topic, numbered(10), acks="all")
    lonely = leader_of(cluster, topic)
    majority = ALL - {lonely}
    cluster.network.isolate(lonely)

    # The node leads until it notices, so the first record is written here, and here alone.
    codes = [send_here(cluster[lonely], topic, b"lost", acks=1)]
    codes.append(send_here(cluster[lonely], topic, b"refused", acks=-1))
    wait_for(
        lambda: {view_from(cluster[n]).leaders[topic, 0] for n in majority} <= majority,
        "the majority has another leader",
    )
    codes.append(send_here(cluster[lonely], topic, b"refused", acks=-1))
    publish(cluster[min(majority)], topic, numbered(10, "majority"), acks="all")
    wait_for(lambda: cluster[lonely].get("/ready")[0] == 503, "the lonely node wants no traffic")
    cluster.network.rejoin(lonely)
    wait_for(lambda: cluster[lonely].get("/ready")[0] == 200, "it takes traffic again")

    assert codes[0] in (ErrorCode.none, ErrorCode.not_leader_or_follower)
    assert codes[1:] == [ErrorCode.not_leader_or_follower] * 2
    assert ErrorCode.not_leader_or_follower.retriable
    expected = numbered(10) + numbered(10, "majority")
    assert values_of(cluster, topic, 20) == expected
    whole = up_to_offset(stored_bytes(cluster[min(majority)], topic, 0), 20)
    wait_for(
        lambda: up_to_offset(stored_bytes(cluster[lonely], topic, 0), 21) == whole,
        "the files of the node that was cut off equal the others'",
    )


def send_here(node: NodeProcess, topic: str, value: bytes, *, acks: int) -> ErrorCode:
    """Send one record to this node, whoever leads, and return its answer."""
    with WireClient(node.kafka_port) as client:
        response = client.ask(produce_request(topic, value, acks=acks))
    (answer,) = response.responses[0].partition_responses
    return answer.error_code


def produce_request(topic: str, value: bytes, *, acks: int) -> ProduceRequest:
    """Return a request that writes one record to partition 0."""
    batch = encode_batch([Record(0, int(time.time() * 1000), None, value)])
    data = PartitionProduceData(index=i32(0), records=Records(bytes(batch)))
    return ProduceRequest(
        acks=i16(acks),
        timeout=i32Timedelta.parse(timedelta(seconds=20)),
        topic_data=(TopicProduceData(name=TopicName(topic), partition_data=(data,)),),
    )


def test_an_idempotent_producer_writes_each_record_once_while_leaders_change(
    cluster: LinkedCluster,
) -> None:
    topic = new_replicated_topic(cluster, unique("once"))
    values = numbered(3_000)
    acknowledged: list[int] = []
    producer = new_producer(cluster, enable_idempotence=True, linger_ms=1, retry_backoff_ms=50)

    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, m: acknowledged.append(m.offset()) if not error else None,
        )
        producer.poll(0.001)
        if number == 1_000:
            leader = leader_of(cluster, topic)
            cluster.network.isolate(leader)
        if number == 2_000:
            producer.flush(60)
            cluster.network.rejoin(leader)
            leader = leader_of(cluster, topic)
            cluster[leader].kill()
    assert producer.flush(60) == 0

    assert acknowledged == list(range(3_000))
    assert values_of(cluster, topic, 3_000) == values


def test_everything_is_there_after_all_nodes_are_killed_at_once(cluster: LinkedCluster) -> None:
    topic = new_replicated_topic(cluster, unique("restart"), partitions=3)
    for partition in range(3):
        publish(cluster, topic, numbered(200), partition=partition, acks="all")

    cluster.kill()
    cluster.start()

    for partition in range(3):
        assert values_of(cluster, topic, 200, partition) == numbered(200)
    publish(cluster, topic, numbered(1, "more"), acks="all")


def test_only_the_leader_says_where_a_partition_ends(cluster: LinkedCluster) -> None:
    topic = new_replicated_topic(cluster, unique("ends"))
    publish(cluster, topic, numbered(10), acks="all")
    leader = leader_of(cluster, topic)

    answers = {node_id: end_told_by(node, topic) for node_id, node in cluster.nodes.items()}

    assert answers.pop(leader) == (ErrorCode.none, 10)
    assert {code for code, _ in answers.values()} == {ErrorCode.not_leader_or_follower}


def end_told_by(node: NodeProcess, topic: str) -> tuple[ErrorCode, int]:
    """Ask one node, whoever leads, for the end of partition 0."""
    wanted = ListOffsetsPartition(
        partition_index=i32(0), current_leader_epoch=i32(-1), timestamp=i64(-1)
    )
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(0),
        topics=(ListOffsetsTopic(name=TopicName(topic), partitions=(wanted,)),),
    )
    with WireClient(node.kafka_port) as client:
        (answer,) = client.ask(request).topics[0].partitions
    return answer.error_code, int(answer.offset)


# Groups.


def test_committed_offsets_survive_the_death_of_their_coordinator(cluster: LinkedCluster) -> None:
    topic = new_replicated_topic(cluster, unique("offsets"))
    group = unique("group")
    publish(cluster, topic, numbered(50), acks="all")
    with open_consumer(cluster, group, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        read(consumer, 30)
        consumer.commit(asynchronous=False)

    cluster[coordinator_of(cluster, group)].kill()

    with open_consumer(cluster, group, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        values = [message.value() for message in read(consumer, 20)]
    assert values == numbered(50)[30:]


def coordinator_of(cluster: ClusterProcess, group: str) -> int:
    """Ask node 1 who coordinates a group."""

    def ask() -> int | None:
        with WireClient(cluster[1].kafka_port) as client:
            request = FindCoordinatorRequest(key_type=i8(0), coordinator_keys=(group,))
            (found,) = client.ask(request).coordinators
            return int(found.node_id) if found.error_code == ErrorCode.none else None

    found: int = wait_for(ask, f"group {group} has a coordinator")
    return found


# Acknowledgements.


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_arrive_with_every_kind_of_acknowledgement(
    cluster: LinkedCluster, acks: int | str
) -> None:
    topic = new_replicated_topic(cluster, unique("acks"))
    leader_of(cluster, topic)

    publish(cluster, topic, numbered(100), acks=acks)

    assert values_of(cluster, topic, 100) == numbered(100)


def test_a_producer_that_wants_no_answer_is_cut_off_by_a_node_that_does_not_lead(
    cluster: LinkedCluster,
) -> None:
    topic = new_replicated_topic(cluster, unique("acks"))
    follower = next(node for node in ALL if node != leader_of(cluster, topic))

    with WireClient(cluster[follower].kafka_port) as client:
        client.send(produce_request(topic, b"nobody takes it", acks=0))

        assert client.is_closed_by_peer()


def test_a_topic_that_wants_all_replicas_in_step_refuses_writes_without_one_of_them(
    cluster: LinkedCluster,
) -> None:
    topic = new_replicated_topic(cluster, unique("in-sync"), min_insync_replicas="3")
    publish(cluster, topic, numbered(10), acks="all")
    away = next(node for node in ALL if node != leader_of(cluster, topic))

    cluster[away].kill()
    errors = wait_for(lambda: write_errors(cluster, topic), "a write is refused")
    publish(cluster, topic, numbered(1, "leader only"), acks=1)
    cluster[away].start()

    assert errors == [KafkaError.NOT_ENOUGH_REPLICAS] or errors == [KafkaError._MSG_TIMED_OUT]
    wait_for(lambda: not write_errors(cluster, topic), "writes are taken again")


def write_errors(cluster: ClusterProcess, topic: str) -> list[int]:
    """Write one record and return the codes of what went wrong."""
    errors: list[int] = []
    producer = new_producer(cluster, acks="all", retries=0, message_timeout_ms=5_000)
    producer.produce(
        topic, b"try", partition=0, on_delivery=lambda e, _: errors.append(e.code()) if e else None
    )
    producer.flush(10)
    return errors


# A lost disk.


def test_a_node_that_lost_its_disk_comes_back_and_has_everything_again(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, 3) as cluster:
        topic = new_replicated_topic(cluster, unique("wiped"))
        publish(cluster, topic, numbered(500), acks="all")
        wiped = leader_of(cluster, topic)
        cluster[wiped].kill()
        shutil.rmtree(cluster[wiped].data_dir)

        cluster[wiped].start()

        expected = up_to_offset(stored_bytes(cluster[wiped % 3 + 1], topic, 0), 500)
        wait_for(
            lambda: up_to_offset(stored_bytes(cluster[wiped], topic, 0), 500) == expected,
            "the node has its replica again",
        )
        assert values_of(cluster, topic, 500) == numbered(500)


def test_a_node_that_lost_its_disk_serves_although_nobody_can_fill_some_of_its_replicas(
    tmp_path: Path,
) -> None:
    with ClusterProcess(tmp_path, 3) as cluster, Client(cluster[1].http_url) as client:
        client.create_topic("lone", partitions=3, replication_factor=1)
        client.create_topic("whole", partitions=1, replication_factor=3)
        wiped = leader_of(cluster, "lone", 2)
        cluster[wiped].kill()
        shutil.rmtree(cluster[wiped].data_dir)

        cluster[wiped].launch()
        cluster[wiped].wait_until_serving(deadline_s=WAIT_S)

        assert cluster[wiped].get("/ready")[0] == 200
        with Client(cluster[wiped].http_url) as wiped_client:
            wiped_client.publish("whole", "through the node that lost its disk")
            wiped_client.delete_topic("lone")
            wiped_client.create_topic("lone", partitions=3, replication_factor=1)
            for number in range(9):
                wiped_client.publish("lone", number)


def test_a_topic_that_was_created_again_outlives_a_kill_of_all_nodes(
    cluster: LinkedCluster,
) -> None:
    topic = unique("again")
    with Client(cluster[1].http_url, retry_s=WAIT_S) as client:
        client.create_topic(topic, partitions=1, replication_factor=3)
        client.publish(topic, b"old")
        # What nodes that stop write down of the metadata is what they know first of all next time.
        cluster.stop()
        cluster.start()
        client.delete_topic(topic)
        client.create_topic(topic, partitions=1, replication_factor=3)
        for number in range(20):
            client.publish(topic, b"%d" % number)

        cluster.kill()
        cluster.start()

    assert values_of(cluster, topic, 20) == [b"%d" % number for number in range(20)]
