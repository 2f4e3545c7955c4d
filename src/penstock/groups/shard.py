"""All groups of one shard: what is durable, what is live, and the events between the two.

The ledger holds what committed events say. The coordinator, on the leading node only, holds the
groups as commands have left them, ahead of the ledger by the events in flight. Each event carries
whole rows, never differences, so the ledger after an event does not depend on who computed it.

What is promised, and what may crash between two steps:

- *No answer overtakes its state.* Whatever a command changes is visible to the next command at
  once, for instance a raised epoch. An answer that rests on uncommitted changes of its group waits
  until the last of them is committed, also when the command itself changed nothing. So whatever a
  client has been told is in the log.
- *Crash after `step`, before the event is in the log*: the change is gone and nobody heard of it.
- *Crash after the commit, before the reply*: the change stands and the client asks again. A member
  of the incremental protocol comes back with its previous epoch, which is accepted; a classic
  member that joins again under an id that nobody confirmed is told UnknownMember and starts anew;
  an offset commit is repeated with the same result.
- *A proposal fails*: every event after it rests on it and fails with it. The groups that they
  changed are rebuilt from the ledger and the events still in flight, those who wait get the error,
  sessions start anew. The live state is never ahead of the events that can still commit.
- *Another node takes over*: it has applied the same events in the same order, and goes on with
  the same generations and epochs. Sessions start anew, so nobody is expelled for the time that
  nobody was there to hear heartbeats. What is volatile by design is lost and repeated by clients:
  a rebalance of the classic protocol before its leader's assignment, and invitations to join.

Offsets become visible when they are committed; commits in flight do not hold up other answers.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from penstock.errors import NotCoordinator, PenstockError
from penstock.groups.answers import Effect, Persist, Reply
from penstock.groups.commands import Command, LeaveGroup, ListGroups
from penstock.groups.coordinator import Coordinator
from penstock.groups.events import (
    GroupRemoved,
    OffsetRow,
    OffsetsRemoved,
    OffsetsSaved,
    TopicsForgotten,
    decode,
    encode,
)
from penstock.groups.inheritance import valid_offsets
from penstock.groups.ledger import Ledger
from penstock.groups.limits import GroupLimits
from penstock.groups.subscription import Catalog, TopicInfo
from penstock.groups.turn import Now, Turn
from penstock.ids import TopicPartition

_NO_GROUP = ""
# Nobody who is sent away gets a deadline.
_NEVER = Now(0, 0)


@dataclass(slots=True, eq=False)
class _Proposal:
    """An event in flight, and the answers that wait for it."""

    persist: Persist
    group_id: str
    replies: list[Reply]
    changes_group: bool


class GroupShard:
    """The groups of one shard, to be driven by the owner of the shard's log.

    The owner proposes the event of every `Persist` in the order given, as long as the shard still
    expects it, passes each committed event to `apply`, and carries out what comes back. It calls
    `became_leader` when it leads the log and has applied all that was committed before,
    `abandoned` when an event can no longer commit, and `resigned` when it no longer leads. An
    event whose fate is unknown is still in flight.
    """

    def __init__(self, limits: GroupLimits) -> None:
        self._limits = limits
        self._ledger = Ledger()
        self._catalog: Catalog | None = None
        self._coordinator: Coordinator | None = None
        self._in_flight: deque[_Proposal] = deque()
        self._latest: dict[str, _Proposal] = {}
        self._sweep_ms = 0

    def has_group(self, group_id: str) -> bool:
        """Whether a group is there, on the leader, also one whose first event is in flight."""
        return self._coordinator is not None and group_id in self._coordinator.groups

    def positions_in(self, partition: TopicPartition) -> dict[str, OffsetRow]:
        """Return what groups have committed in a partition, by group."""
        found = {
            group_id: valid_offsets(group_id, offsets, self._catalog)
            for group_id, offsets in self._ledger.offsets.items()
        }
        return {
            group_id: offsets[partition]
            for group_id, offsets in found.items()
            if partition in offsets
        }

    @classmethod
    def restore(cls, limits: GroupLimits, snapshot: bytes) -> Self:
        """A shard that has applied the events before the snapshot."""
        shard = cls(limits)
        for record in decode(snapshot):
            shard._ledger.apply(record)
        return shard

    def snapshot(self) -> bytes:
        """The durable state, after the last event applied."""
        return encode(list(self._ledger.records()))

    def apply(self, event: bytes) -> list[Effect]:
        """Take in a committed event, in log order; on the leader, answer who waited for it."""
        for record in decode(event):
            self._ledger.apply(record)
        if self._coordinator is None:
            return []
        assert self._in_flight, "while a node leads, only its own events commit"
        proposal = self._in_flight.popleft()
        assert proposal.persist.event == event, "events commit in the order of their proposal"
        if self._latest.get(proposal.group_id) is proposal:
            del self._latest[proposal.group_id]
        return list(proposal.replies)

    def became_leader(self, now: Now) -> list[Effect]:
        """Answer commands from now on; all earlier events have been applied."""
        assert self._coordinator is None, "the shard leads already"
        self._coordinator = Coordinator(self._ledger, self._limits)
        self._coordinator.begin(now)
        self._sweep_ms = now.steady_ms + self._limits.offsets_sweep_ms
        return self._expel_outlived(self._coordinator, now)

    def resigned(self) -> list[Effect]:
        """Answer no more commands: all who wait are sent to the new leader."""
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is None:
            return []
        error = NotCoordinator("another node leads the shard of this group")
        turn = Turn(_NEVER, coordinator.deadlines)
        for group in coordinator.groups.values():
            group.unpark(error, turn)
        failed = [reply for proposal in self._in_flight for reply in proposal.replies]
        self._in_flight.clear()
        self._latest.clear()
        return [*turn.replies, *(Reply(reply.ticket, error) for reply in failed)]

    def abandoned(self, persist: Persist, error: PenstockError, now: Now) -> list[Effect]:
        """Give up an event that cannot commit any more, and with it all proposed after it."""
        failed = self._cut(persist)
        if self._coordinator is None or not failed:
            return []
        turn = Turn(now, self._coordinator.deadlines)
        for proposal in failed:
            for reply in proposal.replies:
                turn.reply(reply.ticket, error)
        for group_id in sorted({p.group_id for p in failed if p.changes_group}):
            self._coordinator.unpark(group_id, error, turn)
            self._coordinator.rebuild(group_id, self._expected(group_id), turn)
        return list(turn.replies)

    def expects(self, persist: Persist) -> bool:
        """Whether an event is in flight; one that fell with an earlier one must not be proposed."""
        return any(proposal.persist is persist for proposal in reversed(self._in_flight))

    def step(self, command: Command, now: Now) -> list[Effect]:
        """Carry out one command."""
        if self._coordinator is None:
            error = NotCoordinator("this node does not lead the shard of this group")
            return [Reply(command.ticket, error)]
        turn = Turn(now, self._coordinator.deadlines)
        try:
            self._coordinator.take(command, self._catalog, turn)
        except PenstockError as error:
            turn.reply(command.ticket, error)
        group_id = _NO_GROUP if isinstance(command, ListGroups) else command.group_id
        effects = self._concluded(group_id, turn)
        if isinstance(command, LeaveGroup):
            self._forget_if_unsaved(self._coordinator, group_id)
        return effects

    def tick(self, now: Now) -> list[Effect]:
        """Act on the deadlines that have passed."""
        if self._coordinator is None:
            return []
        effects: list[Effect] = []
        while due := self._coordinator.deadlines.pop_due(now.steady_ms):
            group_id, timer = due
            turn = Turn(now, self._coordinator.deadlines)
            self._coordinator.expire(group_id, timer, turn)
            effects += self._concluded(group_id, turn)
            self._forget_if_unsaved(self._coordinator, group_id)
        if now.steady_ms >= self._sweep_ms:
            effects += self._sweep(self._coordinator, now)
        return effects

    def next_deadline_ms(self) -> int | None:
        """When to call `tick`, on the steady clock; it may turn out that nothing is due then."""
        if self._coordinator is None:
            return None
        next_ms = self._coordinator.deadlines.next_ms()
        return self._sweep_ms if next_ms is None else min(next_ms, self._sweep_ms)

    def topics_changed(self, topics: Mapping[str, TopicInfo], now: Now) -> list[Effect]:
        """Take in all topics of the cluster as they are now; every replica is to be told.

        A topic that is missing and was there before has been deleted, and its offsets go with it.
        """
        former, self._catalog = self._catalog, Catalog(topics)
        if self._coordinator is None:
            return []
        self._coordinator.topics_changed()
        turn = Turn(now, self._coordinator.deadlines)
        gone = self._catalog.gone_since(former) if former else []
        if gone:
            turn.save(TopicsForgotten(tuple(gone)))
        effects = self._concluded(_NO_GROUP, turn)
        return [*effects, *self._expel_outlived(self._coordinator, now)]

    def _expel_outlived(self, coordinator: Coordinator, now: Now) -> list[Effect]:
        """Expel members whose positions are of topics that have no longer their name."""
        if self._catalog is None:
            return []
        effects: list[Effect] = []
        for group_id in coordinator.reach(self._catalog):
            turn = Turn(now, coordinator.deadlines)
            coordinator.groups[group_id].expel_all(turn)
            effects += self._concluded(group_id, turn)
        return effects

    def _concluded(self, group_id: str, turn: Turn) -> list[Effect]:
        """Turn what happened into effects; answers wait for the changes that they rest on."""
        if not turn.records:
            latest = self._latest.get(group_id)
            if latest is None:
                return list(turn.replies)
            latest.replies.extend(turn.replies)
            return []
        changes_group = any(
            not isinstance(record, OffsetsSaved | OffsetsRemoved | TopicsForgotten)
            for record in turn.records
        )
        persist = Persist(encode(turn.records))
        proposal = _Proposal(persist, group_id, turn.replies, changes_group)
        self._in_flight.append(proposal)
        if changes_group:
            self._latest[group_id] = proposal
        return [persist]

    def _forget_if_unsaved(self, coordinator: Coordinator, group_id: str) -> None:
        if group_id not in self._latest and coordinator.is_unsaved_and_deserted(group_id):
            coordinator.forget(group_id)

    def _cut(self, persist: Persist) -> list[_Proposal]:
        """Take the event and all after it out of flight."""
        proposals = list(self._in_flight)
        for position, proposal in enumerate(proposals):
            if proposal.persist is persist:
                self._in_flight = deque(proposals[:position])
                self._latest = {p.group_id: p for p in self._in_flight if p.changes_group}
                return proposals[position:]
        return []

    def _expected(self, group_id: str) -> Ledger:
        """What the ledger will say about a group when all that is in flight has committed."""
        rows = self._ledger.excerpt(group_id)
        for proposal in self._in_flight:
            if proposal.group_id == group_id and proposal.changes_group:
                for record in decode(proposal.persist.event):
                    rows.apply(record)
        return rows

    def _sweep(self, coordinator: Coordinator, now: Now) -> list[Effect]:
        """Let retention take what is due."""
        self._sweep_ms = now.steady_ms + self._limits.offsets_sweep_ms
        if self._catalog is None:
            return []
        # A commit in flight makes offsets young again that look old in the ledger.
        busy = {proposal.group_id for proposal in self._in_flight}
        effects: list[Effect] = []
        for group_id in sorted(coordinator.groups.keys() - busy):
            turn = Turn(now, coordinator.deadlines)
            for record in coordinator.outdated(group_id, self._catalog, now.wall_ms):
                turn.save(record)
                if isinstance(record, GroupRemoved):
                    coordinator.forget(group_id)
            effects += self._concluded(group_id, turn)
        return effects
