"""What the HTTP door asks a node."""

from collections.abc import Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry


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


class NodeView(Protocol):
    """A running node, seen from outside. No method may block."""

    @property
    def node_id(self) -> int:
        """The node's number in its cluster."""

    @property
    def registry(self) -> CollectorRegistry:
        """Everything that the node counts."""

    def uptime_s(self) -> float:
        """Seconds since the node started."""

    def checks(self) -> Sequence[CheckView]:
        """All conditions of readiness, passed or not."""
