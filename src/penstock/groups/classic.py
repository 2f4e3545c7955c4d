"""A group of the classic protocol: who may do what, and what each request leads to.

The states and their order are in `rounds`.
"""

from penstock.errors import (
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    PenstockError,
    RebalanceInProgress,
)
from penstock.groups.answers import (
    Alive,
    DescribedMember,
    GroupDescribed,
    GroupState,
    GroupType,
    Joined,
    Left,
)
from penstock.groups.commands import Heartbeat, JoinGroup, LeaveGroup, Leaver, SyncGroup
from penstock.groups.deadlines import Matter, Timer
from penstock.groups.events import ClassicSaved
from penstock.groups.limits import GroupLimits
from penstock.groups.roster import ClassicMember
from penstock.groups.rounds import Rounds
from penstock.groups.subscription import Catalog, classic_topics
from penstock.groups.turn import Turn

_ALIVE = Alive()
_CONSUMERS = "consumer"


class ClassicGroup:
    """One group. Methods raise before they change anything that is not a session."""

    group_type = GroupType.CLASSIC

    def __init__(self, rounds: Rounds, limits: GroupLimits) -> None:
        self.group_id = rounds.group_id
        self._rounds = rounds
        self._roster = rounds.roster
        self._limits = limits

    @classmethod
    def fresh(
        cls, group_id: str, limits: GroupLimits, empty_since_ms: int | None, *, era: int
    ) -> "ClassicGroup":
        """A group without generations; `empty_since_ms` is None if it never had members."""
        rounds = Rounds(group_id, limits)
        rounds.empty_since_ms = empty_since_ms
        rounds.era = era
        return cls(rounds, limits)

    @classmethod
    def of_row(cls, row: ClassicSaved, limits: GroupLimits) -> "ClassicGroup":
        """The group as it was saved."""
        return cls(Rounds.of_row(row, limits), limits)

    def to_row(self) -> ClassicSaved:
        """What is saved of the group as it stands."""
        return self._rounds.to_row()

    def resume(self, turn: Turn) -> None:
        """Give every member a fresh session, as a new coordinator does."""
        for member in self._roster.members.values():
            self._rounds.keep_alive(member, turn)

    @property
    def state(self) -> GroupState:
        """Where in a round the group is."""
        return self._rounds.state

    @property
    def protocol_type(self) -> str:
        """What kind of members the group has; empty for a group that only holds offsets."""
        return self._rounds.protocol_type

    @property
    def empty_since_ms(self) -> int | None:
        """When the last member left; None while there are members, or never were."""
        return self._rounds.empty_since_ms

    @property
    def era(self) -> int:
        """The newest era of topics that all members know of."""
        return self._rounds.era

    def reach(self, era: int) -> None:
        """Note that no member knows a topic which had its name before that era."""
        self._rounds.era = max(self._rounds.era, era)

    def expel_all(self, turn: Turn) -> None:
        """Let all members go; they join again as if they had never been here."""
        self._rounds.expel_all(turn)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return self.state is GroupState.EMPTY

    @property
    def is_deserted(self) -> bool:
        """Whether the group is empty and nobody has been invited to join either."""
        return self.is_empty and not self._rounds.invited

    def join(self, command: JoinGroup, turn: Turn) -> None:
        """Let a member into the next generation; the answer may wait for the others."""
        self._check_join(command)
        member_id = command.member_id
        if not member_id and command.instance_id is not None:
            self._join_static(command, turn)
        elif not member_id and command.must_know_id:
            self._rounds.invite(command.candidate_id, command.session_ms, turn)
            error = MemberIdRequired("join again under the id given", command.candidate_id)
            turn.reply(command.ticket, error)
        elif not member_id:
            self._rounds.add(command.candidate_id, command, turn)
        elif member_id in self._rounds.invited:
            self._rounds.add(member_id, command, turn)
        else:
            self._rejoin(self._roster.members[member_id], command, turn)

    def sync(self, command: SyncGroup, turn: Turn) -> None:
        """Hand out the assignment, or wait until the leader brings it."""
        member = self._member_of(command)
        self._check_protocol(command)
        if self.state is GroupState.PREPARING:
            raise self._called()
        self._rounds.take_sync(member, command.ticket, turn)
        if self.state is GroupState.COMPLETING and member.member_id == self._rounds.leader:
            self._rounds.assign(command.assignments, turn)
        if self.state is GroupState.STABLE:
            self._rounds.hand_out(turn)

    def heartbeat(self, command: Heartbeat, turn: Turn) -> None:
        """Extend the member's session."""
        member = self._member_of(command)
        self._rounds.keep_alive(member, turn)
        if self.state is GroupState.PREPARING:
            raise self._called()
        turn.reply(command.ticket, _ALIVE)

    def leave(self, command: LeaveGroup, turn: Turn) -> None:
        """Let members go, each with its own result."""
        results = tuple(self._result_of_leaving(leaver, turn) for leaver in command.leavers)
        turn.reply(command.ticket, Left(results))

    def expire(self, timer: Timer, turn: Turn) -> None:
        """Act on a deadline that has passed."""
        match timer.matter:
            case Matter.JOIN:
                self._rounds.join_time_is_up(turn)
            case Matter.SYNC:
                self._rounds.sync_time_is_up(turn)
            case Matter.SESSION:
                self._end_session(timer.member_id, turn)
            case Matter.REVOCATION:
                raise AssertionError("classic members revoke among themselves")

    def unpark(self, error: PenstockError, turn: Turn) -> None:
        """Answer everyone who waits with `error`."""
        for member in self._roster.members.values():
            self._rounds.fail_waits(member, error, turn)

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Refuse commits that do not come from a member of this generation."""
        if generation < 0 and self.is_empty:
            return
        self._roster.known(member_id, instance_id)
        self._check_generation(generation)
        if self.state is GroupState.COMPLETING:
            raise self._called()

    def check_fetch(self, _member_id: str, _member_epoch: int) -> None:
        """Anyone may read the offsets of a classic group."""

    def touch(self, member_id: str, turn: Turn) -> None:
        """Extend the session of a member that shows life by other means than a heartbeat."""
        member = self._roster.members.get(member_id)
        if member is not None:
            self._rounds.keep_alive(member, turn)

    def is_subscribed(self, topic: str, _catalog: Catalog) -> bool:
        """Whether a member reads the topic, or may do so: foreign metadata is not understood."""
        for member in self._roster.members.values():
            topics = classic_topics(member.metadata(self._rounds.protocol))
            if self.protocol_type != _CONSUMERS or topics is None or topic in topics:
                return True
        return False

    def describe(self) -> GroupDescribed:
        """The group as tools see it."""
        is_stable = self.state is GroupState.STABLE
        protocol = self._rounds.protocol
        return GroupDescribed(
            group_id=self.group_id,
            state=self.state,
            protocol_type=self.protocol_type,
            protocol=(protocol or "") if is_stable else "",
            members=tuple(
                DescribedMember(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=member.metadata(protocol) if is_stable else b"",
                    assignment=member.assignment if is_stable else b"",
                )
                for member in self._roster.members.values()
            ),
        )

    def _check_join(self, command: JoinGroup) -> None:
        limits = self._limits
        if not limits.session_ms_min <= command.session_ms <= limits.session_ms_max:
            raise InvalidSessionTimeout(
                f"{command.session_ms} ms, not {limits.session_ms_min}..{limits.session_ms_max}"
            )
        if not command.protocols or not command.protocol_type:
            raise InconsistentGroupProtocol("a member must name a protocol and its type")
        if self._roster.members and command.protocol_type != self.protocol_type:
            raise InconsistentGroupProtocol(f"the group is of type {self.protocol_type}")
        if not self._roster.supports({name for name, _ in command.protocols}):
            raise InconsistentGroupProtocol("no protocol is common to all members")
        if command.member_id and command.member_id not in self._rounds.invited:
            self._roster.known(command.member_id, command.instance_id)
        elif not command.member_id and self._roster.holder_of(command.instance_id) is None:
            self._check_size()

    def _check_size(self) -> None:
        size = len(self._roster.members) + len(self._rounds.invited)
        if size >= self._limits.members_max:
            raise GroupMaxSizeReached(f"group {self.group_id} has {size} members")

    def _join_static(self, command: JoinGroup, turn: Turn) -> None:
        former_id = self._roster.holder_of(command.instance_id)
        if former_id is None:
            self._rounds.add(command.candidate_id, command, turn)
            return
        newcomer = ClassicMember.joining(command.candidate_id, command)
        former_leader = self._rounds.leader
        self._rounds.replace(former_id, newcomer, turn)
        is_stable = self.state is GroupState.STABLE
        if is_stable and self._roster.chosen_protocol() == self._rounds.protocol:
            newcomer.join_ticket = None
            turn.save(self.to_row())
            turn.reply(command.ticket, self._welcome_back(newcomer, command, former_leader))
        else:
            self._rounds.rebalance(turn)

    def _welcome_back(
        self, member: ClassicMember, command: JoinGroup, former_leader: str | None
    ) -> Joined:
        is_leader = self._rounds.leader == member.member_id
        if not command.can_skip_assignment:
            # Naming the former leader keeps a restarted one from assigning anew.
            return self._rounds.welcome(member, leader=former_leader)
        return self._rounds.welcome(member, for_leader=is_leader, skip_assignment=is_leader)

    def _rejoin(self, member: ClassicMember, command: JoinGroup, turn: Turn) -> None:
        is_leader = member.member_id == self._rounds.leader
        is_unchanged = member.protocols == command.protocols
        if self.state is GroupState.COMPLETING and is_unchanged:
            # The answer to the first JoinGroup may have been lost.
            turn.reply(command.ticket, self._rounds.welcome(member, for_leader=is_leader))
        elif self.state is GroupState.STABLE and is_unchanged and not is_leader:
            turn.reply(command.ticket, self._rounds.welcome(member))
        else:
            self._rounds.fail_waits(member, self._called(), turn)
            member.join_again(command)
            self._rounds.keep_alive(member, turn)
            self._rounds.rebalance(turn)

    def _result_of_leaving(self, leaver: Leaver, turn: Turn) -> PenstockError | None:
        try:
            self._leave(leaver, turn)
        except PenstockError as error:
            return error
        return None

    def _leave(self, leaver: Leaver, turn: Turn) -> None:
        if leaver.member_id in self._rounds.invited:
            self._rounds.uninvite(leaver.member_id, turn)
            return
        holder = self._roster.holder_of(leaver.instance_id)
        member_id = leaver.member_id or holder or ""
        self._rounds.drop(self._roster.known(member_id, leaver.instance_id).member_id, turn)

    def _end_session(self, member_id: str, turn: Turn) -> None:
        member = self._roster.members.get(member_id)
        if member is None:
            self._rounds.uninvite(member_id, turn)
        elif member.is_parked:
            # A member whose request waits here cannot send heartbeats.
            self._rounds.keep_alive(member, turn)
        else:
            self._rounds.drop(member_id, turn)

    def _member_of(self, command: SyncGroup | Heartbeat) -> ClassicMember:
        member = self._roster.known(command.member_id, command.instance_id)
        self._check_generation(command.generation)
        return member

    def _check_generation(self, generation: int) -> None:
        if generation != self._rounds.generation:
            raise IllegalGeneration(
                f"generation {generation} of group {self.group_id}, now {self._rounds.generation}"
            )

    def _check_protocol(self, command: SyncGroup) -> None:
        if command.protocol_type not in (None, self.protocol_type):
            raise InconsistentGroupProtocol(f"the group is of type {self.protocol_type}")
        if command.protocol not in (None, self._rounds.protocol):
            raise InconsistentGroupProtocol(f"the group uses {self._rounds.protocol}")

    def _called(self) -> RebalanceInProgress:
        return RebalanceInProgress(f"group {self.group_id} is being rebalanced")
