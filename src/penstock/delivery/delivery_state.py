"""All queue groups of one partition, as its committed entries say."""

from collections.abc import Mapping

import msgspec

from penstock.delivery.events import (
    Acked,
    DeadLettered,
    DeliveryEvent,
    Expired,
    Extended,
    GroupCreated,
    GroupDeleted,
    GroupReset,
    Leased,
    Rejected,
    Returned,
)
from penstock.delivery.ledger import Change, Ledger
from penstock.errors import GroupNotFound

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, bytes]).decode


class DeliveryState:
    """One ledger for each group."""

    def __init__(self) -> None:
        self._ledgers: dict[str, Ledger] = {}

    @property
    def ledgers(self) -> Mapping[str, Ledger]:
        """The groups by name."""
        return self._ledgers

    def apply(self, event: DeliveryEvent, *, end: int = 0) -> Change:
        """Apply a committed event; raises `GroupNotFound` for a group that is gone.

        `end` is the offset after the last record before it.
        """
        # Nearly all events are one of these two.
        if isinstance(event, Acked):
            return self._ledger(event.group).ack(event)
        if isinstance(event, Leased):
            return self._ledger(event.group).lease(event)
        if isinstance(event, (GroupCreated, GroupReset, GroupDeleted)):
            self._apply_to_group(event, end)
            return Change()
        ledger = self._ledger(event.group)
        match event:
            case Returned():
                return ledger.give_back(event)
            case Expired():
                return ledger.expire(event)
            case Extended():
                return ledger.extend(event)
            case Rejected():
                return ledger.reject(event)
            case DeadLettered():
                return ledger.dead_letter(event)

    def _ledger(self, group: str) -> Ledger:
        ledger = self._ledgers.get(group)
        if ledger is None:
            raise GroupNotFound(f"there is no queue group {group!r}")
        return ledger

    def _apply_to_group(self, event: GroupCreated | GroupReset | GroupDeleted, end: int) -> None:
        match event:
            case GroupCreated(group, floor):
                self._ledgers.setdefault(group, Ledger(floor))
            case GroupReset(group, floor):
                self._ledgers[group] = Ledger(floor, reborn_end=end)
            case GroupDeleted(group):
                self._ledgers.pop(group, None)

    def trim(self, start_offset: int) -> None:
        """Settle what the partition no longer holds, for every group."""
        for ledger in self._ledgers.values():
            ledger.trim(start_offset)

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return _encode({group: ledger.snapshot() for group, ledger in self._ledgers.items()})

    def restore(self, payload: bytes) -> None:
        """Replace the state by that of a snapshot."""
        saved = _decode(payload)
        self._ledgers = {group: Ledger.restore(each) for group, each in saved.items()}
