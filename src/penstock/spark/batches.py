"""Record batches of a fetch answer, found and decoded by compiled loops.

`scan` walks over the headers of the batches and fills one row of a table for each. `decode` walks
over the records of such rows and fills arrays that have the layout of Arrow columns: fixed values,
and the bytes of keys, values and headers back to back with the end of each. Nothing here is done
per record in Python.

The loops trust no byte: every position is checked against the end of its batch, and what does not
fit is told by a status and the row where it was found. They are compiled once per machine and kept
on disk, so that executors load machine code.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Ends = NDArray[np.int32]
# Compiled code does not tell Python's integers from numpy's.
Number = Any

# The columns of the table that `scan` fills.
POSITION, SIZE, BASE_OFFSET, NEXT_OFFSET, ATTRIBUTES = range(5)
BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, RECORDS, CRC = range(5, 10)
TABLE_COLUMNS = 10

HEADER_BYTES = 61
# A length, attributes, two deltas, two sizes and a count, one byte each.
RECORD_BYTES_MIN = 7

FITS = 0
BAD_LENGTH = 1
BAD_MAGIC = 2
BAD_RECORD = 3
_LENGTH_OVERHEAD_BYTES = 12
_MAGIC_POSITION = 16
_MAGIC = 2
_APPEND_TIME = 0x08
_VARINT_BITS_MAX = 64
# Producers may date records as they like; what microseconds cannot hold becomes the nearest time.
_TIME_MS_MAX = (2**63 - 1) // 1000


class Columns(NamedTuple):
    """Room for the columns of decoded records; arrays of no length are not filled."""

    offsets: Integers
    timestamps: Integers
    timestamp_types: Ends
    key_ends: Ends
    key_nulls: Bytes
    keys: Bytes
    value_ends: Ends
    value_nulls: Bytes
    values: Bytes
    header_ends: Ends
    header_nulls: Bytes
    name_ends: Ends
    names: Bytes
    content_ends: Ends
    content_nulls: Bytes
    contents: Bytes


@njit(cache=True, nogil=True, inline="always")
def _big_endian(data: Bytes, position: Number, size: Number) -> Number:
    number = np.int64(0)
    for index in range(size):
        number = (number << 8) | np.int64(data[position + index])
    return number


@njit(cache=True, nogil=True, inline="always")
def _big_endian_signed(data: Bytes, position: Number, size: Number) -> Number:
    shift = 64 - 8 * size
    return (_big_endian(data, position, size) << shift) >> shift


@njit(cache=True, nogil=True)
def scan(data: Bytes, table: Integers) -> tuple[Number, Number]:
    """Fill `table` with the whole batches in `data`; return how many, and a status.

    A batch that is cut off at the end of the data is left out, as brokers may do that.
    """
    position = 0
    rows = 0
    while position + HEADER_BYTES <= len(data) and rows < len(table):
        size = _big_endian_signed(data, position + 8, 4) + _LENGTH_OVERHEAD_BYTES
        row = table[rows]
        row[POSITION] = position
        row[SIZE] = size
        row[BASE_OFFSET] = _big_endian(data, position, 8)
        if data[position + _MAGIC_POSITION] != _MAGIC:
            return rows, BAD_MAGIC
        if size < HEADER_BYTES:
            return rows, BAD_LENGTH
        if position + size > len(data):
            break
        row[CRC] = _big_endian(data, position + 17, 4)
        row[ATTRIBUTES] = _big_endian(data, position + 21, 2)
        row[NEXT_OFFSET] = row[BASE_OFFSET] + _big_endian_signed(data, position + 23, 4) + 1
        row[BASE_TIMESTAMP] = _big_endian(data, position + 27, 8)
        row[MAX_TIMESTAMP] = _big_endian(data, position + 35, 8)
        row[PRODUCER_ID] = _big_endian(data, position + 43, 8)
        row[RECORDS] = _big_endian_signed(data, position + 57, 4)
        position += size
        rows += 1
    return rows, FITS


@njit(cache=True, nogil=True, inline="always")
def _varint(data: Bytes, position: Number, end: Number) -> tuple[Number, Number]:
    """Return a number and the position after it; the position is -1 when it does not fit."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < _VARINT_BITS_MAX:
        byte = data[position]
        position += 1
        raw |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), position
        shift += np.uint64(7)
    return 0, -1


@njit(cache=True, nogil=True, inline="always")
def _copy(data: Bytes, start: Number, end: Number, into: Bytes, at: Number) -> Number:
    # Positions without a sign need no check for negative ones, and the loop becomes a block copy.
    source = np.uint64(start)
    target = np.uint64(at)
    for index in range(np.uint64(end - start)):
        into[target + index] = data[source + index]
    return at + end - start


@njit(cache=True, nogil=True)
def _decode_headers(
    data: Bytes, position: Number, end: Number, columns: Columns, filled: tuple[Number, Number]
) -> Number:
    """Append the headers of one record; return how many headers there are then, or -1."""
    record, headers = filled
    count, position = _varint(data, position, end)
    if position < 0 or count < 0:
        return -1
    for header in range(headers, headers + count):
        name_bytes, position = _varint(data, position, end)
        if position < 0 or name_bytes < 0 or name_bytes > end - position:
            return -1
        at = columns.name_ends[header - 1] if header else 0
        columns.name_ends[header] = _copy(data, position, position + name_bytes, columns.names, at)
        content_bytes, position = _varint(data, position + name_bytes, end)
        if position < 0 or content_bytes > end - position:
            return -1
        columns.content_nulls[header] = content_bytes < 0
        stop = position + max(content_bytes, 0)
        at = columns.content_ends[header - 1] if header else 0
        columns.content_ends[header] = _copy(data, position, stop, columns.contents, at)
        position = stop
    columns.header_ends[record] = headers + count
    columns.header_nulls[record] = count == 0
    return headers + count


@njit(cache=True, nogil=True, inline="always")
def _decode_bytes(
    data: Bytes, position: Number, end: Number, into: tuple[Ends, Bytes, Bytes], record: Number
) -> Number:
    """Append a key or a value; return the position after it, or -1 when it does not fit."""
    ends, nulls, content = into
    size, position = _varint(data, position, end)
    if position < 0 or size > end - position:
        return -1
    stop = position + max(size, 0)
    if len(ends):
        at = np.int64(ends[record - 1]) if record else 0
        ends[record] = _copy(data, position, stop, content, at)
        nulls[record] = size < 0
    return stop


@njit(cache=True, nogil=True)
def decode(
    data: Bytes,
    table: Integers,
    bounds: tuple[Number, Number],
    columns: Columns,
    filled: tuple[Number, Number],
) -> tuple[Number, Number, Number]:
    """Append the records of the batches in `table` with offsets in `bounds` to `columns`.

    `POSITION` and `SIZE` of a row are those of its records in `data`. `filled` counts the records
    and headers that are there already. Returns both counts anew, and the row that holds a record
    which does not fit, or -1.
    """
    record, headers = filled
    keys = (columns.key_ends, columns.key_nulls, columns.keys)
    values = (columns.value_ends, columns.value_nulls, columns.values)
    for index in range(len(table)):
        row = table[index]
        position = row[POSITION]
        end = position + row[SIZE]
        append_time = row[ATTRIBUTES] & _APPEND_TIME
        for _ in range(row[RECORDS]):
            size, position = _varint(data, position, end)
            if position < 0 or size < RECORD_BYTES_MIN - 1 or size > end - position:
                return record, headers, index
            stop = position + size
            # The attributes of a record have no meaning yet.
            timestamp_delta, position = _varint(data, position + 1, stop)
            if position < 0:
                return record, headers, index
            offset_delta, position = _varint(data, position, stop)
            if position < 0:
                return record, headers, index
            offset = row[BASE_OFFSET] + offset_delta
            if bounds[0] <= offset < bounds[1]:
                position = _decode_bytes(data, position, stop, keys, record)
                if position < 0:
                    return record, headers, index
                position = _decode_bytes(data, position, stop, values, record)
                if position < 0:
                    return record, headers, index
                if len(columns.header_ends):
                    headers = _decode_headers(data, position, stop, columns, (record, headers))
                    if headers < 0:
                        return record, headers, index
                timestamp = row[BASE_TIMESTAMP] + timestamp_delta
                columns.offsets[record] = offset
                if append_time:
                    timestamp = row[MAX_TIMESTAMP]
                columns.timestamps[record] = 1000 * min(max(timestamp, -_TIME_MS_MAX), _TIME_MS_MAX)
                columns.timestamp_types[record] = 1 if append_time else 0
                record += 1
            position = stop
    return record, headers, -1
