"""What each node of a cluster says about it, and what its files hold."""

import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kio.schema.metadata.v12.request import MetadataRequest

from tests.kafka_wire import WireClient
from tests.processes import ClusterProcess, NodeProcess

DEADLINE_S = 120.0
_POLL_S = 0.05
# How each batch begins: its first offset, and its length from here on.
_BATCH_HEAD = struct.Struct(">qi")


class View(NamedTuple):
    """The cluster as one node describes it."""

    cluster_id: str
    nodes: set[int]
    leaders: dict[tuple[str, int], int]
    replicas: dict[tuple[str, int], tuple[int, ...]]


def view_from(node: NodeProcess) -> View:
    """Ask one node, and no other, what it knows; raises `OSError` when it does not answer."""
    with WireClient(node.kafka_port) as client:
        request = MetadataRequest(
            topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        answer: Any = client.ask(request)
    partitions = {
        (str(topic.name), int(partition.partition_index)): partition
        for topic in answer.topics
        for partition in topic.partitions
    }
    return View(
        cluster_id=str(answer.cluster_id),
        nodes={int(broker.node_id) for broker in answer.brokers},
        leaders={place: int(partition.leader_id) for place, partition in partitions.items()},
        replicas={
            place: tuple(int(node) for node in partition.replica_nodes)
            for place, partition in partitions.items()
        },
    )


def leader_of(cluster: ClusterProcess, topic: str, partition: int = 0) -> int:
    """Return the leader that the running nodes agree on, as soon as they do."""

    def agreed() -> int | None:
        leaders = {
            view_from(cluster[node_id]).leaders.get((topic, partition))
            for node_id in cluster.running
        }
        leader = leaders.pop()
        return leader if not leaders and leader in cluster.running else None

    found: int = wait_for(agreed, f"nodes agree on the leader of {topic}-{partition}")
    return found


def wait_for(reached: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Ask until the answer is neither empty nor an `OSError`, and return it."""
    deadline = time.monotonic() + deadline_s
    while True:
        try:
            answer = reached()
        except OSError:
            answer = None
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {what}"
        time.sleep(_POLL_S)


def new_replicated_topic(
    cluster: ClusterProcess, name: str, partitions: int = 1, *, replicas: int = 3, **settings: str
) -> str:
    """Create a topic; underscores of setting names stand for dots."""
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=config)
    admin.create_topics([topic], operation_timeout=DEADLINE_S)[name].result(DEADLINE_S)
    return name


def stored_bytes(node: NodeProcess, topic: str, partition: int) -> bytes:
    """Return the record batches of a partition as they lie on a node's disk."""
    directory = node.data_dir / "topics" / topic / str(partition)
    return b"".join(written(path.read_bytes()) for path in sorted(directory.glob("*.log")))


def written(data: bytes) -> bytes:
    """Return the batches of a .log file without the zeros that a node writes ahead of them."""
    position = 0
    while position + _BATCH_HEAD.size <= len(data):
        length = _BATCH_HEAD.unpack_from(data, position)[1]
        if length == 0:
            return data[:position]
        position += _BATCH_HEAD.size + length
    return data


def up_to_offset(data: bytes, end_offset: int) -> bytes:
    """Return the whole batches that begin below `end_offset`."""
    position = 0
    while position + _BATCH_HEAD.size <= len(data):
        base_offset, length = _BATCH_HEAD.unpack_from(data, position)
        if base_offset >= end_offset or length <= 0:
            break
        position += _BATCH_HEAD.size + length
    return data[:position]
