"""Per-message delivery: leases, acks, retries, priorities, order of keys, dead letters.

This room keeps the books of queue groups and decides what goes out next. It does no I/O and has no
clock: events and `now_ms` come in, changes and choices come out. The books (`DeliveryState`, one
`Ledger` for each group) are built by committed entries of the partition's log alone and are the
same on every replica; the `Dispatcher` is the leader's own and is built from them. Reading records,
proposing events, timers and the copies among the dead letters are left to `cluster`.
"""

from penstock.delivery.delivery_state import DeliveryState
from penstock.delivery.dispatch import BlockedKey, Dispatcher, Pick
from penstock.delivery.events import (
    Acked,
    DeadLettered,
    DeliveryEvent,
    Expired,
    Extended,
    Failure,
    GroupCreated,
    GroupDeleted,
    GroupReset,
    Leased,
    Part,
    Rejected,
    Returned,
)
from penstock.delivery.leases import Lease
from penstock.delivery.ledger import EXPIRY_REASON, Change, Dying, Ledger
from penstock.delivery.receipts import Receipt, parse_receipt
from penstock.delivery.runs import Run, count_of, offsets_of, to_runs
from penstock.delivery.settings import GroupSettings, OrderMode
from penstock.delivery.trace import Trace, TraceKind, TraceStep

__all__ = [
    "EXPIRY_REASON",
    "Acked",
    "BlockedKey",
    "Change",
    "DeadLettered",
    "DeliveryEvent",
    "DeliveryState",
    "Dispatcher",
    "Dying",
    "Expired",
    "Extended",
    "Failure",
    "GroupCreated",
    "GroupDeleted",
    "GroupReset",
    "GroupSettings",
    "Lease",
    "Leased",
    "Ledger",
    "OrderMode",
    "Part",
    "Pick",
    "Receipt",
    "Rejected",
    "Returned",
    "Run",
    "Trace",
    "TraceKind",
    "TraceStep",
    "count_of",
    "offsets_of",
    "parse_receipt",
    "to_runs",
]
