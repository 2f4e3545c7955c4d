"""What operators see of a partition."""

import msgspec

from penstock.cluster.described import Replicas
from penstock.cluster.partition import Partition


class ReplicaStatus(msgspec.Struct, frozen=True):
    """How one replica stands, as its leader knows it; lag counts log entries."""

    node: int
    is_voter: bool
    is_in_step: bool
    lag_entries: int


class PartitionStatus(msgspec.Struct, frozen=True):
    """One partition. Without a leader only its replicas are known."""

    topic: str
    partition: int
    group: int
    leader: int
    term: int
    replicas: list[int]
    leaving: list[int]
    is_changing: bool
    start_offset: int
    high_watermark: int
    size_bytes: int
    bytes_in_per_s: float
    followers: list[ReplicaStatus]
    is_queued: bool = False
    """Whether its move waits for others to the same nodes."""


def partition_status(partition: Partition, replicas: Replicas, now_s: float) -> PartitionStatus:
    """Describe a partition that this node leads."""
    log = partition.log
    last_index = log.raft.last_index
    return PartitionStatus(
        topic=partition.place.topic,
        partition=partition.place.partition,
        group=replicas.group,
        leader=log.identity.member.node,
        term=log.term,
        replicas=list(replicas.nodes),
        leaving=[node for node, _ in replicas.leaving],
        is_changing=bool(replicas.former),
        start_offset=partition.start_offset,
        high_watermark=partition.high_watermark,
        size_bytes=log.log.size_bytes,
        bytes_in_per_s=partition.traffic.bytes_per_s(now_s),
        followers=[
            ReplicaStatus(
                follower.node,
                follower.is_voter,
                follower.is_active,
                max(0, last_index - follower.match),
            )
            for follower in log.followers()
        ],
    )


def leaderless(topic: str, partition: int, replicas: Replicas) -> PartitionStatus:
    """Describe a partition whose leader nobody could be asked about."""
    return PartitionStatus(
        topic=topic,
        partition=partition,
        group=replicas.group,
        leader=-1,
        term=-1,
        replicas=list(replicas.nodes),
        leaving=[node for node, _ in replicas.leaving],
        is_changing=bool(replicas.former),
        start_offset=-1,
        high_watermark=-1,
        size_bytes=-1,
        bytes_in_per_s=0.0,
        followers=[],
    )


def with_replicas(
    status: PartitionStatus, replicas: Replicas, *, is_queued: bool
) -> PartitionStatus:
    """Say who is to replicate a partition, as the metadata of this node does."""
    return msgspec.structs.replace(
        status,
        replicas=list(replicas.nodes),
        leaving=[node for node, _ in replicas.leaving],
        is_changing=bool(replicas.former),
        is_queued=is_queued,
    )
