"""Which log a replica is one of, and the way to the others."""

from dataclasses import dataclass
from typing import Protocol

from penstock.raft import Member, Message


class Transport(Protocol):
    """Carries messages of one group to other nodes; any of them may be lost."""

    def send(self, group: int, message: Message) -> None:
        """Send to the node that the message names."""


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """Which log this is a replica of, and who keeps it."""

    name: str
    group: int
    member: Member
