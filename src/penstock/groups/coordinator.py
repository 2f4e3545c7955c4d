"""The volatile half of a shard: groups as their members see them now.

Groups run ahead of the ledger by the events in flight. What a command changes, the next command
sees; the shard holds answers back until the events below them are committed. A group can be
thrown away at any time and rebuilt from the ledger: that is what happens after a failed proposal
and after failover.
"""

from typing import assert_never

from penstock.errors import (
    CoordinatorLoading,
    GroupNotEmpty,
    GroupNotFound,
    InconsistentGroupProtocol,
    InvalidGroupId,
    PenstockError,
    UnknownMember,
)
from penstock.groups.answers import (
    GroupDeleted,
    GroupsListed,
    ListedGroup,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
)
from penstock.groups.classic import ClassicGroup
from penstock.groups.commands import (
    Command,
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
)
from penstock.groups.deadlines import Deadlines, Timer
from penstock.groups.events import ClassicSaved, GroupRemoved, OffsetsRemoved, Record
from penstock.groups.incremental import ConsumerGroup
from penstock.groups.inheritance import era_of, valid_offsets
from penstock.groups.ledger import Ledger
from penstock.groups.limits import GroupLimits
from penstock.groups.membership import JOINING, check_heartbeat
from penstock.groups.offsets import deletable, expired, to_save
from penstock.groups.subscription import Catalog
from penstock.groups.turn import Now, Turn

Group = ClassicGroup | ConsumerGroup


class Coordinator:
    """The groups of a shard on the node that leads it."""

    def __init__(self, ledger: Ledger, limits: GroupLimits) -> None:
        self.groups: dict[str, Group] = {}
        self.deadlines = Deadlines()
        self._ledger = ledger
        self._limits = limits
        self._era = 0

    def begin(self, now: Now) -> None:
        """Take over: the groups of the ledger, each member with a fresh session."""
        for group_id in self._ledger.groups:
            self._restore(group_id, self._ledger, Turn(now, self.deadlines))

    def rebuild(self, group_id: str, rows: Ledger, turn: Turn) -> None:
        """Bring a group back to what `rows` say about it."""
        self.forget(group_id)
        if group_id in rows.groups:
            self._restore(group_id, rows, turn)

    def unpark(self, group_id: str, error: PenstockError, turn: Turn) -> None:
        """Answer everyone who waits in a group with `error`."""
        group = self.groups.get(group_id)
        if group is not None:
            group.unpark(error, turn)

    def topics_changed(self) -> None:
        """Let every incremental group look at the topics again."""
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                group.topics_changed()

    def reach(self, catalog: Catalog) -> list[str]:
        """Know of newer topics; name the groups that may know others under their names.

        Their members are to be expelled.
        """
        self._era = catalog.era
        outlived = []
        for group_id, group in sorted(self.groups.items()):
            newer = catalog.newer_than(group.era) if group.era < catalog.era else []
            if any(group.is_subscribed(name, catalog) for name in newer):
                outlived.append(group_id)
            group.reach(catalog.era)
        return outlived

    def take(self, command: Command, catalog: Catalog | None, turn: Turn) -> None:
        """Carry out one command; what is wrong with it is raised."""
        match command:
            case CommitOffsets():
                self._commit(command, catalog, turn)
            case Heartbeat():
                self._classic(command.group_id).heartbeat(command, turn)
            case ConsumerHeartbeat():
                self._consumer_heartbeat(command, catalog, turn)
            case FetchOffsets():
                self._fetch(command, catalog, turn)
            case JoinGroup():
                self._join(command, turn)
            case SyncGroup():
                self._classic(command.group_id).sync(command, turn)
            case LeaveGroup():
                self._classic(command.group_id).leave(command, turn)
            case DeleteOffsets():
                self._delete_offsets(command, catalog, turn)
            case ListGroups():
                self._list(command, turn)
            case DescribeGroup() | DescribeConsumerGroup():
                self._describe(command, turn)
            case DeleteGroup():
                self._delete(command, turn)
            case _:
                assert_never(command)

    def expire(self, group_id: str, timer: Timer, turn: Turn) -> None:
        """Act on one deadline."""
        self.groups[group_id].expire(timer, turn)

    def is_unsaved_and_deserted(self, group_id: str) -> bool:
        """Whether a group consists of nothing but invitations that nobody followed."""
        group = self.groups.get(group_id)
        is_deserted = group is not None and group.is_deserted
        return is_deserted and group_id not in self._ledger.groups

    def outdated(self, group_id: str, catalog: Catalog, wall_ms: int) -> list[Record]:
        """What retention takes away from a group: old offsets, in the end the group itself."""
        group = self.groups[group_id]
        offsets = self._ledger.offsets.get(group_id, {})
        until_ms = wall_ms - self._limits.offsets_retention_ms
        if group.is_empty:
            since_ms = group.empty_since_ms or 0
            gone = expired(offsets, since_ms, until_ms)
            if group.is_deserted and since_ms <= until_ms and len(gone) == len(offsets):
                return [GroupRemoved(group_id)]
        else:
            old = expired(offsets, 0, until_ms)
            gone, _ = deletable(tuple(old), lambda topic: group.is_subscribed(topic, catalog))
        return [OffsetsRemoved(group_id, tuple(gone))] if gone else []

    def forget(self, group_id: str) -> None:
        """Drop a group and its deadlines."""
        self.groups.pop(group_id, None)
        self.deadlines.cancel_group(group_id)

    def _restore(self, group_id: str, rows: Ledger, turn: Turn) -> None:
        row = rows.groups[group_id]
        group: Group
        if isinstance(row, ClassicSaved):
            group = ClassicGroup.of_row(row, self._limits)
        else:
            group = ConsumerGroup(row, rows.members.get(group_id, {}), self._limits)
        self.groups[group_id] = group
        group.resume(turn)

    def _classic(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise UnknownMember(f"group {group_id!r} has no classic members")
        return group

    def _known(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise GroupNotFound(f"there is no group {group_id!r}")
        return group

    def _join(self, command: JoinGroup, turn: Turn) -> None:
        if not command.group_id:
            raise InvalidGroupId("a group needs a name")
        group = self.groups.get(command.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            raise InconsistentGroupProtocol(f"{command.group_id} uses the incremental protocol")
        if not isinstance(group, ClassicGroup):
            since_ms = None if group is None else group.empty_since_ms
            group = ClassicGroup.fresh(command.group_id, self._limits, since_ms, era=self._era)
        if group.is_empty:
            group.reach(self._era)
        group.join(command, turn)
        self.groups[command.group_id] = group

    def _consumer_heartbeat(
        self, beat: ConsumerHeartbeat, catalog: Catalog | None, turn: Turn
    ) -> None:
        check_heartbeat(beat, self._limits)
        if catalog is None:
            # To assign without knowing the topics would take everything from everyone.
            raise CoordinatorLoading("the topics are not known yet")
        group = self.groups.get(beat.group_id)
        if not isinstance(group, ConsumerGroup):
            if beat.member_epoch != JOINING:
                raise UnknownMember(f"group {beat.group_id!r} has no member {beat.member_id!r}")
            if group is not None and not group.is_empty:
                raise GroupNotFound(f"{beat.group_id} uses the classic protocol")
            self.deadlines.cancel_group(beat.group_id)
            group = ConsumerGroup.fresh(beat.group_id, self._limits, era=self._era)
        if group.is_empty:
            group.reach(self._era)
        group.heartbeat(beat, catalog, turn)
        self.groups[beat.group_id] = group

    def _commit(self, command: CommitOffsets, catalog: Catalog | None, turn: Turn) -> None:
        group = self.groups.get(command.group_id)
        if group is not None:
            group.check_commit(command.member_id, command.instance_id, command.generation)
            _check_era(group, command, catalog)
            group.touch(command.member_id, turn)
        elif command.generation >= 0:
            raise GroupNotFound(f"there is no group {command.group_id!r}")
        saved, refused = to_save(command, self._limits, catalog, turn.now.wall_ms)
        if saved.offsets and group is None:
            simple = ClassicGroup.fresh(command.group_id, self._limits, None, era=self._era)
            self.groups[command.group_id] = simple
            turn.save(simple.to_row())
        if saved.offsets:
            turn.save(saved)
        turn.reply(command.ticket, OffsetsCommitted(refused))

    def _fetch(self, command: FetchOffsets, catalog: Catalog | None, turn: Turn) -> None:
        group = self.groups.get(command.group_id)
        if group is not None and command.member_id is not None:
            group.check_fetch(command.member_id, command.member_epoch)
        offsets = self._ledger.offsets.get(command.group_id, {})
        offsets = valid_offsets(command.group_id, offsets, catalog)
        if command.partitions is None:
            found = offsets
        else:
            found = {key: offsets[key] for key in command.partitions if key in offsets}
        turn.reply(command.ticket, OffsetsFetched(found))

    def _delete_offsets(self, command: DeleteOffsets, catalog: Catalog | None, turn: Turn) -> None:
        group = self._known(command.group_id)
        if not group.is_empty and group.protocol_type != ConsumerGroup.protocol_type:
            raise GroupNotEmpty(f"{command.group_id} has members of a protocol of their own")
        topics = catalog or Catalog({})
        gone, refused = deletable(
            command.partitions, lambda topic: group.is_subscribed(topic, topics)
        )
        if gone:
            turn.save(OffsetsRemoved(command.group_id, tuple(gone)))
        turn.reply(command.ticket, OffsetsDeleted(refused))

    def _list(self, command: ListGroups, turn: Turn) -> None:
        states = {state.casefold() for state in command.states}
        types = {group_type.casefold() for group_type in command.types}
        listed = [
            ListedGroup(group_id, group.protocol_type, group.state, group.group_type)
            for group_id, group in sorted(self.groups.items())
            if not states or group.state.casefold() in states
            if not types or group.group_type.casefold() in types
        ]
        turn.reply(command.ticket, GroupsListed(tuple(listed)))

    def _describe(self, command: DescribeGroup | DescribeConsumerGroup, turn: Turn) -> None:
        group = self._known(command.group_id)
        if isinstance(command, DescribeGroup) != isinstance(group, ClassicGroup):
            raise GroupNotFound(f"{command.group_id} is a {group.group_type} group")
        turn.reply(command.ticket, group.describe())

    def _delete(self, command: DeleteGroup, turn: Turn) -> None:
        group = self._known(command.group_id)
        if not group.is_empty:
            raise GroupNotEmpty(f"group {command.group_id} has members")
        self.forget(command.group_id)
        turn.save(GroupRemoved(command.group_id))
        turn.reply(command.ticket, GroupDeleted())


def _check_era(group: Group, command: CommitOffsets, catalog: Catalog | None) -> None:
    """Refuse positions of members that were to be expelled and are back, as their event failed."""
    if catalog is None or catalog.era <= group.era or group.is_empty:
        return
    for entry in command.offsets:
        if era_of(entry.topic, catalog) > group.era:
            raise UnknownMember(f"{command.member_id} must look for its positions anew")
