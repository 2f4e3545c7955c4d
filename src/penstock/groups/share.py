"""Share groups (KIP-932): who is a member, and which partitions each member fetches from.

Members of a share group may all fetch from the same partition: which message goes to whom is
decided when it is fetched, by its lease. So an assignment only spreads the members over the
partitions, and nothing has to be given up before it is given to another. Nothing here is durable: a
coordinator that knows no members lets them join again, and no message is affected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from penstock.errors import FencedMemberEpoch, GroupMaxSizeReached, UnknownMember
from penstock.groups.answers import GroupState
from penstock.groups.subscription import TopicInfo

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
_MEMBERS_MAX = 1_000

ShareAssignment = Mapping[UUID, frozenset[int]]


@dataclass(slots=True)
class ShareMember:
    """One consumer of the group."""

    member_id: str
    client_id: str
    client_host: str
    topics: tuple[str, ...] = ()
    epoch: int = 0
    seen_ms: int = 0
    assignment: ShareAssignment = field(default_factory=dict)
    # What the member was told last.
    told: ShareAssignment | None = None


@dataclass(frozen=True, slots=True)
class ShareBeat:
    """A member's heartbeat; topics are None when its subscription has not changed."""

    member_id: str
    epoch: int
    topics: Sequence[str] | None
    client_id: str
    client_host: str


class ShareGroup:
    """The members of one share group."""

    def __init__(self, session_ms: int) -> None:
        self._session_ms = session_ms
        self.epoch = 0
        self.members: dict[str, ShareMember] = {}
        self._topics: Mapping[str, TopicInfo] = {}

    @property
    def state(self) -> GroupState:
        """The state that Kafka's tools show."""
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def heartbeat(
        self, beat: ShareBeat, topics: Mapping[str, TopicInfo], steady_ms: int
    ) -> tuple[int, ShareAssignment | None]:
        """Note that a member lives; return its epoch, and its assignment when that is news."""
        self.forget_silent(steady_ms)
        if beat.epoch == LEAVE_EPOCH:
            self._leave(beat.member_id)
            return LEAVE_EPOCH, None
        member = self._member(beat)
        member.seen_ms = steady_ms
        wanted = member.topics if beat.topics is None else tuple(sorted(set(beat.topics)))
        if wanted != member.topics or topics != self._topics:
            member.topics = wanted
            self._topics = dict(topics)
            self._assign()
        member.epoch = self.epoch
        if member.told == member.assignment and beat.epoch != JOIN_EPOCH:
            return member.epoch, None
        member.told = member.assignment
        return member.epoch, member.assignment

    def _member(self, beat: ShareBeat) -> ShareMember:
        member = self.members.get(beat.member_id)
        if member is None:
            if beat.epoch != JOIN_EPOCH:
                raise UnknownMember(f"the share group does not know member {beat.member_id!r}")
            if len(self.members) >= _MEMBERS_MAX:
                raise GroupMaxSizeReached(f"the share group has {_MEMBERS_MAX} members already")
            member = ShareMember(beat.member_id, beat.client_id, beat.client_host)
            self.members[beat.member_id] = member
            # Others make room when it has said what it wants.
            self._topics = {}
        elif beat.epoch not in (JOIN_EPOCH, member.epoch):
            raise FencedMemberEpoch(
                f"member {beat.member_id!r} speaks for epoch {beat.epoch}, it has {member.epoch}"
            )
        return member

    def _leave(self, member_id: str) -> None:
        if self.members.pop(member_id, None) is None:
            raise UnknownMember(f"the share group does not know member {member_id!r}")
        self._assign()

    def forget_silent(self, steady_ms: int) -> None:
        """Do without members that have said nothing for too long."""
        silent = [
            each.member_id
            for each in self.members.values()
            if steady_ms - each.seen_ms > self._session_ms
        ]
        for member_id in silent:
            del self.members[member_id]
        if silent:
            self._assign()

    def _assign(self) -> None:
        """Spread the members over the partitions of each topic, the other way round if need be."""
        self.epoch += 1
        assigned: dict[str, dict[UUID, set[int]]] = {each: {} for each in self.members}
        for name, topic in self._topics.items():
            readers = sorted(
                each.member_id for each in self.members.values() if name in each.topics
            )
            if not readers:
                continue
            for number in range(max(topic.partitions, len(readers))):
                reader = readers[number % len(readers)]
                partitions = assigned[reader].setdefault(topic.topic_id, set())
                partitions.add(number % topic.partitions)
        for member_id, member in self.members.items():
            member.assignment = {
                topic_id: frozenset(partitions)
                for topic_id, partitions in assigned[member_id].items()
            }
