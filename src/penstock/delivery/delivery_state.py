"""All queue groups of one partition, as its committed entries say."""

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
        self.ledgers: dict[str, Ledger] = {}

    def apply(self, event: DeliveryEvent, *, end: int = 0) -> Change:
        """Apply a committed event; raises `GroupNotFound` for a group that is gone.

        `end` is the offset after the last record before it.
        """
        if isinstance(event, (GroupCreated, GroupReset, GroupDeleted)):
            self._apply_to_group(event, end)
            return Change()
        ledger = self.ledgers.get(event.group)
        if ledger is None:
            raise GroupNotFound(f"there is no queue group {event.group!r}")
        # Nearly all events are one of these two.
        if isinstance(event, Acked):
            return ledger.ack(event)
        if isinstance(event, Leased):
            return ledger.lease(event)
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

    def _apply_to_group(self, event: GroupCreated | GroupReset | GroupDeleted, end: int) -> None:
        match event:
            case GroupCreated(group, floor):
                self.ledgers.setdefault(group, Ledger(floor))
            case GroupReset(group, floor):
                self.ledgers[group] = Ledger(floor, reborn_end=end)
            case GroupDeleted(group):
                self.ledgers.pop(group, None)

    def trim(self, start_offset: int) -> None:
        """Settle what the partition no longer holds, for every group."""
        for ledger in self.ledgers.values():
            ledger.trim(start_offset)

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return _encode({group: ledger.snapshot() for group, ledger in self.ledgers.items()})

    def restore(self, payload: bytes) -> None:
        """Replace the state by that of a snapshot."""
        saved = _decode(payload)
        self.ledgers = {group: Ledger.restore(each) for group, each in saved.items()}
