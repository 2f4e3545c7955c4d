"""Who belongs to a group, and how that changes.

A member is a node *and* an incarnation. The incarnation is drawn when a node's data directory is
made and lives as long as the directory. A node that lost its disk comes back with a new one and is
a stranger to its groups: it has forgotten which votes it gave and which entries it acknowledged, so
its answers must not be counted as those of the member whose memory is gone. Only a membership entry
that names the new incarnation makes it a member again.

A membership takes effect when its entry is appended, not when it is committed (thesis 4.1). One
voter is added or removed at a time, so any majority of the old membership and any majority of the
new one have a voter in common. When the entry is cut from the log again, the membership before it
is back in force.

Bytes of a membership entry: version 1 (u8), number of voters and of learners (u16 each), then for
each member, voters first, its node (u32) and incarnation (u64). All integers are big-endian.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, NewType, Self

from penstock.errors import InvalidRequest
from penstock.ids import EntryIndex, NodeId

Incarnation = NewType("Incarnation", int)

_VERSION = 1
_HEADER = struct.Struct(">BHH")
_MEMBER = struct.Struct(">IQ")


class Member(NamedTuple):
    """One node with one memory."""

    node: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Membership:
    """Voters elect and commit; learners receive the log and are counted for nothing."""

    voters: tuple[Member, ...] = ()
    learners: tuple[Member, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Member], learners: Iterable[Member] = ()) -> Self:
        """Build a membership; each node may occur once."""
        membership = cls(tuple(sorted(voters)), tuple(sorted(learners)))
        nodes = [member.node for member in membership.members]
        if len(nodes) != len(set(nodes)):
            raise InvalidRequest(f"a node occurs twice in voters or learners: {nodes}")
        return membership

    @property
    def members(self) -> tuple[Member, ...]:
        """Voters and learners."""
        return self.voters + self.learners

    @property
    def quorum(self) -> int:
        """How many voters make a majority."""
        return len(self.voters) // 2 + 1

    def with_learner(self, member: Member) -> "Membership":
        """Add a learner. Another incarnation of the same node loses its place to it."""
        kept = self.without(member.node)
        return Membership.of(kept.voters, (*kept.learners, member))

    def with_voter(self, member: Member) -> "Membership":
        """Make a member a voter, promoting it when it is a learner."""
        kept = self.without(member.node)
        return Membership.of((*kept.voters, member), kept.learners)

    def without(self, node: NodeId) -> "Membership":
        """Remove a node, whatever it is."""
        return Membership(
            tuple(member for member in self.voters if member.node != node),
            tuple(member for member in self.learners if member.node != node),
        )

    def voters_changed(self, other: "Membership") -> int:
        """How many voters are in one of the two and not in the other."""
        return len(set(self.voters) ^ set(other.voters))

    def encode(self) -> bytes:
        """The payload of a membership entry."""
        header = _HEADER.pack(_VERSION, len(self.voters), len(self.learners))
        return header + b"".join(_MEMBER.pack(*member) for member in self.members)

    @classmethod
    def decode(cls, payload: bytes | bytearray | memoryview) -> Self:
        """Read what `encode` wrote."""
        if len(payload) < _HEADER.size:
            raise InvalidRequest(f"a membership of {len(payload)} bytes has no header")
        version, voter_count, learner_count = _HEADER.unpack_from(payload)
        size_bytes = _HEADER.size + (voter_count + learner_count) * _MEMBER.size
        if version != _VERSION or len(payload) != size_bytes:
            raise InvalidRequest(
                f"a membership of version {version} has {len(payload)} bytes, not {size_bytes}"
            )
        rows = _MEMBER.iter_unpack(memoryview(payload)[_HEADER.size :])
        members = [Member(NodeId(node), Incarnation(incarnation)) for node, incarnation in rows]
        return cls.of(members[:voter_count], members[voter_count:])


class MembershipHistory:
    """The membership in force, and those that a truncation could bring back.

    At least the newest committed membership is kept, so what was committed can never be lost by
    cutting the log.
    """

    __slots__ = ("_steps", "current")

    def __init__(self, steps: Iterable[tuple[EntryIndex, Membership]]) -> None:
        self._steps = sorted(steps, key=lambda step: step[0]) or [(EntryIndex(0), Membership())]
        self.current: Membership = self._steps[-1][1]
        """The membership that is in force."""

    @property
    def index(self) -> EntryIndex:
        """The entry that put the current membership in force; 0 for the first one."""
        return self._steps[-1][0]

    def append(self, index: EntryIndex, membership: Membership) -> None:
        """Put `membership` in force from the entry at `index` on."""
        assert index > self._steps[-1][0], "entries come in order"
        self._steps.append((index, membership))
        self.current = membership

    def truncate(self, start: EntryIndex) -> bool:
        """Forget the memberships of entries from `start` on; True when that changed anything."""
        if self._steps[-1][0] < start or len(self._steps) == 1:
            return False
        while len(self._steps) > 1 and self._steps[-1][0] >= start:
            self._steps.pop()
        self.current = self._steps[-1][1]
        return True

    def commit(self, index: EntryIndex) -> None:
        """Entries up to `index` are committed; memberships before the last of them may go."""
        steps = self._steps
        while len(steps) > 1 and steps[1][0] <= index:
            del steps[0]

    def restart(self, index: EntryIndex, membership: Membership) -> None:
        """Begin anew from a snapshot."""
        self._steps = [(index, membership)]
        self.current = membership

    def is_voter(self, member: Member) -> bool:
        """Whether the newest membership, or one that may yet come back, lets `member` campaign.

        A voter whose removal is appended and not committed may be the only one that holds the
        entry: without its campaign nobody could commit it (thesis 4.2.2).
        """
        return any(member in membership.voters for _, membership in self._steps)

    def is_member(self, member: Member) -> bool:
        """Whether `member` is, or may yet be again, a voter or a learner."""
        return any(member in membership.members for _, membership in self._steps)
