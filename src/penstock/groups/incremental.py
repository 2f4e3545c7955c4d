"""A group of the incremental protocol (KIP-848): the server assigns, members follow one by one.

The group's epoch rises whenever members, subscriptions or subscribed topics change. The next
heartbeat of any member computes the target assignment for that epoch, and each member is led
there on its own heartbeats (see `reconciliation`); members whose partitions stay notice nothing
but a higher epoch.

Everything that a member is told is durable first, since its answer waits for the event: a crash
at any point brings back a state in which each partition has one holder, and every member knows an
epoch that is the durable one or the one before, which is accepted.
"""

from collections import Counter, defaultdict
from uuid import UUID

import msgspec

from penstock.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    PenstockError,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstanceId,
)
from penstock.groups.answers import (
    ConsumerGroupDescribed,
    DescribedConsumer,
    GroupState,
    GroupType,
    Reconciled,
)
from penstock.groups.assignment import NOTHING, contains, each
from penstock.groups.assignor import ASSIGNORS, DEFAULT_ASSIGNOR, Candidate
from penstock.groups.commands import ConsumerHeartbeat
from penstock.groups.deadlines import Matter, Timer
from penstock.groups.events import ConsumerRow, ConsumerSaved, MemberRemoved, MemberSaved
from penstock.groups.limits import GroupLimits
from penstock.groups.membership import (
    AWAY,
    JOINING,
    blank_member,
    is_full,
    is_wish_changed,
    with_changes,
)
from penstock.groups.reconciliation import is_settled, is_waiting, reconciled
from penstock.groups.subscription import Catalog
from penstock.groups.turn import Turn


class ConsumerGroup:
    """One group. Methods raise before they change anything."""

    group_type = GroupType.CONSUMER
    protocol_type = "consumer"

    def __init__(
        self, row: ConsumerSaved, members: dict[str, ConsumerRow], limits: GroupLimits
    ) -> None:
        self.group_id = row.group_id
        self.row = row
        self.members: dict[str, ConsumerRow] = {}
        self._limits = limits
        self._holders: dict[UUID, dict[int, str]] = defaultdict(dict)
        self._instances: dict[str, str] = {}
        self._unsaved: set[str] = set()
        self._is_outdated = True
        for member in members.values():
            self._put(member)
        self._unsaved.clear()

    @classmethod
    def fresh(cls, group_id: str, limits: GroupLimits, *, era: int) -> "ConsumerGroup":
        """A group without a past."""
        return cls(ConsumerSaved(group_id, 0, 0, 0, None, era), {}, limits)

    def resume(self, turn: Turn) -> None:
        """Give every member a fresh session, as a new coordinator does."""
        for member in self.members.values():
            self._keep_alive(member.member_id, turn)
            self._watch_revocation(member, turn)

    def topics_changed(self) -> None:
        """Look at the topics again when the next heartbeat comes."""
        self._is_outdated = True

    @property
    def state(self) -> GroupState:
        """How far the group has come towards its target."""
        if not self.members:
            return GroupState.EMPTY
        if self.row.epoch > self.row.target_epoch:
            return GroupState.ASSIGNING
        if all(is_settled(member, self.row.target_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def empty_since_ms(self) -> int | None:
        """When the last member left; None while there are members."""
        return self.row.empty_since_ms

    @property
    def era(self) -> int:
        """The newest era of topics that all members know of."""
        return self.row.era

    def reach(self, era: int) -> None:
        """Note that no member knows a topic which had its name before that era."""
        self.row = msgspec.structs.replace(self.row, era=max(self.row.era, era))

    def expel_all(self, turn: Turn) -> None:
        """Let all members go; they join again as if they had never been here."""
        for member_id in list(self.members):
            self._remove(member_id, turn)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def is_deserted(self) -> bool:
        """The same as empty: nobody is invited here without being a member."""
        return not self.members

    def heartbeat(self, beat: ConsumerHeartbeat, catalog: Catalog, turn: Turn) -> None:
        """Take a member one step further: into the group, towards its target, or out."""
        if beat.member_epoch < JOINING:
            self._leave(beat, turn)
            return
        before = self._admitted(beat)
        member = with_changes(before, beat)
        self._keep_alive(member.member_id, turn)
        self._seat(member, turn)
        if is_wish_changed(before, member):
            self._replan(catalog, turn, is_raised=True)
        elif self._is_outdated or self.row.epoch > self.row.target_epoch:
            self._replan(catalog, turn, is_raised=False)
        member = self._reconcile(member.member_id, beat, turn)
        self._save(turn)
        turn.reply(beat.ticket, self._answer(before, member, beat))

    def expire(self, timer: Timer, turn: Turn) -> None:
        """Fence a member that was silent, or kept what it had to give up, for too long."""
        self._remove(timer.member_id, turn)

    def unpark(self, error: PenstockError, turn: Turn) -> None:
        """Nobody waits here."""

    def check_commit(self, member_id: str, _instance_id: str | None, epoch: int) -> None:
        """Refuse commits that do not come from a member at its present epoch."""
        if epoch >= 0 or self.members:
            self._check_epoch(member_id, epoch)

    def check_fetch(self, member_id: str, member_epoch: int) -> None:
        """Refuse a member that reads offsets under an old epoch (OffsetFetch 9)."""
        self._check_epoch(member_id, member_epoch)

    def touch(self, member_id: str, turn: Turn) -> None:
        """A commit does not extend a session of this protocol."""

    def is_subscribed(self, topic: str, catalog: Catalog) -> bool:
        """Whether a member reads the topic."""
        return any(
            topic in member.topics or topic in catalog.resolve((), member.regex)
            for member in self.members.values()
        )

    def describe(self) -> ConsumerGroupDescribed:
        """The group as tools see it."""
        return ConsumerGroupDescribed(
            group_id=self.group_id,
            state=self.state,
            group_epoch=self.row.epoch,
            target_epoch=self.row.target_epoch,
            assignor=self._assignor(),
            members=tuple(_described(member) for member in self.members.values()),
        )

    def _admitted(self, beat: ConsumerHeartbeat) -> ConsumerRow:
        """The member that speaks, or a blank one for a member that is new."""
        if beat.member_epoch != JOINING:
            member = self._known(beat)
            _check_heartbeat_epoch(member, beat)
            return member
        member_id = beat.member_id or beat.candidate_id
        former_id = self._instances.get(beat.instance_id or "")
        if former_id is not None:
            return self._returning(self.members[former_id], member_id)
        if member_id in self.members:
            return self.members[member_id]
        if len(self.members) >= self._limits.members_max:
            raise GroupMaxSizeReached(f"group {self.group_id} has {len(self.members)} members")
        return blank_member(member_id, beat)

    def _returning(self, former: ConsumerRow, member_id: str) -> ConsumerRow:
        """A static member that is back, with the partitions that were kept for it."""
        if former.epoch == AWAY:
            return msgspec.structs.replace(former, member_id=member_id, epoch=0, previous_epoch=0)
        if former.member_id != member_id:
            raise UnreleasedInstanceId(f"{former.instance_id} is in use by {former.member_id}")
        return former

    def _known(self, beat: ConsumerHeartbeat) -> ConsumerRow:
        if beat.instance_id is not None:
            holder = self._instances.get(beat.instance_id)
            if holder is None:
                raise UnknownMember(f"no member has the instance id {beat.instance_id}")
            if holder != beat.member_id:
                raise FencedInstanceId(f"{beat.instance_id} is now {holder}")
        if beat.member_id not in self.members:
            raise UnknownMember(f"no member has the id {beat.member_id!r}")
        return self.members[beat.member_id]

    def _check_epoch(self, member_id: str, epoch: int) -> None:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"no member has the id {member_id!r}")
        if epoch != member.epoch:
            raise StaleMemberEpoch(f"epoch {epoch} of {member_id}, now {member.epoch}")

    def _leave(self, beat: ConsumerHeartbeat, turn: Turn) -> None:
        member = self._known(beat)
        if beat.member_epoch == AWAY:
            # The partitions stay reserved until the session ends; what it had to give up is free.
            self._put(msgspec.structs.replace(member, epoch=AWAY, revoking={}))
            self._watch_revocation(self.members[member.member_id], turn)
            self._save(turn)
        else:
            self._remove(member.member_id, turn)
        turn.reply(beat.ticket, Reconciled(beat.member_id, beat.member_epoch, 0, None))

    def _seat(self, member: ConsumerRow, turn: Turn) -> None:
        """Make the row the member's own; a returning static member leaves its former id behind."""
        former_id = self._instances.get(member.instance_id or "", member.member_id)
        if former_id != member.member_id:
            self._discard(former_id, turn)
        self._put(member)

    def _replan(self, catalog: Catalog, turn: Turn, *, is_raised: bool) -> None:
        """Raise the epoch if wishes or topics have changed, and compute the target for it."""
        wishes = {m.member_id: catalog.resolve(m.topics, m.regex) for m in self.members.values()}
        digest = catalog.digest(frozenset().union(*wishes.values()))
        self._is_outdated = False
        epoch = self.row.epoch + (is_raised or digest != self.row.topics_digest)
        if epoch == self.row.target_epoch:
            return
        self._retarget(catalog, wishes)
        self.row = ConsumerSaved(self.group_id, epoch, epoch, digest, None, self.row.era)
        turn.save(self.row)

    def _retarget(self, catalog: Catalog, wishes: dict[str, frozenset[str]]) -> None:
        ids = {name: info.topic_id for name, info in catalog.topics.items()}
        candidates = {
            member_id: Candidate(
                frozenset(ids[name] for name in names),
                self.members[member_id].target,
                self.members[member_id].instance_id,
            )
            for member_id, names in wishes.items()
        }
        wanted = frozenset().union(*wishes.values())
        topics = {ids[name]: catalog.topics[name].partitions for name in sorted(wanted)}
        for member_id, target in ASSIGNORS[self._assignor()](candidates, topics).items():
            if target != self.members[member_id].target:
                changed = msgspec.structs.replace(self.members[member_id], target=dict(target))
                self._put(changed)

    def _assignor(self) -> str:
        """The assignor that most members ask for."""
        votes = Counter(m.assignor for m in self.members.values() if m.assignor)
        return max(sorted(votes), key=votes.__getitem__, default=DEFAULT_ASSIGNOR)

    def _reconcile(self, member_id: str, beat: ConsumerHeartbeat, turn: Turn) -> ConsumerRow:
        member = self.members[member_id]
        after = reconciled(
            member,
            target_epoch=self.row.target_epoch,
            # A member that joins owns nothing, whatever it was given in an earlier life.
            owned=NOTHING if beat.member_epoch == JOINING else beat.owned,
            holder_of=lambda topic, partition: self._holders[topic].get(partition),
        )
        if after != member:
            self._put(after)
            self._watch_revocation(after, turn)
        return after

    def _answer(
        self, before: ConsumerRow, member: ConsumerRow, beat: ConsumerHeartbeat
    ) -> Reconciled:
        has_news = is_full(beat) or member.assigned != before.assigned
        # A member at its previous epoch has not seen the answer that held its assignment.
        has_missed = beat.member_epoch != before.epoch
        return Reconciled(
            member.member_id,
            member.epoch,
            self._heartbeat_ms(member),
            member.assigned if has_news or has_missed else None,
        )

    def _heartbeat_ms(self, member: ConsumerRow) -> int:
        """When the member is to come back; see the limits for the reasons."""
        limits = self._limits
        if is_waiting(member):
            return limits.consumer_heartbeat_waiting_ms
        spaced_ms = len(self.members) * limits.consumer_heartbeat_spacing_ms
        return min(max(spaced_ms, limits.consumer_heartbeat_ms_min), limits.consumer_heartbeat_ms)

    def _remove(self, member_id: str, turn: Turn) -> None:
        self._discard(member_id, turn)
        empty_since_ms = None if self.members else turn.now.wall_ms
        self.row = msgspec.structs.replace(
            self.row, epoch=self.row.epoch + 1, empty_since_ms=empty_since_ms
        )
        turn.save(self.row)

    def _discard(self, member_id: str, turn: Turn) -> None:
        member = self.members.pop(member_id)
        self._release(member)
        if member.instance_id is not None:
            self._instances.pop(member.instance_id, None)
        turn.deadlines.cancel(self.group_id, Timer(Matter.SESSION, member_id))
        turn.deadlines.cancel(self.group_id, Timer(Matter.REVOCATION, member_id))
        turn.save(MemberRemoved(self.group_id, member_id))

    def _put(self, member: ConsumerRow) -> None:
        """Take the row over; it is saved at the end of the turn if it is new."""
        before = self.members.get(member.member_id)
        if before is member:
            return
        if before is not None:
            self._release(before)
        for topic, partition in each(member.assigned):
            self._holders[topic][partition] = member.member_id
        for topic, partition in each(member.revoking):
            self._holders[topic][partition] = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self._unsaved.add(member.member_id)

    def _release(self, member: ConsumerRow) -> None:
        for held in (member.assigned, member.revoking):
            for topic, partition in each(held):
                self._holders[topic].pop(partition, None)

    def _save(self, turn: Turn) -> None:
        for member_id in sorted(self._unsaved):
            turn.save(MemberSaved(self.group_id, self.members[member_id]))
        self._unsaved.clear()

    def _keep_alive(self, member_id: str, turn: Turn) -> None:
        when_ms = turn.now.steady_ms + self._limits.consumer_session_ms
        turn.deadlines.set(self.group_id, Timer(Matter.SESSION, member_id), when_ms)

    def _watch_revocation(self, member: ConsumerRow, turn: Turn) -> None:
        timer = Timer(Matter.REVOCATION, member.member_id)
        if member.revoking:
            turn.deadlines.set(self.group_id, timer, turn.now.steady_ms + member.rebalance_ms)
        else:
            turn.deadlines.cancel(self.group_id, timer)


def _check_heartbeat_epoch(member: ConsumerRow, beat: ConsumerHeartbeat) -> None:
    if beat.member_epoch == member.epoch:
        return
    # The answer that brought the present epoch may have been lost.
    is_behind = beat.member_epoch == member.previous_epoch
    if not is_behind or beat.owned is None or not contains(member.assigned, beat.owned):
        raise FencedMemberEpoch(
            f"epoch {beat.member_epoch} of {member.member_id}, now {member.epoch}: rejoin"
        )


def _described(member: ConsumerRow) -> DescribedConsumer:
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=member.topics,
        regex=member.regex,
        assigned=member.assigned,
        target=member.target,
    )
