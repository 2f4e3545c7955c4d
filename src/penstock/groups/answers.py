"""What a shard gives back: effects to carry out, and the answers inside replies."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.errors import PenstockError
from penstock.groups.assignment import Assignment
from penstock.groups.events import OffsetRow
from penstock.ids import TopicPartition


class GroupState(StrEnum):
    """States of both protocols, spelled as Kafka's tools show them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class GroupType(StrEnum):
    """Which protocol a group speaks."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader of its generation sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The member belongs to a generation; `members` is filled for its leader only."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    """The member's share of the generation, in the bytes of the group's leader."""

    protocol_type: str
    protocol: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Alive:
    """The heartbeat counts and nothing has changed."""


@dataclass(frozen=True, slots=True)
class Left:
    """One result per leaver, in the order of the request; None means that it has left."""

    results: tuple[PenstockError | None, ...]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The member's epoch and, when it changed or was asked for, what the member may own."""

    member_id: str
    member_epoch: int
    heartbeat_ms: int
    assignment: Assignment | None


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """All offsets are stored except the refused ones."""

    refused: Mapping[TopicPartition, PenstockError]


@dataclass(frozen=True, slots=True)
class OffsetsFetched:
    """Committed positions; a partition that was asked for and is absent has none."""

    offsets: Mapping[TopicPartition, OffsetRow]


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """All offsets are forgotten except the refused ones."""

    refused: Mapping[TopicPartition, PenstockError]


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One line of the list of groups."""

    group_id: str
    protocol_type: str
    state: GroupState
    group_type: GroupType


@dataclass(frozen=True, slots=True)
class GroupsListed:
    """The groups that passed the filters, by name."""

    groups: tuple[ListedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A classic member; the assignment is empty unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescribed:
    """A classic group as it stands."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumer:
    """A member of the incremental protocol: where it is, and where it is led."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    assigned: Assignment
    target: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribed:
    """A group of the incremental protocol as it stands."""

    group_id: str
    state: GroupState
    group_epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """The group and its offsets are gone."""


Answer = (
    Joined
    | Synced
    | Alive
    | Left
    | Reconciled
    | OffsetsCommitted
    | OffsetsFetched
    | OffsetsDeleted
    | GroupsListed
    | GroupDescribed
    | ConsumerGroupDescribed
    | GroupDeleted
)


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the command that brought this ticket."""

    ticket: int
    answer: Answer | PenstockError


@dataclass(frozen=True, slots=True, eq=False)
class Persist:
    """Propose this event to the shard's log; equal bytes in two proposals are two events."""

    event: bytes


Effect = Reply | Persist
