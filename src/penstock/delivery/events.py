"""What happens to the messages of a queue group, as entries of the partition's log.

An event carries resolved values: deadlines, times at which a message is ready again, limits. So
applying it reads neither a clock nor a setting, and every replica comes to the same state. Whether
a receipt still holds is decided when the event is applied, in the order of the log.
"""

import msgspec

from penstock.delivery.runs import Run


class GroupCreated(msgspec.Struct, frozen=True, tag="create", omit_defaults=True):
    """A group begins to receive; everything below `floor` does not concern it."""

    group: str
    floor: int
    at_ms: int


class Leased(msgspec.Struct, frozen=True, tag="lease", omit_defaults=True):
    """Messages went out to a consumer."""

    group: str
    delivery: int
    runs: list[Run]
    until_ms: int
    at_ms: int
    consumer: str = ""
    keys: list[int | None] = []
    """In key order: the hash of each message's key, if it has one, in the order of `runs`."""
    expired: list[Run] = []
    """Messages that were met on the way and are too old, or gone: they are settled."""
    limits: list[int] = []
    """How often each message may go out, in the order of `runs`, where they have own limits."""


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Some messages of one delivery."""

    delivery: int
    runs: list[Run]


class Acked(msgspec.Struct, frozen=True, tag="ack"):
    """A consumer is done with messages."""

    group: str
    parts: list[Part]
    at_ms: int


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """One message that a consumer could not handle, and when it is ready again."""

    delivery: int
    offset: int
    ready_at_ms: int
    reason: str = ""
    is_counted: bool = True
    """False when the consumer did not begin with it: the delivery is as if it had not been."""


class Returned(msgspec.Struct, frozen=True, tag="return"):
    """A consumer gave messages back."""

    group: str
    failures: list[Failure]
    attempts_max: int
    at_ms: int


class Expired(msgspec.Struct, frozen=True, tag="expire"):
    """Leases of these deliveries have ended: those whose deadline `at_ms` has passed."""

    group: str
    deliveries: list[int]
    attempts_max: int
    at_ms: int


class Extended(msgspec.Struct, frozen=True, tag="extend"):
    """Deadlines have moved."""

    group: str
    parts: list[Part]
    until_ms: int
    at_ms: int


class Rejected(msgspec.Struct, frozen=True, tag="reject"):
    """A consumer sent messages straight to the dead letters; ready times do not matter."""

    group: str
    failures: list[Failure]
    at_ms: int


class DeadLettered(msgspec.Struct, frozen=True, tag="dead"):
    """The copies among the dead letters are committed: the messages are settled."""

    group: str
    runs: list[Run]
    at_ms: int


class GroupReset(msgspec.Struct, frozen=True, tag="reset"):
    """A group begins anew at `floor`; all its leases and attempts are forgotten."""

    group: str
    floor: int
    at_ms: int


class GroupDeleted(msgspec.Struct, frozen=True, tag="delete"):
    """A group is forgotten."""

    group: str
    at_ms: int


DeliveryEvent = (
    GroupCreated
    | Leased
    | Acked
    | Returned
    | Expired
    | Extended
    | Rejected
    | DeadLettered
    | GroupReset
    | GroupDeleted
)
