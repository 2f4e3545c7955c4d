"""The cluster as operators see and change it, through the HTTP port of any node."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from penstock.client.http import URL_DEFAULT, HttpConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """One node. It can be removed when `logs`, all that it keeps a replica of, is 0.

    What a node leads that has not `answered` in time is shown without a leader.
    """

    node_id: int
    reachable: bool
    answered: bool
    draining: bool
    leads: int
    replicas: int
    logs: int
    kafka: str
    peer: str
    http_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOverview:
    """The whole cluster at a glance; lists hold partitions as `TOPIC-PARTITION`."""

    cluster_id: str
    asked_node: int
    metadata_leader: int | None
    nodes: tuple[ClusterNode, ...]
    topics: int
    partitions: int
    without_leader: tuple[str, ...]
    behind: tuple[str, ...]
    changing: tuple[str, ...]
    hot: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReplica:
    """One replica; a learner is being filled and becomes a voter when it has caught up."""

    node_id: int
    role: Literal["leader", "voter", "learner"]
    in_step: bool
    lag_entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPartition:
    """One partition; None stands for what only its leader knows, while it has none.

    `nodes` are to replicate it, those in `leaving` do until the others have everything. A move that
    is `queued` waits for others to the same nodes.
    """

    topic: str
    partition: int
    leader: int | None
    term: int | None
    nodes: tuple[int, ...]
    leaving: tuple[int, ...]
    changing: bool
    queued: bool
    hot: bool
    start_offset: int | None
    high_watermark: int | None
    size_bytes: int | None
    bytes_in_per_s: float
    replicas: tuple[ClusterReplica, ...]


@dataclass(frozen=True, slots=True)
class _Nodes:
    nodes: tuple[ClusterNode, ...]


@dataclass(frozen=True, slots=True)
class _Partitions:
    partitions: tuple[ClusterPartition, ...]


@dataclass(frozen=True, slots=True)
class _Drain:
    logs: int


@dataclass(frozen=True, slots=True)
class _Balance:
    changes: tuple[str, ...]


class ClusterAdmin:
    """Looks at a cluster and changes it. Changes of replicas return when they have begun."""

    def __init__(self, url: str = URL_DEFAULT, *, wait_s: float = 30.0) -> None:
        """Name a node; nothing is contacted yet."""
        self._connection = HttpConnection(url, wait_s)

    def overview(self) -> ClusterOverview:
        """Return everything at a glance."""
        return self._connection.request("GET", "/v1/cluster", answer=ClusterOverview)

    def nodes(self) -> tuple[ClusterNode, ...]:
        """Return all nodes."""
        return self._connection.request("GET", "/v1/cluster/nodes", answer=_Nodes).nodes

    def partitions(self, topic: str | None = None) -> tuple[ClusterPartition, ...]:
        """Return all partitions, or those of one topic."""
        query = "" if topic is None else f"?topic={quote(topic, safe='')}"
        path = f"/v1/cluster/partitions{query}"
        return self._connection.request("GET", path, answer=_Partitions).partitions

    def move(self, topic: str, partition: int, nodes: Sequence[int]) -> None:
        """Let other nodes replicate a partition; the first of them is meant to lead it."""
        self._change(topic, partition, "move", {"nodes": list(nodes)})

    def cancel_move(self, topic: str, partition: int) -> None:
        """Return to the replicas from before a move that is not finished."""
        self._change(topic, partition, "cancel-move")

    def transfer_leader(self, topic: str, partition: int, to: int) -> None:
        """Let another replica lead a partition."""
        self._change(topic, partition, "transfer-leader", {"to": to})

    def drain(self, node_id: int, *, shrink: bool = False) -> int:
        """Move everything off a node; return how many logs that is.

        With `shrink`, logs may end with fewer replicas where no other node can take them.
        """
        path, body = f"/v1/cluster/nodes/{node_id}/drain", {"shrink": shrink}
        return self._connection.request("POST", path, answer=_Drain, body=body).logs

    def end_drain(self, node_id: int) -> None:
        """Let a node take replicas again."""
        self._connection.request("POST", f"/v1/cluster/nodes/{node_id}/end-drain", answer=dict)

    def remove_node(self, node_id: int) -> None:
        """Forget a node that replicates nothing any more."""
        self._connection.request("DELETE", f"/v1/cluster/nodes/{node_id}", answer=dict)

    def balance(self) -> tuple[str, ...]:
        """Spread the work over the nodes; return what is done."""
        path = "/v1/cluster/balance"
        return self._connection.request("POST", path, answer=_Balance).changes

    def _change(self, topic: str, partition: int, verb: str, body: Any = None) -> None:
        path = f"/v1/cluster/partitions/{quote(topic, safe='')}/{partition}/{verb}"
        self._connection.request("POST", path, answer=dict, body=body)
