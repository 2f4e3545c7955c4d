"""Per-message delivery: leases, acks, retries, priorities, order of keys, dead letters.

This room keeps the books of queue groups and decides what goes out next. It does no I/O and has no
clock: events and `now_ms` come in, changes and choices come out. The books (`DeliveryState`, one
`Ledger` for each group) are built by committed entries of the partition's log alone and are the
same on every replica; the `Dispatcher` is the leader's own and is built from them. Reading records,
proposing events, timers and the copies among the dead letters are left to `cluster`.
"""

from penstock.delivery.arrivals import Arrivals
from penstock.delivery.delivery_state import DeliveryState
from penstock.delivery.dispatch import Dispatcher, Pick
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
from penstock.delivery.journal import JournalEntry, JournalKind, journal_entry
from penstock.delivery.key_order import BlockedKey
from penstock.delivery.leases import Lease
from penstock.delivery.ledger import EXPIRY_REASON, Change, Dying, Ledger
from penstock.delivery.receipts import Receipt, parse_receipt
from penstock.delivery.runs import Run, count_of, offsets_of, to_runs
from penstock.delivery.settings import GroupSettings, OrderMode
from penstock.delivery.stage import Stage, Waiting
from penstock.delivery.stage_events import (
    STAGED_MAX,
    KeysMarked,
    Restaged,
    StageCancelled,
    Staged,
    StagedKey,
    StageEvent,
    StageMoved,
    index_and_place,
    pack_numbers,
    pack_records,
    parse_stage_id,
    stage_id,
    stage_number,
    unpack_numbers,
    unpack_records,
)
from penstock.delivery.trace import StageTrace, Trace, TraceKind, TraceStep
from penstock.delivery.window import FirstResult, Window, key_digest

__all__ = [
    "EXPIRY_REASON",
    "STAGED_MAX",
    "Acked",
    "Arrivals",
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
    "FirstResult",
    "GroupCreated",
    "GroupDeleted",
    "GroupReset",
    "GroupSettings",
    "JournalEntry",
    "JournalKind",
    "KeysMarked",
    "Lease",
    "Leased",
    "Ledger",
    "OrderMode",
    "Part",
    "Pick",
    "Receipt",
    "Rejected",
    "Restaged",
    "Returned",
    "Run",
    "Stage",
    "StageCancelled",
    "StageEvent",
    "StageMoved",
    "StageTrace",
    "Staged",
    "StagedKey",
    "Trace",
    "TraceKind",
    "TraceStep",
    "Waiting",
    "Window",
    "count_of",
    "index_and_place",
    "journal_entry",
    "key_digest",
    "offsets_of",
    "pack_numbers",
    "pack_records",
    "parse_receipt",
    "parse_stage_id",
    "stage_id",
    "stage_number",
    "to_runs",
    "unpack_numbers",
    "unpack_records",
]
