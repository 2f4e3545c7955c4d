"""Bugs planted in the delivery of single messages, as in `planted`."""

from typing import Any
from unittest.mock import patch

from penstock.broker import burial as burial_module
from penstock.broker.burial import Burial
from penstock.cluster.partition_intake import Intake
from penstock.cluster.partition_queue import PartitionQueue
from penstock.cluster.partition_stage import PartitionStage
from penstock.delivery import DeliveryState, Dispatcher, Lease, Ledger, Stage, Window
from penstock.delivery.key_order import KeyOrder
from tests.simulation.planted import Replacements, bug

# Leases and acks.


@bug
def leases_are_lost_on_a_failover() -> Replacements:
    restore = DeliveryState.restore

    def forget(self: DeliveryState, payload: bytes) -> None:
        restore(self, payload)
        for ledger in self.ledgers.values():
            ledger.leases.clear()
            ledger.in_flight = 0

    return [(DeliveryState, "restore", forget)]


@bug
def attempts_are_lost_on_a_failover() -> Replacements:
    restore = Ledger.restore

    def forget(payload: bytes) -> Ledger:
        ledger = restore(payload)
        ledger._attempts = {}
        return ledger

    return [(Ledger, "restore", forget)]


@bug
def acks_are_confirmed_before_they_commit() -> Replacements:
    ack = PartitionQueue.ack

    async def confirm(self: PartitionQueue, group: str, parts: Any, **options: Any) -> list[Any]:
        task = self._workplace.loop.create_task(ack(self, group, parts, **options))
        task.add_done_callback(lambda done: done.exception())
        return []

    return [(PartitionQueue, "ack", confirm)]


@bug
def a_lease_that_was_not_committed_is_handed_out_again() -> Replacements:
    return [(Dispatcher, "__init__", _without(Dispatcher.__init__, "_taken"))]


def _without(init: Any, name: str) -> Any:
    """Begin as usual, and forget what one of the fields says."""

    def begin(self: Any, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        getattr(self, name).clear()

    return begin


@bug
def an_extended_lease_ends_with_the_others() -> Replacements:
    def overdue(self: Lease, now_ms: int) -> list[int]:
        return list(self.live_offsets()) if self.until_ms <= now_ms else []

    return [(Lease, "overdue", overdue)]


@bug
def a_receipt_of_an_older_lease_is_honoured() -> Replacements:
    take = Ledger._take

    def take_any(self: Ledger, part: Any, change: Any) -> Any:
        newest = self.lease_of(part.runs[0][0])
        numbers = {id(lease): delivery for delivery, lease in self.leases.items()}
        if newest is not None:
            part = type(part)(numbers[id(newest)], part.runs)
        return take(self, part, change)

    return [(Ledger, "_take", take_any)]


# Order.


@bug
def the_next_of_a_key_does_not_wait_after_a_failover() -> Replacements:
    return [(KeyOrder, "__init__", _without(KeyOrder.__init__, "_lines"))]


@bug
def strict_order_does_not_wait_for_a_message_that_rests() -> Replacements:
    def candidate(self: Dispatcher, end: int) -> int | None:
        offset = self._ledger.floor
        while offset in self._ledger.waiting or offset in self._ledger.dying:
            offset += 1
        return offset if offset < end else None

    return [(Dispatcher, "_strict_candidate", candidate)]


# Dead letters.


@bug
def a_dead_letter_is_copied_by_two_leaders() -> Replacements:
    def publish(self: Intake, batch: Any, *, window_ms: int) -> Any:
        is_copy = burial_module.GROUP.encode() in bytes(batch.data)
        return None if is_copy else real(self, batch, window_ms=window_ms)

    real = Intake.publish
    return [
        (burial_module, "_present", lambda partition, wanted: set()),
        (Intake, "publish", publish),
    ]


@bug
def a_dying_message_is_settled_before_its_copy_is_there() -> Replacements:
    move_some = Burial._move_some

    async def settle_first(self: Burial, queue: Any, group: str, dying: Any) -> None:
        await queue.dead_lettered(group, list(dying))
        with patch.object(queue, "dead_lettered", _nothing):
            await move_some(self, queue, group, dying)

    return [(Burial, "_move_some", settle_first)]


async def _nothing(*_: Any) -> None:
    pass


# Times and keys.


@bug
def messages_are_released_early() -> Replacements:
    due = Stage.due

    def due_soon(self: Stage, now_ms: int, **options: Any) -> Any:
        return due(self, now_ms + 50, **options)

    return [(Stage, "due", due_soon)]


@bug
def a_cancelled_message_stays_in_the_stage() -> Replacements:
    def cancel(self: Stage, numbers: Any) -> list[bool]:
        return [self.find(number) is not None for number in numbers]

    return [(Stage, "cancel", cancel)]


@bug
def a_message_is_released_while_its_cancellation_is_under_way() -> Replacements:
    due = Stage.due

    def due_all(self: Stage, now_ms: int, **options: Any) -> Any:
        return due(self, now_ms, **{**options, "except_for": frozenset()})

    return [(Stage, "due", due_all)]


@bug
def a_message_is_released_that_was_read_in_an_older_reign() -> Replacements:
    return [(PartitionStage, "_may_be_past", lambda self, term: False)]


@bug
def a_released_message_stays_in_the_stage() -> Replacements:
    return [(Stage, "release", lambda self, numbers: None)]


@bug
def segments_go_with_the_messages_that_wait_in_them() -> Replacements:
    async def leave(self: PartitionStage, index: int) -> None:
        del self, index

    return [
        (PartitionStage, "first_index", property(lambda self: None)),
        (PartitionStage, "restage_below", leave),
    ]


@bug
def idempotency_keys_are_lost_on_a_restart() -> Replacements:
    return [(Window, "restore", lambda self, payload: None)]


@bug
def keys_in_flight_are_not_waited_for() -> Replacements:
    is_known = Intake._is_known

    def is_committed(self: Intake, *arguments: Any) -> bool:
        with patch.object(self, "_in_flight", {}):
            return is_known(self, *arguments)

    return [(Intake, "_is_known", is_committed)]
