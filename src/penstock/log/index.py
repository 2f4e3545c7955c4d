"""The table that finds entries: one fixed-width row per log entry.

File layout, little endian. A header of 64 bytes:

    magic           8 bytes  b"PENSTIX1"
    first_index     int64    the log index of row 0; the file's name says the same
    first_offset    int64    the offset of the first record that the segment can hold
    previous_term   int64    the term of the entry before row 0
    created_ms      int64
    cleaned_ms      int64    when compaction first rewrote the segment, else 0
    crc             uint32   CRC-32C of the fields above
    (padding)

Then rows of 56 bytes:

    term            int32
    kind            int32    `EntryKind`
    records         int32    how many offsets the entry takes
    size            int32    bytes of the payload; 0 when compaction removed all of it
    first_offset    int64    offset of the first record, or of the next one for other kinds
    log_position    int64    where the payload lies in .log, or where the next one will
    state_position  int64    the same for .state
    max_timestamp   int64    the largest timestamp in this segment so far
    unsynced        int32    how many entries right before this one were not yet durable
    crc             uint32   CRC-32C of the fields above

Offsets, positions and timestamps ascend from row to row, so every lookup is a binary search that
touches a few rows of a memory map. A row can be derived from the payload that it describes
(`recovery` does), which is why rows need no sync before an entry is acknowledged.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from penstock.errors import Corruption
from penstock.log.disk import Buffer

_HEADER = struct.Struct("<8sqqqqq")
_CRC = struct.Struct("<I")
HEADER_BYTES = 64
MAGIC = b"PENSTIX1"

_ROW = struct.Struct("<iiiiqqqqi")
ROW_BYTES = _ROW.size + _CRC.size
_INT64 = struct.Struct("<q")
_FIRST_OFFSET_AT = 16
_LOG_POSITION_AT = 24
_MAX_TIMESTAMP_AT = 40


class EntryKind(IntEnum):
    """What the payload of an entry is."""

    RECORDS = 1
    """A batch of records; all other kinds lie in .state."""
    STATE = 2
    """A change of the state that the log's machine keeps."""
    NOOP = 3
    """Opens a leader's term."""
    MEMBERSHIP = 4
    """Who replicates the log from here on."""


class Row(NamedTuple):
    """One entry of the log, without its payload."""

    term: int
    kind: int
    records: int
    size: int
    first_offset: int
    log_position: int
    state_position: int
    max_timestamp: int
    unsynced: int

    @property
    def next_offset(self) -> int:
        """The offset after the last record of the entry."""
        return self.first_offset + self.records

    @property
    def log_end(self) -> int:
        """Where .log ends after this entry."""
        return self.log_position + (self.size if self.kind == EntryKind.RECORDS else 0)

    @property
    def state_end(self) -> int:
        """Where .state ends after this entry."""
        return self.state_position + (self.size if self.kind != EntryKind.RECORDS else 0)

    def pack(self) -> bytes:
        """Return the row as it stands in the file."""
        packed = _ROW.pack(*self)
        return packed + _CRC.pack(crc32c(packed))


# Made from its fields as a tuple: every entry has one, and its own constructor is a call more.
make_row: Callable[[tuple[int, ...]], Row] = partial(tuple.__new__, Row)


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """What a segment knows before its first entry."""

    first_index: int
    first_offset: int
    previous_term: int
    created_ms: int
    cleaned_ms: int = 0

    def pack(self) -> bytes:
        """Return the header as it stands in the file."""
        packed = _HEADER.pack(
            MAGIC,
            self.first_index,
            self.first_offset,
            self.previous_term,
            self.created_ms,
            self.cleaned_ms,
        )
        return (packed + _CRC.pack(crc32c(packed))).ljust(HEADER_BYTES, b"\0")


def index_bytes(rows: int) -> int:
    """Return the size of an index file with that many rows."""
    return HEADER_BYTES + rows * ROW_BYTES


def read_index_header(data: Buffer, name: str) -> IndexHeader:
    """Read the header; raise `Corruption` when it is not whole."""
    if len(data) < HEADER_BYTES:
        raise Corruption(f"{name} has {len(data)} bytes, its header alone has {HEADER_BYTES}")
    magic, *fields = _HEADER.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if magic != MAGIC or crc != crc32c(memoryview(data)[: _HEADER.size]):
        raise Corruption(f"{name} does not begin with the header of an index")
    return IndexHeader(*fields)


def read_row(data: Buffer, number: int) -> Row | None:
    """Return row `number` of an index file, or None when it is not whole or damaged."""
    return _checked_row(data, HEADER_BYTES + number * ROW_BYTES)


def unpack_row(data: bytes) -> Row | None:
    """Return the row that these bytes are, or None when they are fewer or damaged."""
    return _checked_row(data, 0)


def _checked_row(data: Buffer, start: int) -> Row | None:
    if start + ROW_BYTES > len(data):
        return None
    (crc,) = _CRC.unpack_from(data, start + _ROW.size)
    # A copy, because a view would keep the rows of the active segment from growing meanwhile.
    if crc != crc32c(bytes(data[start : start + _ROW.size])):
        return None
    return Row(*_ROW.unpack_from(data, start))


class IndexTable:
    """The rows of one segment.

    The active segment keeps its rows in a growing buffer, a sealed one maps the file. Neither makes
    a Python object per row.
    """

    __slots__ = ("_last", "_rows", "count", "header", "next_index")

    def __init__(self, header: IndexHeader, rows: Buffer, count: int) -> None:
        self.header = header
        self.count = count
        self.next_index = header.first_index + count
        """The log index after the last row."""
        self._rows = rows
        # The last row, which is asked for several times per append.
        self._last: Row | None = None

    @classmethod
    def empty(cls, header: IndexHeader) -> "IndexTable":
        """Return a table that can grow."""
        return cls(header, bytearray(), 0)

    @classmethod
    def growing(cls, header: IndexHeader, file: Buffer, count: int) -> "IndexTable":
        """Return a table that can grow, beginning with the first `count` rows of a file."""
        rows = bytearray(memoryview(file)[HEADER_BYTES : HEADER_BYTES + count * ROW_BYTES])
        return cls(header, rows, count)

    @classmethod
    def mapped(cls, header: IndexHeader, file: Buffer, count: int) -> "IndexTable":
        """Return a table of `count` rows that reads them from the mapped file."""
        return cls(header, memoryview(file)[HEADER_BYTES:], count)

    @property
    def is_mapped(self) -> bool:
        """True when the rows are read from the file, as long as that has them."""
        return not isinstance(self._rows, bytearray)

    def append(self, row: Row) -> bytes:
        """Add a row; return it as it stands in the file."""
        assert isinstance(self._rows, bytearray), "a sealed segment has all its rows"
        packed = row.pack()
        self._rows += packed
        self.count += 1
        self.next_index += 1
        self._last = row
        return packed

    def truncate(self, count: int) -> None:
        """Keep the first `count` rows."""
        assert isinstance(self._rows, bytearray), "a sealed segment keeps its rows"
        del self._rows[count * ROW_BYTES :]
        self.count = count
        self.next_index = self.header.first_index + count
        self._last = None

    def row(self, number: int) -> Row:
        """Return row `number`; raise `Corruption` when its bytes are damaged.

        A term that nobody gave an entry could have consensus cut what is committed.
        """
        row = self.checked_row(number)
        if row is None:
            raise Corruption(f"the row of entry {self.header.first_index + number} is damaged")
        return row

    def row_of_offset(self, offset: int) -> Row:
        """Return the row whose records begin last at or before `offset`, or the first row.

        The search looks at single fields. Where a damaged row has led it astray, its end does not
        fit the rows beside it; `Corruption` is raised, because readers would miss records.
        """
        number = self.number_of_offset(offset)
        row = self.row(number)
        is_early = (
            row.next_offset <= offset
            and number + 1 < self.count
            and self.row(number + 1).first_offset <= offset
        )
        if is_early or (row.first_offset > offset and number > 0):
            raise Corruption(f"a row before or after offset {offset} is damaged")
        return row

    def checked_row(self, number: int) -> Row | None:
        """Return row `number`, or None when its bytes are damaged."""
        return _checked_row(self._rows, number * ROW_BYTES)

    def last(self) -> Row | None:
        """Return the last row, or None when there is none."""
        if self._last is None and self.count:
            self._last = self.row(self.count - 1)
        return self._last

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        last = self._last or self.last()
        return last.first_offset + last.records if last else self.header.first_offset

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of any record, or -1."""
        last = self._last or self.last()
        return last.max_timestamp if last else -1

    def number_of_offset(self, offset: int) -> int:
        """Return the row whose records begin last at or before `offset`, at least row 0."""
        last = self.last()
        if last is not None and offset >= last.first_offset:
            # Readers that have caught up ask for nothing else.
            return self.count - 1
        return max(
            0, bisect_right(range(self.count), offset, key=self._column(_FIRST_OFFSET_AT)) - 1
        )

    def number_of_position(self, log_position: int) -> int:
        """Return the first row that begins at or after `log_position` in .log."""
        return bisect_left(range(self.count), log_position, key=self._column(_LOG_POSITION_AT))

    def number_past_position(self, log_position: int) -> int:
        """Return the first row that begins after `log_position` in .log."""
        return bisect_right(range(self.count), log_position, key=self._column(_LOG_POSITION_AT))

    def number_of_time(self, timestamp: int) -> int:
        """Return the first row with a record at or after `timestamp`, or `count`."""
        return bisect_left(range(self.count), timestamp, key=self._column(_MAX_TIMESTAMP_AT))

    def _column(self, position: int) -> Callable[[int], int]:
        rows = self._rows
        unpack = _INT64.unpack_from
        return lambda number: unpack(rows, number * ROW_BYTES + position)[0]
