"""Groups of Kafka consumers.

This room keeps the groups of one shard of the coordinator: members, generations and epochs,
assignments, committed offsets. It speaks the classic protocol (JoinGroup, SyncGroup) and the
incremental one of KIP-848, in which the server assigns partitions. It promises that no partition
of an incremental group has two owners at any time, that a classic group hands out one assignment
per generation, and that nobody is told anything which a crash could take back: durable state rides
on the shard's log as events, and answers wait for theirs. It is plain code: commands, topics and
the time come in, events to persist and replies go out. To others it leaves the log and its
replication, the choice of the shard for a group, the wire protocol, and the drawing of member ids.
"""

from penstock.groups.answers import (
    Alive,
    Answer,
    ConsumerGroupDescribed,
    DescribedConsumer,
    DescribedMember,
    Effect,
    GroupDeleted,
    GroupDescribed,
    GroupsListed,
    GroupState,
    GroupType,
    Joined,
    JoinedMember,
    Left,
    ListedGroup,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    Persist,
    Reconciled,
    Reply,
    Synced,
)
from penstock.groups.assignment import Assignment
from penstock.groups.commands import (
    Command,
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    ListGroups,
    OffsetToCommit,
    SyncGroup,
)
from penstock.groups.events import OffsetRow
from penstock.groups.limits import GroupLimits
from penstock.groups.shard import GroupShard
from penstock.groups.share import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ShareAssignment,
    ShareBeat,
    ShareGroup,
    ShareMember,
)
from penstock.groups.subscription import TopicInfo
from penstock.groups.turn import Now

__all__ = [
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "Alive",
    "Answer",
    "Assignment",
    "Command",
    "CommitOffsets",
    "ConsumerGroupDescribed",
    "ConsumerHeartbeat",
    "DeleteGroup",
    "DeleteOffsets",
    "DescribeConsumerGroup",
    "DescribeGroup",
    "DescribedConsumer",
    "DescribedMember",
    "Effect",
    "FetchOffsets",
    "GroupDeleted",
    "GroupDescribed",
    "GroupLimits",
    "GroupShard",
    "GroupState",
    "GroupType",
    "GroupsListed",
    "Heartbeat",
    "JoinGroup",
    "Joined",
    "JoinedMember",
    "LeaveGroup",
    "Leaver",
    "Left",
    "ListGroups",
    "ListedGroup",
    "Now",
    "OffsetRow",
    "OffsetToCommit",
    "OffsetsCommitted",
    "OffsetsDeleted",
    "OffsetsFetched",
    "Persist",
    "Reconciled",
    "Reply",
    "ShareAssignment",
    "ShareBeat",
    "ShareGroup",
    "ShareMember",
    "SyncGroup",
    "Synced",
    "TopicInfo",
]
