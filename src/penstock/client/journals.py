"""The delivery journal of a partition, page by page."""

from dataclasses import dataclass

from penstock.client.calls import Call, path_of, reader_of

PAGE_ENTRIES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One event of one queue group, as the node tells it; times are milliseconds since 1970.

    `runs` are delivery, first offset and the offset after the last; `failures` are delivery,
    offset and reason; `deliveries` are those whose leases ended at their deadline; `dropped` are
    offsets that were settled unread.
    """

    index: int
    kind: str
    group: str
    at: int
    runs: tuple[tuple[int, int, int], ...] = ()
    failures: tuple[tuple[int, int, str], ...] = ()
    deliveries: tuple[int, ...] = ()
    dropped: tuple[tuple[int, int], ...] = ()
    until: int = 0
    consumer: str = ""
    floor: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPage:
    """A stretch of a journal; the next one begins at `next_index`, the last ends at `end`."""

    entries: tuple[JournalEntry, ...]
    start: int
    next_index: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStart:
    """Where reading begins: at an entry, at a time, or with the oldest."""

    index: int | None
    since_ms: int | None


def journal_call(
    topic: str, partition: int, start: JournalStart, *, count_max: int
) -> Call[JournalPage]:
    """Read entries from a start on."""
    path = path_of(
        "v1", "topics", topic, "journal",
        partition=partition, index=start.index, since=start.since_ms, max=count_max,
    )  # fmt: skip
    return Call(method="GET", path=path, read=reader_of(JournalPage))
