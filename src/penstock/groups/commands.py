"""What callers ask of a shard.

Every command carries a `ticket`, which the shard never interprets: the reply names it. A member
id of `""` means that the member has none yet; `candidate_id` is the one it gets in that case, drawn
by the caller because the shard has no random source.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.groups.assignment import Assignment
from penstock.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """Enter or re-enter a rebalance of the classic protocol.

    `protocols` holds name and metadata of what the member supports, the preferred one first.
    `must_know_id` (JoinGroup 4 and later) makes a new dynamic member join twice, the second time
    under the id that it was given (KIP-394). `can_skip_assignment` (JoinGroup 9 and later) lets a
    static leader that returns see the members without assigning anew (KIP-814).
    """

    ticket: int
    group_id: str
    member_id: str
    candidate_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    must_know_id: bool
    can_skip_assignment: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """Ask for the assignment of a generation; the leader brings everyone's.

    The protocol's type and name are None where the caller's version does not carry them.
    """

    ticket: int
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A classic member says that it is alive, and learns whether it must join again."""

    ticket: int
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Leaver:
    """One member of a leave request; a static member may be named by its instance id alone."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Members leave a classic group; each gets its own result."""

    ticket: int
    group_id: str
    leavers: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """The one request of the incremental protocol (KIP-848): join, live, reconcile and leave.

    `member_epoch` 0 joins, -1 leaves, -2 leaves for a moment (static members only). Fields that
    are None are unchanged since the member's last heartbeat; an empty `regex` ends its use.
    """

    ticket: int
    group_id: str
    member_id: str
    candidate_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_ms: int | None = None
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """One partition's position with the note that the consumer keeps beside it."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """Store positions; `generation` is a member epoch for members of the incremental protocol.

    A negative generation comes from consumers that assign partitions themselves.
    """

    ticket: int
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: tuple[OffsetToCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    """Read positions, all of them when `partitions` is None."""

    ticket: int
    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    member_id: str | None = None
    member_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """Forget positions of topics that the group does not consume."""

    ticket: int
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups:
    """Name the shard's groups; an empty filter lets everything through, case does not matter."""

    ticket: int
    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup:
    """Show a classic group."""

    ticket: int
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConsumerGroup:
    """Show a group of the incremental protocol."""

    ticket: int
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """Forget an empty group and its offsets."""

    ticket: int
    group_id: str


GroupCommand = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | ConsumerHeartbeat
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | DescribeGroup
    | DescribeConsumerGroup
    | DeleteGroup
)
Command = GroupCommand | ListGroups
