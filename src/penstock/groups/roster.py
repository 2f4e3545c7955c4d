"""The members of a classic group: who they are, what they support, who leads."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import FencedInstanceId, UnknownMember
from penstock.groups.commands import JoinGroup
from penstock.groups.events import ClassicMemberRow


@dataclass(slots=True)
class ClassicMember:
    """A member and the requests in which it waits, if any."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join_ticket: int | None = None
    sync_ticket: int | None = None

    @classmethod
    def joining(cls, member_id: str, command: JoinGroup) -> "ClassicMember":
        """A member that waits for the end of the rebalance it has just joined."""
        return cls(
            member_id=member_id,
            instance_id=command.instance_id,
            client_id=command.client_id,
            client_host=command.client_host,
            session_ms=command.session_ms,
            rebalance_ms=command.rebalance_ms,
            protocols=command.protocols,
            join_ticket=command.ticket,
        )

    @classmethod
    def of_row(cls, row: ClassicMemberRow) -> "ClassicMember":
        """The member as it was when its generation was saved."""
        return cls(
            row.member_id,
            row.instance_id,
            row.client_id,
            row.client_host,
            row.session_ms,
            row.rebalance_ms,
            row.protocols,
            row.assignment,
        )

    def to_row(self) -> ClassicMemberRow:
        """What is durable of the member."""
        return ClassicMemberRow(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_ms,
            self.rebalance_ms,
            self.protocols,
            self.assignment,
        )

    @property
    def is_parked(self) -> bool:
        """Whether a request of the member waits here; such a member needs no heartbeat."""
        return self.join_ticket is not None or self.sync_ticket is not None

    def join_again(self, command: JoinGroup) -> None:
        """Take over what the member says now, and wait for the end of the rebalance."""
        self.session_ms = command.session_ms
        self.rebalance_ms = command.rebalance_ms
        self.protocols = command.protocols
        self.join_ticket = command.ticket

    def metadata(self, protocol: str | None) -> bytes:
        """What the member says under `protocol`; under its favourite when none is chosen yet."""
        for name, metadata in self.protocols:
            if protocol is None or name == protocol:
                return metadata
        return b""


class Roster:
    """Members by id. A static instance id belongs to one member at a time."""

    def __init__(self, members: Iterable[ClassicMember] = ()) -> None:
        self.members: dict[str, ClassicMember] = {}
        self._by_instance: dict[str, str] = {}
        for member in members:
            self.add(member)

    def add(self, member: ClassicMember) -> None:
        """Take a member in."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> ClassicMember:
        """Let a member go."""
        member = self.members.pop(member_id)
        if member.instance_id is not None:
            self._by_instance.pop(member.instance_id, None)
        return member

    def holder_of(self, instance_id: str | None) -> str | None:
        """The member that goes under a static instance id."""
        return None if instance_id is None else self._by_instance.get(instance_id)

    def known(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member of that id, provided it is still the one behind the instance id."""
        if instance_id is not None:
            holder = self.holder_of(instance_id)
            if holder is None:
                raise UnknownMember(f"no member has the instance id {instance_id}")
            if holder != member_id:
                raise FencedInstanceId(f"{instance_id} is now {holder}, not {member_id}")
        if member_id not in self.members:
            raise UnknownMember(f"no member has the id {member_id!r}")
        return self.members[member_id]

    def supports(self, protocols: set[str]) -> bool:
        """Whether one of the protocols is common to all members."""
        return not self.members or bool(self._common_protocols() & protocols)

    def chosen_protocol(self) -> str:
        """The common protocol that most members prefer."""
        common = self._common_protocols()
        votes = Counter(
            next(name for name, _ in member.protocols if name in common)
            for member in self.members.values()
        )
        return max(sorted(votes), key=votes.__getitem__)

    def rebalance_ms(self) -> int:
        """How long a rebalance may wait for the slowest member."""
        return max((member.rebalance_ms for member in self.members.values()), default=0)

    def have_all_joined(self) -> bool:
        """Whether every member waits for the end of the rebalance."""
        return all(member.join_ticket is not None for member in self.members.values())

    def _common_protocols(self) -> set[str]:
        supported = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*supported)
