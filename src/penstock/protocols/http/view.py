"""What the HTTP door asks a node."""

from collections.abc import Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry

from penstock.broker import ClusterStatus, PartitionStatus
from penstock.ids import TopicPartition


class CheckView(Protocol):
    """One condition that a ready node fulfils."""

    @property
    def name(self) -> str:
        """A short fixed name, such as `log-recovered`."""

    @property
    def is_passed(self) -> bool:
        """Whether the condition holds at this moment."""

    @property
    def detail(self) -> str:
        """One sentence with the values that decided."""


class OperationsView(Protocol):
    """The cluster of a node, as operators see and change it."""

    async def status(self) -> ClusterStatus:
        """Look at everything."""

    async def partitions(self) -> list[PartitionStatus]:
        """Return all partitions."""

    async def move(self, place: TopicPartition, nodes: list[int]) -> None:
        """Let other nodes replicate a partition; returns when the change has begun."""

    async def cancel_move(self, place: TopicPartition) -> None:
        """Return to the replicas that a partition had before."""

    async def transfer_leader(self, place: TopicPartition, to: int) -> None:
        """Let another replica lead a partition."""

    async def drain(self, node_id: int, *, may_shrink: bool) -> int:
        """Move everything off a node; return how many logs that is."""

    async def end_drain(self, node_id: int) -> None:
        """Let a node take replicas again."""

    async def remove_node(self, node_id: int) -> None:
        """Forget a node that replicates nothing any more."""

    async def balance(self) -> list[str]:
        """Spread the work; name what was done."""


class NodeView(Protocol):
    """A running node, seen from outside. No method may block."""

    @property
    def node_id(self) -> int:
        """The node's number in its cluster."""

    @property
    def registry(self) -> CollectorRegistry:
        """Everything that the node counts."""

    @property
    def operations(self) -> OperationsView:
        """What operators can do."""

    def uptime_s(self) -> float:
        """Seconds since the node started."""

    def checks(self) -> Sequence[CheckView]:
        """All conditions of readiness, passed or not."""
