"""What one command or one deadline leads to."""

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.groups.answers import Answer, Reply
from penstock.groups.deadlines import Deadlines
from penstock.groups.events import Record


class Now(NamedTuple):
    """The time, twice: members must not be expelled because somebody sets the clock."""

    wall_ms: int
    """As records carry it, and retention counts it."""
    steady_ms: int
    """As deadlines count it; it means nothing to another node."""


@dataclass(slots=True)
class Turn:
    """Collects records and replies while a group changes; the shard makes effects of them."""

    now: Now
    deadlines: Deadlines
    records: list[Record] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    def save(self, record: Record) -> None:
        """Make `record` part of this turn's event."""
        self.records.append(record)

    def reply(self, ticket: int, answer: Answer | PenstockError) -> None:
        """Answer a command, not before the group's state is durable."""
        self.replies.append(Reply(ticket, answer))
