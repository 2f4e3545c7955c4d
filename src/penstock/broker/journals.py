"""Reading the delivery journal of a partition in pages, on its leader.

The journal is the state entries of the partition's log: it begins where the log begins, and ends
with what is committed and applied. A page costs one pass over its entries and holds no state, so
that any number of readers can follow. Events that share an entry have the same index and stand on
the same page, which holds more than was asked for if they are more than that.

Reading can begin at a time: the times of events ascend, as far as the clocks of successive leaders
agree, so their place is found by a binary search, which looks at no entry twice.
"""

import asyncio

import msgspec

from penstock.broker.calls import Calls
from penstock.broker.queue_values import check_number
from penstock.cluster import Cluster, Partition, decode_events
from penstock.delivery import DeliveryEvent, JournalEntry, journal_entry
from penstock.errors import InvalidRequest, OffsetOutOfRange
from penstock.ids import TopicPartition
from penstock.log import StateEntry

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
    since_ms: int | None
    count_max: int


class Journals:
    """Hands out the journals of partitions."""

    def __init__(self, cluster: Cluster, calls: Calls) -> None:
        self._cluster = cluster
        self._calls = calls
        calls.serve("queue.journal", _ReadJournal, self._read_here)

    async def read(
        self,
        place: TopicPartition,
        *,
        index: int | None = None,
        since_ms: int | None = None,
        count_max: int = ENTRIES_MAX,
    ) -> JournalPage:
        """Return entries from `index` or a time on, or from the oldest that the log still holds."""
        check_number("count_max", count_max, 1, ENTRIES_MAX)
        if index is not None and since_ms is not None:
            raise InvalidRequest("a journal is read from an index or from a time, not from both")
        request = _ReadJournal(place.topic, place.partition, index, since_ms, count_max)
        return await self._calls.ask(place, "queue.journal", request, JournalPage)

    async def _read_here(self, request: _ReadJournal) -> JournalPage:
        place = TopicPartition(request.topic, request.partition)
        partition = self._cluster.partition(place)
        partition.check_serving()
        log, end = partition.log.log, partition.log.applied_index + 1
        start = log.first_index if request.index is None else request.index
        if request.since_ms is not None:
            start = await self._find(partition, request.since_ms, end)
        if not log.first_index <= start <= end:
            raise OffsetOutOfRange(
                f"index is {start}, the journal of {place} holds {log.first_index} up to {end}"
            )
        entries: list[JournalEntry] = []
        size_bytes = 0
        for number, entry in enumerate(log.state_entries(start)):
            if entry.index >= end:
                break
            found = _journal_entries(entry)
            is_full = size_bytes >= _PAGE_BYTES_MAX or (
                len(entries) + len(found) > request.count_max and len(entries) > 0
            )
            if is_full or number == _ENTRIES_READ_MAX:
                return JournalPage(entries=entries, start=start, next_index=entry.index, end=end)
            if found:
                entries += found
                size_bytes += len(entry.payload)
            if number % _ENTRIES_AT_ONCE == _ENTRIES_AT_ONCE - 1:
                await _give_way(partition)
        return JournalPage(entries=entries, start=start, next_index=end, end=end)

    async def _find(self, partition: Partition, since_ms: int, end: int) -> int:
        """Return the index from which on all events of a time or later are found."""
        low, high = int(partition.log.log.first_index), end
        while low < high:
            middle = (low + high) // 2
            found = await _next_time(partition, middle, high)
            if found is not None and found[1] < since_ms:
                low = found[0] + 1
            else:
                # Between the middle and what was found there is no event.
                high = middle
        # Retention may have moved the beginning meanwhile.
        return max(low, partition.log.log.first_index)


def _journal_entries(entry: StateEntry) -> list[JournalEntry]:
    return [
        journal_entry(entry.index, event)
        for event in decode_events(entry.payload)
        if isinstance(event, DeliveryEvent)
    ]


async def _next_time(partition: Partition, start: int, end: int) -> tuple[int, int] | None:
    """Return the first entry with events from an index up to another one, and their time."""
    for number, entry in enumerate(partition.log.log.state_entries(start)):
        if entry.index >= end:
            return None
        if events := _journal_entries(entry):
            return entry.index, max(event.at_ms for event in events)
        if number % _ENTRIES_AT_ONCE == _ENTRIES_AT_ONCE - 1:
            await _give_way(partition)
    return None


async def _give_way(partition: Partition) -> None:
    """Let other requests have their turn."""
    await asyncio.sleep(0)
    partition.check_serving()
