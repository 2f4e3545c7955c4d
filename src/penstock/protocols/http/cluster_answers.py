"""The JSON of `/v1/cluster`: what callers send and what they get."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

_NAMES = "Partitions as `TOPIC-PARTITION`"
_SHARDS = "the logs of consumer groups, as `consumer groups 3`,"


class ClusterNode(Struct, frozen=True, kw_only=True):
    """One node of the cluster, as the node that was asked sees it."""

    node_id: int
    reachable: Annotated[bool, Meta(description="Whether the asked node has a link to it.")]
    answered: Annotated[
        bool,
        Meta(
            description="Whether it told in time what it leads. What a node leads that did not is"
            " shown without a leader."
        ),
    ]
    draining: Annotated[bool, Meta(description="Whether it is given nothing new.")]
    leads: Annotated[int, Meta(description="Partitions that it leads.")]
    replicas: Annotated[int, Meta(description="Partitions that it is to replicate.")]
    logs: Annotated[
        int,
        Meta(
            description="Everything that it replicates or has not handed over yet, the logs of"
            " consumer groups included. A node with 0 can be removed."
        ),
    ]
    kafka: Annotated[str, Meta(description="Where Kafka clients reach it.")]
    peer: Annotated[str, Meta(description="Where other nodes reach it.")]
    http_port: int


class ClusterNodes(Struct, frozen=True, kw_only=True):
    """All nodes of the cluster."""

    nodes: list[ClusterNode]


class ClusterOverview(Struct, frozen=True, kw_only=True):
    """The whole cluster at a glance."""

    cluster_id: str
    asked_node: Annotated[int, Meta(description="The node that gave this answer.")]
    metadata_leader: Annotated[
        int | None, Meta(description="The node that leads the metadata, or null.")
    ]
    nodes: list[ClusterNode]
    topics: Annotated[int, Meta(description="How many there are.")]
    partitions: Annotated[int, Meta(description="How many there are.")]
    without_leader: Annotated[
        list[str],
        Meta(description=f"{_NAMES} that cannot be used at the moment, and {_SHARDS} likewise."),
    ]
    behind: Annotated[list[str], Meta(description=f"{_NAMES} of which a replica is out of step.")]
    changing: Annotated[
        list[str],
        Meta(description=f"{_NAMES} whose replicas are being moved, and {_SHARDS} likewise."),
    ]
    hot: Annotated[
        list[str], Meta(description=f"{_NAMES} with more than three times the mean traffic.")
    ]


class ClusterReplica(Struct, frozen=True, kw_only=True):
    """One replica, as its leader knows it."""

    node_id: int
    role: Annotated[
        Literal["leader", "voter", "learner"],
        Meta(description="A learner is being filled and becomes a voter when it has caught up."),
    ]
    in_step: bool
    lag_entries: Annotated[int, Meta(description="Log entries that it lacks.")]


class ClusterPartition(Struct, frozen=True, kw_only=True):
    """One partition. Null stands for what only its leader knows, while it has none."""

    topic: str
    partition: int
    leader: int | None
    term: int | None
    nodes: Annotated[
        list[int],
        Meta(description="Who is to replicate it; the first one is meant to lead."),
    ]
    leaving: Annotated[list[int], Meta(description="Who keeps a replica until the others have it.")]
    changing: Annotated[bool, Meta(description="Whether its replicas are being moved.")]
    queued: Annotated[
        bool, Meta(description="Whether the move waits for others to the same nodes.")
    ]
    hot: Annotated[bool, Meta(description="Whether it has over three times the mean traffic.")]
    start_offset: int | None
    high_watermark: int | None
    size_bytes: int | None
    bytes_in_per_s: float
    replicas: list[ClusterReplica]


class ClusterPartitions(Struct, frozen=True, kw_only=True):
    """Partitions of one topic or of all."""

    partitions: list[ClusterPartition]


class MoveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a partition is to be."""

    nodes: Annotated[
        list[int], Meta(description="All nodes that are to replicate it, the future leader first.")
    ]


class TransferRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is to lead a partition."""

    to: Annotated[int, Meta(description="A node that replicates it.")]


class DrainRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a node is to be drained."""

    shrink: Annotated[
        bool,
        Meta(description="Whether logs may end with fewer replicas when no node can take them."),
    ] = False


class PartitionAccepted(Struct, frozen=True, kw_only=True):
    """A change of a partition is under way; the partition itself tells how far it is."""

    topic: str
    partition: int


class NodeAccepted(Struct, frozen=True, kw_only=True):
    """A change of a node is made."""

    node_id: int


class DrainAccepted(Struct, frozen=True, kw_only=True):
    """A node is being drained; its `logs` tell how far it is."""

    node_id: int
    logs: Annotated[int, Meta(description="Logs that are being moved.")]


class BalanceAccepted(Struct, frozen=True, kw_only=True):
    """What is done to balance the cluster."""

    changes: Annotated[list[str], Meta(description="One sentence for each; empty: balanced.")]
