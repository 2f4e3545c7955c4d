"""The rounds of a classic group: from the call to join, through a generation, to the next call.

States, as Kafka names them:

- *Empty*: no members. The first join starts a rebalance that waits `initial_rebalance_ms` for
  others to arrive, and again as long as they do, up to the rebalance timeout.
- *PreparingRebalance*: members are to join again; their requests wait here. It ends when all have
  joined or the rebalance timeout has passed. Dynamic members that did not come are dropped; static
  ones stay until their session ends. The generation rises by one.
- *CompletingRebalance*: every member knows the generation, the leader works out the assignment;
  SyncGroup requests wait for it.
- *Stable*: the leader's assignment is saved and handed out.

A generation is durable when the leader's assignment is, and when the group becomes empty. A crash
before that brings the former generation back; members of the lost one are told IllegalGeneration
or UnknownMember and join again. Nobody was assigned anything under the lost one, since answers to
SyncGroup wait for the event. The generation number may be used a second time then, by members
that all went through JoinGroup anew.
"""

from collections.abc import Mapping

from penstock.errors import FencedInstanceId, PenstockError, RebalanceInProgress, UnknownMember
from penstock.groups.answers import GroupState, Joined, JoinedMember, Synced
from penstock.groups.commands import JoinGroup
from penstock.groups.deadlines import Matter, Timer
from penstock.groups.events import ClassicSaved
from penstock.groups.limits import GroupLimits
from penstock.groups.roster import ClassicMember, Roster
from penstock.groups.turn import Turn

_JOIN = Timer(Matter.JOIN)
_SYNC = Timer(Matter.SYNC)


class Rounds:
    """Members, their generation, and what they wait for.

    A round ends at most once: a request that waits is answered when its round ends, fails, or its
    member is dropped.
    """

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.empty_since_ms: int | None = None
        self.era = 0
        self.roster = Roster()
        self.invited: set[str] = set()
        self._unsynced: set[str] = set()
        self._limits = limits
        self._is_initial = False
        self._has_newcomers = False
        self._initial_left_ms = 0

    @classmethod
    def of_row(cls, row: ClassicSaved, limits: GroupLimits) -> "Rounds":
        """The group as it was saved: stable, or empty."""
        rounds = cls(row.group_id, limits)
        rounds.state = GroupState.STABLE if row.members else GroupState.EMPTY
        rounds.generation = row.generation
        rounds.protocol_type = row.protocol_type
        rounds.protocol = row.protocol
        rounds.leader = row.leader
        rounds.empty_since_ms = row.empty_since_ms
        rounds.era = row.era
        rounds.roster = Roster(map(ClassicMember.of_row, row.members))
        return rounds

    def to_row(self) -> ClassicSaved:
        """What is saved of the group as it stands."""
        return ClassicSaved(
            self.group_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader,
            tuple(member.to_row() for member in self.roster.members.values()),
            self.empty_since_ms,
            self.era,
        )

    def keep_alive(self, member: ClassicMember, turn: Turn) -> None:
        """Extend the member's session."""
        session = Timer(Matter.SESSION, member.member_id)
        turn.deadlines.set(self.group_id, session, turn.now.steady_ms + member.session_ms)

    def invite(self, member_id: str, session_ms: int, turn: Turn) -> None:
        """Hold the place of a member that must join again under its id."""
        self.invited.add(member_id)
        session = Timer(Matter.SESSION, member_id)
        turn.deadlines.set(self.group_id, session, turn.now.steady_ms + session_ms)

    def uninvite(self, member_id: str, turn: Turn) -> None:
        """Give up the place of a member that never came."""
        self.invited.discard(member_id)
        turn.deadlines.cancel(self.group_id, Timer(Matter.SESSION, member_id))
        self._complete_if_joined(turn)

    def add(self, member_id: str, command: JoinGroup, turn: Turn) -> None:
        """Take a member in and begin a round for it."""
        if not self.roster.members:
            self.protocol_type = command.protocol_type
        member = ClassicMember.joining(member_id, command)
        self.invited.discard(member_id)
        self.roster.add(member)
        self._has_newcomers = True
        self.keep_alive(member, turn)
        self.rebalance(turn)

    def drop(self, member_id: str, turn: Turn) -> None:
        """Let a member go; the others share out its partitions in a new round."""
        member = self.roster.remove(member_id)
        self._unsynced.discard(member_id)
        turn.deadlines.cancel(self.group_id, Timer(Matter.SESSION, member_id))
        self.fail_waits(member, UnknownMember(f"{member_id} is no longer a member"), turn)
        if self.state is not GroupState.EMPTY:
            self.rebalance(turn)

    def expel_all(self, turn: Turn) -> None:
        """Let all members go at once; they join again as if they had never been here."""
        for member in list(self.roster.members.values()):
            self.roster.remove(member.member_id)
            turn.deadlines.cancel(self.group_id, Timer(Matter.SESSION, member.member_id))
            expelled = UnknownMember(f"{member.member_id} must look for its positions anew")
            self.fail_waits(member, expelled, turn)
        self._unsynced.clear()
        turn.deadlines.cancel(self.group_id, _JOIN)
        turn.deadlines.cancel(self.group_id, _SYNC)
        self._become_empty(turn)

    def replace(self, former_id: str, newcomer: ClassicMember, turn: Turn) -> None:
        """Let a static member that has restarted step into its own place (KIP-345)."""
        former = self.roster.remove(former_id)
        self._unsynced.discard(former_id)
        turn.deadlines.cancel(self.group_id, Timer(Matter.SESSION, former_id))
        fenced = FencedInstanceId(f"{former.instance_id} is now {newcomer.member_id}")
        self.fail_waits(former, fenced, turn)
        newcomer.assignment = former.assignment
        self.roster.add(newcomer)
        if self.leader == former_id:
            self.leader = newcomer.member_id
        self.keep_alive(newcomer, turn)

    def fail_waits(self, member: ClassicMember, error: PenstockError, turn: Turn) -> None:
        """Answer what the member waits for with an error."""
        for ticket in (member.join_ticket, member.sync_ticket):
            if ticket is not None:
                turn.reply(ticket, error)
        member.join_ticket = member.sync_ticket = None

    def rebalance(self, turn: Turn) -> None:
        """Call all members to join, or see whether those who were called have come."""
        if self.state is GroupState.PREPARING:
            self._complete_if_joined(turn)
            return
        for member in self.roster.members.values():
            if member.sync_ticket is not None:
                turn.reply(member.sync_ticket, self._called())
                member.sync_ticket = None
        self._unsynced.clear()
        turn.deadlines.cancel(self.group_id, _SYNC)
        self._is_initial = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING
        if self._is_initial:
            self._wait_for_first(self.roster.rebalance_ms(), turn)
        elif not self._complete_if_joined(turn):
            self._wait_for_all(turn)

    def join_time_is_up(self, turn: Turn) -> None:
        """End the wait for members, unless the group is new and more keep coming."""
        if self._is_initial and self._has_newcomers and self._initial_left_ms > 0:
            self._wait_for_first(self._initial_left_ms, turn)
        else:
            self._complete(turn)

    def sync_time_is_up(self, turn: Turn) -> None:
        """Drop the members that joined and then never asked for their assignment."""
        for member_id in sorted(self._unsynced & self.roster.members.keys()):
            self.drop(member_id, turn)

    def take_sync(self, member: ClassicMember, ticket: int, turn: Turn) -> None:
        """Note that the member asks for its assignment."""
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            turn.deadlines.cancel(self.group_id, _SYNC)
        if member.sync_ticket is not None:
            turn.reply(member.sync_ticket, self._called())
        member.sync_ticket = ticket

    def assign(self, assignments: Mapping[str, bytes], turn: Turn) -> None:
        """Take the leader's assignment; members that it leaves out get nothing."""
        for member in self.roster.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.state = GroupState.STABLE
        turn.save(self.to_row())

    def hand_out(self, turn: Turn) -> None:
        """Answer those who wait for the assignment."""
        assert self.protocol is not None, "a generation has a protocol"
        for member in self.roster.members.values():
            if member.sync_ticket is not None:
                answer = Synced(self.protocol_type, self.protocol, member.assignment)
                turn.reply(member.sync_ticket, answer)
                member.sync_ticket = None

    def welcome(
        self,
        member: ClassicMember,
        *,
        for_leader: bool = False,
        leader: str | None = None,
        skip_assignment: bool = False,
    ) -> Joined:
        """What a member learns of the generation; its leader learns who is in it."""
        assert self.protocol is not None, "a generation has a protocol"
        assert self.leader is not None, "a generation has a leader"
        roster = [
            JoinedMember(other.member_id, other.instance_id, other.metadata(self.protocol))
            for other in self.roster.members.values()
            if for_leader
        ]
        return Joined(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=leader or self.leader,
            member_id=member.member_id,
            members=tuple(roster),
            skip_assignment=skip_assignment,
        )

    def _wait_for_first(self, left_ms: int, turn: Turn) -> None:
        delay_ms = min(self._limits.initial_rebalance_ms, left_ms)
        self._initial_left_ms = left_ms - delay_ms
        self._has_newcomers = False
        if delay_ms > 0:
            turn.deadlines.set(self.group_id, _JOIN, turn.now.steady_ms + delay_ms)
        else:
            self._complete(turn)

    def _wait_for_all(self, turn: Turn) -> None:
        when_ms = turn.now.steady_ms + self.roster.rebalance_ms()
        turn.deadlines.set(self.group_id, _JOIN, when_ms)

    def _complete_if_joined(self, turn: Turn) -> bool:
        is_waiting = self.state is GroupState.PREPARING and not self._is_initial
        if not is_waiting or self.invited or not self.roster.have_all_joined():
            return False
        self._complete(turn)
        return True

    def _complete(self, turn: Turn) -> None:
        turn.deadlines.cancel(self.group_id, _JOIN)
        for member in list(self.roster.members.values()):
            if member.join_ticket is None and member.instance_id is None:
                self.roster.remove(member.member_id)
                turn.deadlines.cancel(self.group_id, Timer(Matter.SESSION, member.member_id))
        joined = [m for m in self.roster.members.values() if m.join_ticket is not None]
        if not self.roster.members:
            self._become_empty(turn)
        elif not joined:
            # Only static members are left and none has come: their sessions decide.
            self._wait_for_all(turn)
        else:
            self._begin_generation(joined, turn)

    def _become_empty(self, turn: Turn) -> None:
        self.state = GroupState.EMPTY
        self.generation += 1
        self.protocol = self.leader = None
        self.empty_since_ms = turn.now.wall_ms
        turn.save(self.to_row())

    def _begin_generation(self, joined: list[ClassicMember], turn: Turn) -> None:
        self.state = GroupState.COMPLETING
        self.generation += 1
        self.protocol = self.roster.chosen_protocol()
        self.empty_since_ms = None
        if self.leader not in {member.member_id for member in joined}:
            self.leader = joined[0].member_id
        for member in self.roster.members.values():
            self.keep_alive(member, turn)
            if member.join_ticket is not None:
                answer = self.welcome(member, for_leader=member.member_id == self.leader)
                turn.reply(member.join_ticket, answer)
                member.join_ticket = None
        self._unsynced = set(self.roster.members)
        turn.deadlines.set(self.group_id, _SYNC, turn.now.steady_ms + self.roster.rebalance_ms())

    def _called(self) -> RebalanceInProgress:
        return RebalanceInProgress(f"group {self.group_id} is being rebalanced")
