"""The consensus core: elections, replication, snapshots and membership of one group.

The room keeps the term, the vote, the role, the leader's view of its followers and the tail of the
log that is not persisted yet. It promises what Raft promises: one leader per term, equal logs up to
the commit index, and that a committed entry (persisted on a majority of voters) is never lost while
a majority keeps its memory. It leaves everything that waits to others: the log, the hard state and
snapshots are stored, messages carried and entries applied by whoever owns a `RaftNode`, and time
comes in as ticks.

A loop around a node feeds events in (`step`, `tick`, `propose`, `persisted`, ...) and carries out
the bundles that `ready()` gives, in the order described in `effects`. A heartbeat is a small
message of its own; those of many groups between two nodes fit into one frame
(`encode_heartbeats`).

A group in which nothing happens may rest: see `resting` for what its owner has to promise.

A node that lost its disk is a new member: see `membership` for incarnations, and `Recovered` for
how a replica starts that no group has admitted yet.
"""

from penstock.raft.codec import (
    decode,
    decode_heartbeat_responses,
    decode_heartbeats,
    encode,
    encode_heartbeat_responses,
    encode_heartbeats,
)
from penstock.raft.effects import (
    Effects,
    HardState,
    Leadership,
    Mark,
    ReadState,
    Rest,
    Role,
    Write,
)
from penstock.raft.entries import Entry, EntryKind, LogView, Payload, Snapshot
from penstock.raft.membership import Incarnation, Member, Membership
from penstock.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    ReadRequest,
    ReadResponse,
    Replicate,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.node import FollowerStatus, RaftNode
from penstock.raft.progress import ProgressState
from penstock.raft.replica import Recovered
from penstock.raft.settings import RaftSettings

__all__ = [
    "Append",
    "AppendResponse",
    "Effects",
    "Entry",
    "EntryKind",
    "FollowerStatus",
    "HardState",
    "Heartbeat",
    "HeartbeatResponse",
    "Incarnation",
    "InstallSnapshot",
    "Leadership",
    "LogView",
    "Mark",
    "Member",
    "Membership",
    "Message",
    "Payload",
    "ProgressState",
    "RaftNode",
    "RaftSettings",
    "ReadRequest",
    "ReadResponse",
    "ReadState",
    "Recovered",
    "Replicate",
    "Rest",
    "Role",
    "Snapshot",
    "TimeoutNow",
    "VoteRequest",
    "VoteResponse",
    "Write",
    "decode",
    "decode_heartbeat_responses",
    "decode_heartbeats",
    "encode",
    "encode_heartbeat_responses",
    "encode_heartbeats",
]
