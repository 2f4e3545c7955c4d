"""What a replica's snapshots hold: the machine, and what the log needs to go on from there.

A replica of a new group begins with a snapshot before its first entry, which names the group's
first members; one that comes later begins without and learns everything from its leader.
"""

from pathlib import Path

import msgspec

from penstock.cluster.machine import Machine
from penstock.errors import Corruption
from penstock.ids import EntryIndex, NodeId, Term
from penstock.log import (
    Disk,
    EntryKind,
    HardStateFile,
    PartitionLog,
    Snapshot,
    load_snapshot,
    save_snapshot,
)
from penstock.raft import HardState, Membership, Recovered

_FIRST_INDEX = EntryIndex(1)


class ReplicaState(msgspec.Struct, frozen=True):
    """The payload of a snapshot."""

    membership: bytes
    membership_index: int
    next_offset: int
    machine: memoryview

    @classmethod
    def before_all(cls, membership: Membership, machine: Machine) -> "ReplicaState":
        """Return the state of a group in which nothing has happened."""
        return cls(membership.encode(), 0, 0, memoryview(machine.snapshot()))

    @property
    def members(self) -> Membership:
        """Who replicated the log then."""
        return Membership.decode(self.membership)

    def as_of(self, index: EntryIndex, term: Term) -> Snapshot:
        """Return the snapshot of this state, before the entry at `index`."""
        return Snapshot(index, term, _encode(self))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ReplicaState).decode


def found_replica(disk: Disk, directory: Path, membership: Membership, machine: Machine) -> None:
    """Put a replica on disk that belongs to a new group; one that exists is left alone.

    Every replica of the group is founded with the same membership.
    """
    disk.make_directory(directory)
    if load_snapshot(disk, directory) is None:
        state = ReplicaState.before_all(membership, machine)
        save_snapshot(disk, directory, state.as_of(_FIRST_INDEX, Term(0)))


def load_state(disk: Disk, directory: Path, machine: Machine) -> tuple[Snapshot, ReplicaState]:
    """Return the newest snapshot that is whole; without one the replica has nothing yet."""
    snapshot = load_snapshot(disk, directory)
    if snapshot is not None:
        return snapshot, _decode(snapshot.payload)
    state = ReplicaState.before_all(Membership(), machine)
    return state.as_of(_FIRST_INDEX, Term(0)), state


def check_continues(log: PartitionLog, snapshot: Snapshot) -> None:
    """Raise `Corruption` when entries between the snapshot and the log are missing."""
    if not log.is_empty and not log.first_index <= snapshot.index <= log.next_index:
        raise Corruption(
            f"{log.directory} holds entries from {log.first_index} to {log.next_index}, its newest"
            f" whole snapshot stands at {snapshot.index}"
        )


def recovered_from(
    log: PartitionLog, hard_state: HardStateFile, snapshot: Snapshot, state: ReplicaState
) -> Recovered:
    """Return what consensus goes on from: term and vote, and all memberships that count."""
    saved = hard_state.newest
    memberships = [(EntryIndex(state.membership_index), state.members)]
    for row, _, index in log.rows(snapshot.index):
        if row.kind == EntryKind.MEMBERSHIP:
            payload = log.payload_at(index)[1]
            memberships.append((EntryIndex(index), Membership.decode(payload)))
    return Recovered(
        hard_state=HardState(
            Term(saved.term),
            NodeId(saved.vote) if saved.vote >= 0 else None,
            EntryIndex(saved.commit),
        ),
        memberships=tuple(memberships),
        applied=EntryIndex(snapshot.index - 1),
        doubt=log.doubt,
    )


def check_remembers(log: PartitionLog, hard_state: HardStateFile, *, is_alone: bool) -> None:
    """Raise `Corruption` when a replica with entries has forgotten what it has voted.

    The file is durable before the first entry is written, so no crash leads here. One that votes
    alone needs no memory of that: its log has the last term.
    """
    if hard_state.was_blank and not log.is_empty and not is_alone:
        raise Corruption(
            f"{hard_state.path} is missing or damaged, and {log.directory} has entries"
        )
