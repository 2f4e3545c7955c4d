"""Records that were read for delivery a moment ago.

Consumers of a queue group take messages from a partition a few at a time and one after the other,
so the batches that one of them needs were mostly decoded for the one before. A stretch of
consecutive batches is decoded once and kept while it is among the last few that were used.
"""

from collections.abc import Iterable
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, cast

from penstock.cluster.replicated_log import ReplicatedLog
from penstock.errors import Corruption, InvalidBatch, StorageFailed
from penstock.record import (
    BatchHeader,
    Record,
    checksum_matches,
    decode_records,
    decode_values,
    read_header,
)

# Read ahead in one go where messages are taken in order.
_AHEAD_BYTES = 128 * 1024
_STRETCHES_MAX = 4
# Decoded records take several times the bytes that they were read from.
_KEPT_BYTES_MAX = 16 * 1024 * 1024
# Messages that go out together have at most so many bytes, unless it is one alone.
DELIVERY_BYTES_MAX = 8 * 1024 * 1024
# Offsets without a record are looked at in portions of this many.
_GONE_MAX = 100_000
_SPAN_MAX = 1_000_000

_headers_of = attrgetter("headers")


class _Stretch(NamedTuple):
    """Consecutive offsets from `start` on, each with its record or None when that is gone."""

    start: int
    end: int
    records: list[Record | None]
    size_bytes: int = 0
    plain: list[Record] | None = None
    """The same records when none is gone or has headers, and all may go out together."""


class RecordBudget:
    """Bounds what all partitions of a node keep together; who has not read for long gives up."""

    def __init__(self, bytes_max: int = _KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: dict[RecentRecords, int] = {}
        self.total_bytes = 0

    def keep(self, owner: "RecentRecords", size_bytes: int) -> None:
        """Take note of what the one who reads now keeps."""
        self.total_bytes += size_bytes - self._kept.pop(owner, 0)
        if size_bytes:
            self._kept[owner] = size_bytes
        while self.total_bytes > self._bytes_max and len(self._kept) > 1:
            next(iter(self._kept)).clear()


class RecentRecords:
    """Reads committed records of a partition by offset."""

    def __init__(self, log: ReplicatedLog, budget: RecordBudget) -> None:
        self._log = log
        self._budget = budget
        self._stretches: list[_Stretch] = []

    def read(self, runs: Iterable[tuple[int, int]]) -> list[Record | None]:
        """Return the records of runs of committed offsets, in their order; None for one gone."""
        found: list[Record | None] = []
        for start, end in runs:
            position = start
            while position < end:
                stretch = self._stretch_at(position, is_run=end - position > 1)
                stop = min(end, stretch.end)
                found += stretch.records[position - stretch.start : stop - stretch.start]
                position = stop
        return found

    def read_plain(self, run: tuple[int, int]) -> list[Record] | None:
        """Return the records of a run that has nothing to look at closer; None when it may have."""
        start, end = run
        stretch = self._stretch_at(start, is_run=end - start > 1)
        if stretch.plain is None or end > stretch.end:
            return None
        return stretch.plain[start - stretch.start : end - stretch.start]

    def get(self, offset: int) -> Record | None:
        """Return one committed record, or None when it is gone."""
        return self.read([(offset, offset + 1)])[0]

    def next_from(self, offset: int, end: int) -> Record | None:
        """Return the first committed record from an offset on, below `end`; others are gone."""
        while offset < end:
            stretch = self._stretch_at(offset, is_run=False)
            here = islice(stretch.records, offset - stretch.start, None)
            record = next((each for each in here if each is not None), None)
            if record is not None:
                return record if record.offset < end else None
            offset = stretch.end
        return None

    def clear(self) -> None:
        """Forget everything."""
        self._stretches.clear()
        self._budget.keep(self, 0)

    def _stretch_at(self, offset: int, *, is_run: bool) -> _Stretch:
        for number, stretch in enumerate(self._stretches):
            if stretch.start <= offset < stretch.end:
                if number:
                    self._stretches.insert(0, self._stretches.pop(number))
                return stretch
        goes_on = is_run or any(stretch.end == offset for stretch in self._stretches)
        stretch = self._load(offset, _AHEAD_BYTES if goes_on else 1)
        self._stretches.insert(0, stretch)
        del self._stretches[_STRETCHES_MAX:]
        self._budget.keep(self, sum(each.size_bytes for each in self._stretches))
        return stretch

    def _load(self, offset: int, bytes_max: int) -> _Stretch:
        """Decode what is stored from `offset` on; before the log's start everything is gone."""
        end_offset = self._log.high_watermark
        if offset < (first_offset := self._log.log.first_offset):
            end = min(first_offset, offset + _GONE_MAX)
            return _Stretch(offset, end, [None] * (end - offset))
        try:
            stored = self._log.log.read(offset, end_offset=end_offset, bytes_max=bytes_max)
            batches = _split(memoryview(stored.read())) if stored else []
        except OSError as error:
            raise StorageFailed(f"{self._log.name} cannot be read: {error}") from error
        except Corruption:
            self._log.suspicion.arise(offset)
            raise
        if not batches or batches[0][0].base_offset >= offset + _GONE_MAX:
            # Compaction has removed what was here.
            end = min(end_offset, offset + _GONE_MAX)
            return _Stretch(offset, end, [None] * (end - offset))
        start = min(offset, batches[0][0].base_offset)
        while len(batches) > 1 and batches[-1][0].next_offset > start + _SPAN_MAX:
            batches.pop()
        end = batches[-1][0].next_offset
        records: list[Record | None] = [None] * (end - start)
        for header, batch in batches:
            if not checksum_matches(batch):
                self._log.suspicion.arise(header.base_offset)
                raise Corruption(
                    f"the batch at offset {header.base_offset} of {self._log.name} fails its"
                    " checksum"
                )
            if not header.is_control:
                _put(_decoded(batch), header, records, start)
        size_bytes = sum(header.size_bytes for header, _ in batches)
        is_compressed = any(header.codec for header, _ in batches)
        plain = _plain(records, None if is_compressed else size_bytes)
        return _Stretch(start, end, records, size_bytes, plain)


def _decoded(batch: memoryview) -> list[Record]:
    """Return the records, or none when a producer sent bytes that are not records.

    Whoever waits for what is behind them would wait for ever.
    """
    try:
        return decode_values(batch) or list(decode_records(batch))
    except InvalidBatch:
        return []


def _put(
    found: list[Record], header: BatchHeader, records: list[Record | None], start: int
) -> None:
    """Put the records of a batch in their places, in one piece when none of them is gone."""
    if len(found) == header.offsets:
        first = header.base_offset - start
        records[first : first + len(found)] = found
        return
    for record in found:
        records[record.offset - start] = record


def _plain(records: list[Record | None], content_bytes: int | None) -> list[Record] | None:
    """Return records that need no closer look; their content has at most the given size."""
    if None in records or any(map(_headers_of, records)):
        return None
    whole = cast("list[Record]", records)
    if content_bytes is None:
        content_bytes = sum([len(record.value or b"") + len(record.key or b"") for record in whole])
    return whole if content_bytes <= DELIVERY_BYTES_MAX else None


def _split(view: memoryview) -> list[tuple[BatchHeader, memoryview]]:
    """Cut stored bytes into batches; the log returns whole ones."""
    batches = []
    position = 0
    while position < len(view):
        header = read_header(view, position)
        batches.append((header, view[position : position + header.size_bytes]))
        position += header.size_bytes
    return batches
