"""What the verbs of queue groups take and give."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import msgspec

from penstock.errors import InvalidRequest, PenstockError
from penstock.record import PRIORITY_NORMAL, Record

Outcome = PenstockError | None
"""What became of one item of a request: None when it was done."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A record that is handed to a consumer."""

    topic: str
    partition: int
    offset: int
    id: str
    receipt: str
    attempt: int
    first_delivered_ms: int
    lease_until_ms: int
    timestamp: int
    priority: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class PlainMessages(Sequence[Message]):
    """Messages of one delivery that go out for the first time and have no headers.

    Nearly all are. A door may show their records without a message for each; for everybody else
    the messages are made when they are asked for.
    """

    __slots__ = ("at_ms", "lease_until_ms", "partition", "records", "sign", "topic")

    attempt = 1
    priority = PRIORITY_NORMAL

    def __init__(
        self,
        topic: str,
        partition: int,
        sign: str,
        at_ms: int,
        lease_until_ms: int,
        records: Sequence[Record],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.sign = sign
        """What receipts begin with; the offset in hexadecimal digits ends them."""
        self.at_ms = at_ms
        self.lease_until_ms = lease_until_ms
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Message]:
        return map(self._message, self.records)

    @overload
    def __getitem__(self, place: int) -> Message: ...

    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...

    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        if isinstance(place, slice):
            return [self._message(record) for record in self.records[place]]
        return self._message(self.records[place])

    def _message(self, record: Record) -> Message:
        offset = record.offset
        return Message(
            self.topic,
            self.partition,
            offset,
            f"{self.partition}-{offset}",
            f"{self.sign}{offset:x}",
            self.attempt,
            self.at_ms,
            self.lease_until_ms,
            record.timestamp,
            self.priority,
            record.key,
            record.value,
            (),
        )


class Exchanged(NamedTuple):
    """What became of acks, in their order, and the messages that came in exchange."""

    outcomes: list[Outcome]
    messages: Sequence[Message]


class TopicReceipt(NamedTuple):
    """A receipt with its topic: by itself it names the partition only."""

    topic: str
    receipt: str


class Nack(msgspec.Struct, frozen=True):
    """A message that could not be handled; without a delay the group's backoff counts."""

    receipt: str
    delay_ms: int | None = None
    reason: str = ""
    is_counted: bool = True
    """False for one that was not begun: it costs no attempt, and without a delay needs no rest."""


class Reject(msgspec.Struct, frozen=True):
    """A message that nobody will ever be able to handle."""

    receipt: str
    reason: str = ""


class BlockedKeyStatus(msgspec.Struct, frozen=True):
    """A key whose messages wait for one of them to be settled."""

    key: bytes | None
    blocker: str
    """The id of the message that they wait for."""
    waiting: int


class PartitionGroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is in one partition."""

    partition: int
    floor: int
    """Everything below is settled."""
    end: int
    unsettled: int
    in_flight: int
    waiting: int
    dying: int
    oldest_unsettled_ms: int | None
    blocked_keys: list[BlockedKeyStatus]


class GroupStatus(msgspec.Struct, frozen=True):
    """A queue group in all partitions that have a leader."""

    topic: str
    group: str
    partitions: list[PartitionGroupStatus]

    @property
    def unsettled(self) -> int:
        """Messages that the group is not done with."""
        return sum(each.unsettled for each in self.partitions)

    @property
    def in_flight(self) -> int:
        """Messages that are out with consumers."""
        return sum(each.in_flight for each in self.partitions)


class InFlight(msgspec.Struct, frozen=True):
    """A message that is out."""

    id: str
    partition: int
    offset: int
    consumer: str
    attempt: int
    delivered_ms: int
    lease_until_ms: int


class ResetPlan(msgspec.Struct, frozen=True):
    """Where a group stands in a partition and where it is to begin anew."""

    partition: int
    floor: int
    target: int


def check_number(name: str, value: int, low: int, high: int) -> None:
    """Raise `InvalidRequest` when a number lies outside its limits."""
    if not low <= value <= high:
        raise InvalidRequest(f"{name} is {value}, not between {low} and {high}")
