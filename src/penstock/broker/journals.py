"""Reading the delivery journal of a partition in pages, on its leader.

The journal is the state entries of the partition's log: it begins where the log begins, and ends
with what is committed and applied. A page costs one pass over its entries and holds no state, so
that any number of readers can follow.
"""

import asyncio

import msgspec

from penstock.broker.calls import Calls
from penstock.broker.queue_values import check_number
from penstock.cluster import Cluster, decode_event
from penstock.delivery import DeliveryEvent, JournalEntry, journal_entry
from penstock.errors import OffsetOutOfRange
from penstock.ids import TopicPartition

ENTRIES_MAX = 10_000
_PAGE_BYTES_MAX = 1024 * 1024
# Entries about other things, such as scheduled messages, are passed over, but not for ever.
_ENTRIES_READ_MAX = 50_000
# Other requests have their turn after so many entries.
_ENTRIES_AT_ONCE = 500


class JournalPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries from an index on. The next page begins at `next_index`, the last ends at `end`."""

    entries: list[JournalEntry]
    start: int
    next_index: int
    end: int


class _ReadJournal(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    index: int | None
    count_max: int


class Journals:
    """Hands out the journals of partitions."""

    def __init__(self, cluster: Cluster, calls: Calls) -> None:
        self._cluster = cluster
        self._calls = calls
        calls.serve("queue.journal", _ReadJournal, self._read_here)

    async def read(
        self, place: TopicPartition, *, index: int | None = None, count_max: int = ENTRIES_MAX
    ) -> JournalPage:
        """Return entries from `index` on, or from the oldest that the log still holds."""
        check_number("count_max", count_max, 1, ENTRIES_MAX)
        request = _ReadJournal(place.topic, place.partition, index, count_max)
        return await self._calls.ask(place, "queue.journal", request, JournalPage)

    async def _read_here(self, request: _ReadJournal) -> JournalPage:
        place = TopicPartition(request.topic, request.partition)
        partition = self._cluster.partition(place)
        partition.check_serving()
        log, end = partition.log.log, partition.log.applied_index + 1
        start = log.first_index if request.index is None else request.index
        if not log.first_index <= start <= end:
            raise OffsetOutOfRange(
                f"index is {start}, the journal of {place} holds {log.first_index} up to {end}"
            )
        entries: list[JournalEntry] = []
        size_bytes = 0
        for number, entry in enumerate(log.state_entries(start)):
            is_full = len(entries) >= request.count_max or size_bytes >= _PAGE_BYTES_MAX
            if entry.index >= end or is_full or number == _ENTRIES_READ_MAX:
                end_of_page = min(entry.index, end)
                return JournalPage(entries=entries, start=start, next_index=end_of_page, end=end)
            event = decode_event(entry.payload)
            if isinstance(event, DeliveryEvent):
                entries.append(journal_entry(entry.index, event))
                size_bytes += len(entry.payload)
            if number % _ENTRIES_AT_ONCE == _ENTRIES_AT_ONCE - 1:
                await asyncio.sleep(0)
                partition.check_serving()
        return JournalPage(entries=entries, start=start, next_index=end, end=end)
