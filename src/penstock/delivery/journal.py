"""The journal of a partition for those who read it in bulk: each event in one flat shape.

The shape is the same for all kinds of events, so that it can become a row of a table: which
messages, as runs of offsets under the number of their delivery, and why. Whether a receipt still
held is not told here; whoever follows the leases from the beginning can tell.
"""

from enum import StrEnum

import msgspec

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
from penstock.delivery.runs import Run


class JournalKind(StrEnum):
    """What an entry of the journal tells."""

    CREATED = "created"
    LEASED = "leased"
    ACKED = "acked"
    RETURNED = "returned"
    EXPIRED = "expired"
    EXTENDED = "extended"
    REJECTED = "rejected"
    DEAD_LETTERED = "dead_lettered"
    RESET = "reset"
    DELETED = "deleted"


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of one queue group.

    `runs` are `[delivery, start, end]`, half open; `failures` are `[delivery, offset, reason]`;
    `deliveries` are those whose leases have ended at their deadline; `dropped` are runs that were
    settled unread, being too old or gone. Dead letters belong to no delivery any more: it is -1.
    """

    index: int
    kind: JournalKind
    group: str
    at_ms: int
    runs: list[tuple[int, int, int]] = []
    failures: list[tuple[int, int, str]] = []
    deliveries: list[int] = []
    dropped: list[Run] = []
    until_ms: int = 0
    consumer: str = ""
    floor: int = 0


NO_DELIVERY = -1


def journal_entry(index: int, event: DeliveryEvent) -> JournalEntry:
    """Return an event in the flat shape; `index` is that of its entry in the log."""

    def entry(kind: JournalKind, **more: object) -> JournalEntry:
        return msgspec.structs.replace(
            JournalEntry(index=index, kind=kind, group=event.group, at_ms=event.at_ms), **more
        )

    match event:
        case Leased(delivery=delivery, runs=runs):
            return entry(
                JournalKind.LEASED,
                runs=_under(delivery, runs),
                dropped=event.expired,
                until_ms=event.until_ms,
                consumer=event.consumer,
            )
        case Acked(parts=parts):
            return entry(JournalKind.ACKED, runs=_of_parts(parts))
        case Extended(parts=parts, until_ms=until_ms):
            return entry(JournalKind.EXTENDED, runs=_of_parts(parts), until_ms=until_ms)
        case Returned(failures=failures):
            return entry(JournalKind.RETURNED, failures=_of_failures(failures))
        case Rejected(failures=failures):
            return entry(JournalKind.REJECTED, failures=_of_failures(failures))
        case Expired(deliveries=deliveries):
            return entry(JournalKind.EXPIRED, deliveries=deliveries)
        case DeadLettered(runs=runs):
            return entry(JournalKind.DEAD_LETTERED, runs=_under(NO_DELIVERY, runs))
        case GroupCreated(floor=floor):
            return entry(JournalKind.CREATED, floor=floor)
        case GroupReset(floor=floor):
            return entry(JournalKind.RESET, floor=floor)
        case GroupDeleted():
            return entry(JournalKind.DELETED)


def _under(delivery: int, runs: list[Run]) -> list[tuple[int, int, int]]:
    return [(delivery, start, end) for start, end in runs]


def _of_parts(parts: list[Part]) -> list[tuple[int, int, int]]:
    return [row for part in parts for row in _under(part.delivery, part.runs)]


def _of_failures(failures: list[Failure]) -> list[tuple[int, int, str]]:
    return [(each.delivery, each.offset, each.reason) for each in failures]
