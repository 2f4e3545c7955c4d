"""Operations on a running cluster: three nodes and a fourth that joined, under `penstock cluster`.

The tests share one cluster, because starting it takes longer than they do; each has a topic of its
own, and the nodes that one test stops or removes are of no concern to those after it.
"""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.client import Client, ClusterAdmin, ClusterPartition
from penstock.errors import (
    Conflict,
    InvalidReplication,
    InvalidRequest,
    NotFound,
    PreferredLeaderUnavailable,
    TopicNotFound,
    Unavailable,
)
from tests.integration.clients import WAIT_S, wait_until
from tests.processes import ClusterProcess, NodeProcess, free_ports

pytestmark = pytest.mark.crash

_QUIET: dict[str, str | int | float] = {"log_level": 0, "broker.address.family": "v4"}
_PAUSE_S = 0.002


@dataclass
class Stage:
    """The cluster, the node that joined it, and whom to ask."""

    cluster: ClusterProcess
    asked: int = 1

    @property
    def admin(self) -> ClusterAdmin:
        return ClusterAdmin(self.cluster[self.asked].http_url)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.cluster[node].bootstrap for node in self.cluster.running)

    def create_topic(self, name: str, *places: list[int]) -> None:
        """Create a topic with these replicas and wait until every partition has a leader."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **_QUIET})
        topic = NewTopic(name, num_partitions=len(places), replica_assignment=list(places))
        admin.create_topics([topic])[name].result(WAIT_S)
        self.wait_for(name, lambda found: all(each.leader is not None for each in found))

    def partition(self, topic: str, number: int = 0) -> ClusterPartition:
        return self.admin.partitions(topic)[number]

    def wait_for(
        self, topic: str, is_reached: Callable[[tuple[ClusterPartition, ...]], bool]
    ) -> None:
        wait_until(lambda: is_reached(self.admin.partitions(topic)), f"change of {topic}")

    def run(self, *args: str) -> Any:
        """Run `penstock cluster` and return what it prints for programs."""
        done = subprocess.run(
            [
                sys.executable, "-m", "penstock.cli", "cluster", *args,
                "--json", "--url", self.cluster[self.asked].http_url,
            ],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{args}: {done.stderr}"
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Three nodes that form a cluster and a fourth that joins them."""
    directory = tmp_path_factory.mktemp("operations")
    with ClusterProcess(directory, 3) as cluster:
        newcomer = NodeProcess(
            directory / "node-4",
            *("--node-id", "4", "--join", f"127.0.0.1:{cluster.peer_ports[1]}"),
        )
        newcomer.kafka_port, newcomer.http_port = free_ports(2)
        cluster.nodes[4] = newcomer
        newcomer.start()
        yield Stage(cluster)


@dataclass
class Stream:
    """A producer that counts upwards and a consumer that reads along."""

    acknowledged: list[bytes] = field(default_factory=list)
    refused: list[KafkaError] = field(default_factory=list)
    read: dict[int, bytes] = field(default_factory=dict)
    changed: list[int] = field(default_factory=list)
    is_publishing: bool = True
    is_reading: bool = True

    def note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(message.value() or b"")
        else:
            self.refused.append(error)

    def take(self, message: Message) -> None:
        """Note a record; a group may be given it twice, but never another one in its place."""
        offset, value = message.offset() or 0, message.value() or b""
        if self.read.setdefault(offset, value) != value:
            self.changed.append(offset)

    def wait_for_more(self) -> None:
        """Wait until records written from now on are acknowledged and read."""
        acknowledged = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) > acknowledged + 50, "publishing goes on")
        written = len(self.acknowledged)
        wait_until(lambda: len(self.read) > written, "reading goes on")


@contextmanager
def streaming(stage: Stage, topic: str) -> Iterator[Stream]:
    """Publish and read until the block ends, then read to the end and check the whole account."""
    stream = Stream()
    producer = Producer(
        {"bootstrap.servers": stage.bootstrap, "enable.idempotence": True, "linger.ms": 5, **_QUIET}
    )
    consumer = Consumer(
        {
            "bootstrap.servers": stage.bootstrap,
            "group.id": f"readers-of-{topic}",
            "auto.offset.reset": "earliest",
            **_QUIET,
        }
    )
    consumer.subscribe([topic])

    def publish() -> None:
        number = 0
        while stream.is_publishing:
            producer.produce(topic, b"%d" % number, partition=0, on_delivery=stream.note)
            producer.poll(_PAUSE_S)
            number += 1
        producer.flush(WAIT_S)

    def read() -> None:
        while stream.is_reading:
            for message in consumer.consume(1000, timeout=0.1):
                if message.error() is None:
                    stream.take(message)

    publishing, reading = (threading.Thread(target=work, daemon=True) for work in (publish, read))
    publishing.start()
    reading.start()
    try:
        stream.wait_for_more()
        yield stream
        stream.wait_for_more()
        stream.is_publishing = False
        publishing.join(WAIT_S)
        wait_until(lambda: len(stream.read) >= len(stream.acknowledged), "everything is read")
    finally:
        stream.is_publishing = stream.is_reading = False
        publishing.join(WAIT_S)
        reading.join(WAIT_S)
        consumer.close()
    assert (stream.refused, stream.changed) == ([], [])
    expected = [b"%d" % number for number in range(len(stream.acknowledged))]
    assert stream.acknowledged == expected
    assert [stream.read[offset] for offset in sorted(stream.read)] == expected


def test_every_node_tells_the_same_of_the_cluster(stage: Stage) -> None:
    overviews = [ClusterAdmin(node.http_url).overview() for node in stage.cluster.nodes.values()]

    assert [each.asked_node for each in overviews] == [1, 2, 3, 4]
    assert len({(each.cluster_id, each.metadata_leader) for each in overviews}) == 1
    for each in overviews:
        assert [node.node_id for node in each.nodes if node.reachable] == [1, 2, 3, 4]
        assert each.without_leader == ()


def test_a_partition_moves_to_the_newcomer_under_load_and_nothing_is_lost(stage: Stage) -> None:
    stage.create_topic("moved", [3, 1, 2])

    with streaming(stage, "moved"):
        done = stage.run("move", "moved", "0", "--to", "4,1,2", "--wait", "--timeout", "30s")
        stage.run("transfer-leader", "moved", "0", "--to", "4")
        stage.wait_for("moved", lambda found: found[0].leader == 4)

    assert done["done"] is True
    after = stage.partition("moved")
    assert [each.node_id for each in after.replicas] == [1, 2, 4]
    assert {each.role for each in after.replicas} == {"leader", "voter"}
    assert not after.changing
    wait_until(lambda: not stored(stage.cluster[3], "moved"), "node 3 drops its replica")


def stored(node: NodeProcess, topic: str) -> list[Path]:
    """Return the files of a topic on a node."""
    return [path for path in (node.data_dir / "topics" / topic).rglob("*") if path.suffix == ".log"]


def test_a_move_that_cannot_end_is_cancelled(stage: Stage) -> None:
    stage.create_topic("cancelled", [1, 2, 3])
    stage.cluster[4].kill()

    stage.run("move", "cancelled", "0", "--to", "1,2,4")
    stage.wait_for("cancelled", lambda found: found[0].changing)
    during = stage.partition("cancelled")
    stage.run("cancel-move", "cancelled", "0")
    stage.wait_for("cancelled", lambda found: not found[0].changing)

    assert (during.nodes, during.leaving) == ((1, 2, 4), (3,))
    after = stage.partition("cancelled")
    assert after.nodes == (1, 2, 3)
    assert [each.node_id for each in after.replicas] == [1, 2, 3]
    with pytest.raises(Conflict, match="is not being moved"):
        stage.admin.cancel_move("cancelled", 0)
    stage.cluster[4].start()


def test_leaders_are_handed_over(stage: Stage) -> None:
    stage.create_topic("led", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    wanted = [2, 3, 1]

    for number, to in enumerate(wanted):
        stage.admin.transfer_leader("led", number, to)

    stage.wait_for("led", lambda found: [each.leader for each in found] == wanted)


def test_balancing_gives_the_newcomer_its_share_of_replicas_and_leads(stage: Stage) -> None:
    stage.create_topic("shared", *([1, 2, 3], [2, 3, 1], [3, 1, 2]) * 2)

    def is_settled() -> bool:
        return not any(each.changing for each in stage.admin.partitions())

    def is_balanced() -> bool:
        wait_until(is_settled, "the moves are done")
        return not stage.run("balance")["changes"]

    wait_until(is_balanced, "nothing is left to balance")

    found = stage.admin.partitions()
    assert [each.leader for each in found] == [each.nodes[0] for each in found]
    nodes = stage.admin.nodes()
    for counts in ([node.replicas for node in nodes], [node.logs for node in nodes]):
        assert max(counts) - min(counts) <= 2, nodes
    assert nodes[3].leads >= 2


def test_a_partition_with_much_more_traffic_than_others_is_reported(stage: Stage) -> None:
    stage.create_topic("warm", *([1, 2, 3] for _ in range(6)))
    producer = Producer({"bootstrap.servers": stage.bootstrap, **_QUIET})

    def is_reported() -> bool:
        for _ in range(50):
            producer.produce("warm", bytes(10_000), partition=3)
        assert producer.flush(WAIT_S) == 0
        return "warm-3" in stage.admin.overview().hot

    wait_until(is_reported, "the hot partition is reported")

    assert [each.partition for each in stage.admin.partitions("warm") if each.hot] == [3]


def test_what_cannot_be_done_is_refused_with_the_reason(stage: Stage) -> None:
    stage.create_topic("fixed", [1, 2, 3])

    with pytest.raises(InvalidReplication, match=r"\[1, 9\] were asked for.*nodes \[1, 2, 3, 4\]"):
        stage.admin.move("fixed", 0, [1, 9])
    with pytest.raises(InvalidReplication, match=r"\[1, 1\] were asked for"):
        stage.admin.move("fixed", 0, [1, 1])
    with pytest.raises(TopicNotFound, match="no partition 7 of topic 'fixed'"):
        stage.admin.move("fixed", 7, [1])
    with pytest.raises(InvalidRequest, match="node 4 does not replicate fixed"):
        stage.admin.transfer_leader("fixed", 0, 4)
    with pytest.raises(NotFound, match="no node 9; the nodes are"):
        stage.admin.drain(9)
    with pytest.raises(Conflict, match="node 1 still replicates"):
        stage.admin.remove_node(1)
    assert not stage.partition("fixed").changing


def test_a_wiped_node_comes_back_as_a_new_member_and_replicates_again(stage: Stage) -> None:
    stage.create_topic("mended", [2, 1, 3])

    with streaming(stage, "mended") as stream:
        stage.cluster[2].kill()
        stream.wait_for_more()
        with pytest.raises(PreferredLeaderUnavailable, match="node 2 is out of reach of node"):
            stage.admin.transfer_leader("mended", 0, 2)
        shutil.rmtree(stage.cluster[2].data_dir)
        stage.cluster[2].start()
        stage.wait_for("mended", lambda found: is_whole(found[0], 2))
        stage.run("transfer-leader", "mended", "0", "--to", "2")
        stage.wait_for("mended", lambda found: found[0].leader == 2)

    assert stage.partition("mended").nodes == (2, 1, 3)


def is_whole(partition: ClusterPartition, node_id: int) -> bool:
    """True when a node is a voter that lacks next to nothing and nothing is left to change."""
    replicas = {each.node_id: each for each in partition.replicas}
    found = replicas.get(node_id)
    return (
        not partition.changing
        and found is not None
        and found.role != "learner"
        and found.in_step
        and found.lag_entries < 100
    )


def test_a_node_is_drained_and_removed_while_clients_go_on(stage: Stage) -> None:
    stage.create_topic("drained", [3, 1, 2])

    with streaming(stage, "drained"):
        done = stage.run("drain", "3", "--wait", "--timeout", "30s")
        stage.run("remove-node", "3", "--yes")
        wait_until(lambda: b"was removed" in stage.cluster[3].get("/ready")[1], "node 3 knows")
        removed = stage.cluster[3]
        with pytest.raises(Unavailable, match="node 3 was removed from its cluster"):
            ClusterAdmin(removed.http_url).overview()
        with Client(removed.http_url, retry_s=0.0) as client, pytest.raises(Unavailable):
            client.topic("created-since")
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": removed.bootstrap, **_QUIET}).list_topics(timeout=1)
        removed.kill()

    assert done["logs"] > 0
    assert [node.node_id for node in stage.admin.nodes()] == [1, 2, 4]
    assert all(3 not in each.nodes for each in stage.admin.partitions())
    with pytest.raises(InvalidReplication, match="no other node to move to"):
        stage.admin.drain(4)
    stage.create_topic("afterwards", [1, 2, 4])
