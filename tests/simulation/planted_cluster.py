"""Bugs planted in the metadata and in the consumer groups, as in `planted`."""

from typing import Any

from penstock.broker.groups import ShardMachine, _ShardDriver
from penstock.cluster.changes import MetadataChanges
from penstock.cluster.metadata import ClusterMetadata
from penstock.groups import GroupShard
from penstock.groups.answers import Persist
from penstock.ids import EntryIndex
from penstock.record import Buffer
from tests.simulation.planted import Replacements, bug

# The metadata.


@bug
def a_topic_that_was_deleted_is_created_by_a_late_repetition() -> Replacements:
    create = ClusterMetadata._create

    def create_anyway(self: ClusterMetadata, command: Any) -> Any:
        self._deleted.pop(command.topic_id, None)
        return create(self, command)

    return [(ClusterMetadata, "_create", create_anyway)]


@bug
def producer_ids_are_given_again_after_a_restart() -> Replacements:
    restore = ClusterMetadata.restore

    def forget(self: ClusterMetadata, payload: Buffer, index: EntryIndex) -> None:
        restore(self, payload, index)
        self._next_producer_id = 1

    return [(ClusterMetadata, "restore", forget)]


@bug
def a_command_is_confirmed_before_this_node_has_applied_it() -> Replacements:
    async def at_once(self: MetadataChanges, payload: bytes) -> Any:
        log = self._own_log()
        if log.is_serving:
            outcome = await self._propose_here(log, payload)
        else:
            outcome = await self._propose_at(self._way_to_leader(log), payload)
        return outcome.topic if outcome.topic is not None else outcome.number

    return [(MetadataChanges, "_propose_anywhere", at_once)]


# Consumer groups.


@bug
def offsets_are_confirmed_before_they_commit() -> Replacements:
    concluded = GroupShard._concluded

    def confirm(self: GroupShard, group_id: str, turn: Any) -> Any:
        effects = concluded(self, group_id, turn)
        is_new = any(isinstance(effect, Persist) for effect in effects)
        return [*effects, *turn.replies] if is_new else effects

    return [(GroupShard, "_concluded", confirm)]


@bug
def offsets_are_lost_on_a_restart() -> Replacements:
    restore = ShardMachine.restore

    def forget(self: ShardMachine, payload: Buffer, index: EntryIndex) -> None:
        restore(self, payload, index)
        self.shard._ledger.offsets.clear()

    return [(ShardMachine, "restore", forget)]


@bug
def a_shard_is_led_on_although_its_events_may_still_come_true() -> Replacements:
    check_commit = _ShardDriver._check_commit

    def give_up(self: _ShardDriver, persist: Persist, done: Any) -> None:
        if done.exception() is None:
            check_commit(self, persist, done)
        else:
            self._abandon(persist, done.exception())

    return [(_ShardDriver, "_check_commit", give_up)]
