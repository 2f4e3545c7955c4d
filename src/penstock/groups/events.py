"""The durable events of a shard, and their bytes.

An event is a list of records that take effect together. A record is the whole new value of one
row (a classic group, an incremental group, one of its members, offsets) or the end of rows. No
record is a difference to an earlier one, so replay needs no more than the order of the log, and a
snapshot is simply the list of records that leads to the present state.

Bytes are msgpack arrays, each led by its tag. New fields are appended with a default: an older
event then reads as if it had been written with that default.
"""

from uuid import UUID

import msgspec


class ClassicMemberRow(msgspec.Struct, frozen=True, array_like=True):
    """A member of a classic generation, with its share of the assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class ClassicSaved(msgspec.Struct, frozen=True, array_like=True, tag="classic"):
    """A classic group: a generation that its leader has assigned, or an empty one."""

    group_id: str
    generation: int
    protocol_type: str
    protocol: str | None
    leader: str | None
    members: tuple[ClassicMemberRow, ...]
    empty_since_ms: int | None
    era: int = 0


class ConsumerSaved(msgspec.Struct, frozen=True, array_like=True, tag="consumer"):
    """A group of the incremental protocol, apart from its members.

    `topics_digest` stands for the subscribed topics as they were when `epoch` was reached; a new
    coordinator learns from it whether topics changed while nobody watched.
    """

    group_id: str
    epoch: int
    target_epoch: int
    topics_digest: int
    empty_since_ms: int | None
    era: int = 0


class ConsumerRow(msgspec.Struct, frozen=True, array_like=True):
    """A member of the incremental protocol.

    `assigned` is what it may own, `revoking` what it must give up and has not confirmed, `target`
    where the group leads it. `epoch` is -2 while a static member is away.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_ms: int
    topics: tuple[str, ...]
    regex: str | None
    assignor: str | None
    epoch: int
    previous_epoch: int
    assigned: dict[UUID, frozenset[int]]
    revoking: dict[UUID, frozenset[int]]
    target: dict[UUID, frozenset[int]]


class MemberSaved(msgspec.Struct, frozen=True, array_like=True, tag="member"):
    """A member of an incremental group is new or has changed."""

    group_id: str
    member: ConsumerRow


class MemberRemoved(msgspec.Struct, frozen=True, array_like=True, tag="member-removed"):
    """A member has left an incremental group, or was fenced from it."""

    group_id: str
    member_id: str


class GroupRemoved(msgspec.Struct, frozen=True, array_like=True, tag="removed"):
    """A group is gone with all that belongs to it."""

    group_id: str


class OffsetRow(msgspec.Struct, frozen=True, array_like=True):
    """A committed position."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    note: str
    commit_ms: int
    era: int = 0
    topic_id: bytes = b""
    """Of the topic that it was committed for; empty where the coordinator did not know."""


class OffsetsSaved(msgspec.Struct, frozen=True, array_like=True, tag="offsets"):
    """Positions of one commit."""

    group_id: str
    offsets: tuple[OffsetRow, ...]


class OffsetsRemoved(msgspec.Struct, frozen=True, array_like=True, tag="offsets-removed"):
    """Positions were deleted or have expired."""

    group_id: str
    partitions: tuple[tuple[str, int], ...]


class TopicsForgotten(msgspec.Struct, frozen=True, array_like=True, tag="topics-forgotten"):
    """Topics are gone, and with them the positions that any group had there."""

    topics: tuple[str, ...]


Record = (
    ClassicSaved
    | ConsumerSaved
    | MemberSaved
    | MemberRemoved
    | GroupRemoved
    | OffsetsSaved
    | OffsetsRemoved
    | TopicsForgotten
)

_encoder = msgspec.msgpack.Encoder(uuid_format="canonical")
_decoder = msgspec.msgpack.Decoder(list[Record])


def encode(records: list[Record]) -> bytes:
    """The bytes of one event, or of a snapshot."""
    return _encoder.encode(records)


def decode(event: bytes) -> list[Record]:
    """The records of one event; damage shows as `msgspec.DecodeError`."""
    return _decoder.decode(event)
