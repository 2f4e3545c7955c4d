"""The owner of a shard's log, as small as it can be."""

from collections import deque
from collections.abc import Mapping
from uuid import UUID

from penstock.errors import PenstockError
from penstock.groups import (
    Answer,
    Command,
    CommitOffsets,
    ConsumerHeartbeat,
    Effect,
    GroupLimits,
    GroupShard,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Now,
    OffsetToCommit,
    Persist,
    Reply,
    SyncGroup,
    TopicInfo,
)

GROUP = "orders-readers"
LIMITS = GroupLimits(initial_rebalance_ms=0)


def topic_id(number: int) -> UUID:
    """The id of the topic `t<number>`."""
    return UUID(int=number)


def topics(*partitions: int) -> dict[str, TopicInfo]:
    """Topics t1, t2, ... with so many partitions each."""
    return {
        f"t{number}": TopicInfo(topic_id(number), count)
        for number, count in enumerate(partitions, start=1)
    }


class Driver:
    """Keeps the log in a list; commits at once unless told to hold."""

    def __init__(
        self,
        limits: GroupLimits = LIMITS,
        catalog: Mapping[str, TopicInfo] | None = None,
    ) -> None:
        self.limits = limits
        self.shard = GroupShard(limits)
        self.catalog = dict(catalog or {})
        self.log: list[bytes] = []
        self.in_flight: deque[Persist] = deque()
        self.answers: dict[int, Answer | PenstockError] = {}
        self.is_holding = False
        self.now_ms = 1_000_000
        self.clock_set_ms = 0
        self._ticket = 0
        self._begin()

    @property
    def now(self) -> Now:
        """The time, with a wall clock that may have been set."""
        return Now(self.now_ms + self.clock_set_ms, self.now_ms)

    def ticket(self) -> int:
        """A new ticket."""
        self._ticket += 1
        return self._ticket

    def send(self, command: Command) -> int:
        """Carry out a command; the answer, once there is one, is under its ticket."""
        self.carry_out(self.shard.step(command, self.now))
        return command.ticket

    def ask(self, command: Command) -> Answer | PenstockError:
        """Carry out a command that is answered at once."""
        return self.answers[self.send(command)]

    def carry_out(self, effects: list[Effect]) -> None:
        """Answer and propose."""
        for effect in effects:
            match effect:
                case Reply(ticket, answer):
                    assert ticket not in self.answers, "a ticket is answered once"
                    self.answers[ticket] = answer
                case Persist():
                    self.in_flight.append(effect)
        if not self.is_holding:
            self.commit_all()

    def commit_one(self) -> None:
        """Commit the oldest event in flight."""
        persist = self.in_flight.popleft()
        self.log.append(persist.event)
        is_holding, self.is_holding = self.is_holding, True
        self.carry_out(self.shard.apply(persist.event))
        self.is_holding = is_holding

    def commit_all(self) -> None:
        """Commit whatever is in flight."""
        while self.in_flight:
            self.commit_one()

    def abandon(self, error: PenstockError, position: int = 0) -> None:
        """Let the events in flight from `position` on fail."""
        persist = self.in_flight[position]
        self.in_flight = deque(list(self.in_flight)[:position])
        self.carry_out(self.shard.abandoned(persist, error, self.now))

    def advance(self, duration_ms: int) -> None:
        """Let time pass, stopping at every deadline on the way."""
        end_ms = self.now_ms + duration_ms
        while True:
            deadline_ms = self.shard.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.carry_out(self.shard.tick(self.now))
        self.now_ms = end_ms

    def change_topics(self, catalog: Mapping[str, TopicInfo]) -> None:
        """Let the cluster have these topics."""
        self.catalog = dict(catalog)
        self.carry_out(self.shard.topics_changed(self.catalog, self.now))

    def fail_over(self) -> None:
        """Go on with another replica, which has the log and nothing else."""
        self.carry_out(self.shard.resigned())
        self.in_flight.clear()
        self.shard = replayed(self.log, self.limits)
        self._begin()

    def join(self, member_id: str = "", **changes: object) -> int:
        """Send a JoinGroup; unless changed, from a new dynamic member of an old client."""
        return self.send(self.join_command(member_id, **changes))

    def join_command(self, member_id: str = "", **changes: object) -> JoinGroup:
        """A JoinGroup with the usual fields."""
        ticket = self.ticket()
        fields: dict[str, object] = {
            "ticket": ticket,
            "group_id": GROUP,
            "member_id": member_id,
            "candidate_id": f"m{ticket}",
            "instance_id": None,
            "client_id": "client",
            "client_host": "/10.0.0.1",
            "session_ms": 10_000,
            "rebalance_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": (("range", b"r"), ("roundrobin", b"rr")),
            "must_know_id": False,
            "can_skip_assignment": False,
        }
        return JoinGroup(**(fields | changes))  # type: ignore[arg-type]

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        instance_id: str | None = None,
        group_id: str = GROUP,
    ) -> int:
        """Send a SyncGroup."""
        return self.send(
            SyncGroup(
                ticket=self.ticket(),
                group_id=group_id,
                member_id=member_id,
                instance_id=instance_id,
                generation=generation,
                protocol_type="consumer",
                protocol="range",
                assignments=assignments or {},
            )
        )

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None = None
    ) -> Answer | PenstockError:
        """Send a classic heartbeat."""
        return self.ask(
            Heartbeat(
                ticket=self.ticket(),
                group_id=GROUP,
                member_id=member_id,
                instance_id=instance_id,
                generation=generation,
            )
        )

    def leave(self, *leavers: Leaver) -> Answer | PenstockError:
        """Send a LeaveGroup."""
        return self.ask(LeaveGroup(ticket=self.ticket(), group_id=GROUP, leavers=leavers))

    def beat(self, member_id: str, epoch: int, **said: object) -> int:
        """Send a heartbeat of the incremental protocol."""
        fields: dict[str, object] = {
            "ticket": self.ticket(),
            "group_id": GROUP,
            "member_id": member_id,
            "candidate_id": "",
            "member_epoch": epoch,
        }
        if epoch == 0:
            fields |= {"rebalance_ms": 30_000, "topics": ("t1",), "owned": {}}
        return self.send(ConsumerHeartbeat(**(fields | said)))  # type: ignore[arg-type]

    def commit(
        self, *offsets: OffsetToCommit, member_id: str = "", generation: int = -1
    ) -> Answer | PenstockError:
        """Send an OffsetCommit."""
        command = self.commit_command(*offsets, member_id=member_id, generation=generation)
        return self.ask(command)

    def commit_command(
        self, *offsets: OffsetToCommit, member_id: str = "", generation: int = -1
    ) -> CommitOffsets:
        """An OffsetCommit; unless changed, from a consumer without a group protocol."""
        return CommitOffsets(
            ticket=self.ticket(),
            group_id=GROUP,
            member_id=member_id,
            instance_id=None,
            generation=generation,
            offsets=offsets,
        )

    def _begin(self) -> None:
        if self.catalog:
            self.shard.topics_changed(self.catalog, self.now)
        self.carry_out(self.shard.became_leader(self.now))


def replayed(log: list[bytes], limits: GroupLimits = LIMITS) -> GroupShard:
    """A shard that has read the log from its beginning."""
    shard = GroupShard(limits)
    for event in log:
        shard.apply(event)
    return shard
