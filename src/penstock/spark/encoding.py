"""Rows become the records of batches, by compiled loops.

`route` says which partition each row goes to, `group` puts the rows of each partition together in
the order in which they came, and `encode` appends such rows to the bytes of one record batch. The
loops run over the buffers of Arrow columns as they are; nothing here is done per record in Python.

A row goes to the partition that its column names; else to that of its key, which is the one that
Kafka's Java producer chooses; and without a key to one that depends on nothing but the number of
its task and the rows without a key before it there. So a task that is run again on the same rows
sends each of them to the same partition.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from penstock.spark.batches import Bytes, Ends, Integers, Number

# So many rows without a key go to one partition before the next one has its turn.
SPARE_RUN = 1_000
_PRIORITY_NAME = np.frombuffer(b"penstock-priority", np.uint8)
_DELIVER_AT_NAME = np.frombuffer(b"penstock-deliver-at", np.uint8)


class Rows(NamedTuple):
    """The columns of one Arrow record batch.

    The bytes of row i lie between `ends[i]` and `ends[i + 1]`. Times are in milliseconds; -1 stands
    for a number that is not there.
    """

    key_ends: Ends
    keys: Bytes
    key_nulls: Bytes
    value_ends: Ends
    values: Bytes
    value_nulls: Bytes
    header_ends: Ends
    name_ends: Ends
    names: Bytes
    content_ends: Ends
    contents: Bytes
    content_nulls: Bytes
    timestamps: Integers
    priorities: Integers
    deliver_at: Integers


@njit(cache=True, nogil=True)
def murmur2(data: Bytes, start: Number, end: Number) -> Number:
    """Return the hash of some bytes, as `penstock.record.murmur2` does."""
    multiplier = np.uint32(0x5BD1E995)
    size = end - start
    value = np.uint32(0x9747B28C) ^ np.uint32(size)
    at = start
    while at + 4 <= end:
        block = (
            np.uint32(data[at])
            | (np.uint32(data[at + 1]) << np.uint32(8))
            | (np.uint32(data[at + 2]) << np.uint32(16))
            | (np.uint32(data[at + 3]) << np.uint32(24))
        )
        block = np.uint32(block * multiplier)
        block = np.uint32((block ^ (block >> np.uint32(24))) * multiplier)
        value = np.uint32(value * multiplier) ^ block
        at += 4
    if at < end:
        block = np.uint32(0)
        for place in range(end - at):
            block |= np.uint32(data[at + place]) << np.uint32(8 * place)
        value = np.uint32((value ^ block) * multiplier)
    value = np.uint32((value ^ (value >> np.uint32(13))) * multiplier)
    return value ^ (value >> np.uint32(15))


@njit(cache=True, nogil=True)
def route(
    rows: Rows,
    wanted: Integers,
    topics: Integers,
    counts: Integers,
    firsts: Integers,
    spare: Number,
    slots: Integers,
) -> tuple[Number, Number]:
    """Fill `slots` with the place of each row; return the row that has none, or -1, and `spare`.

    `wanted` are the partitions that rows ask for, -1 where they do not; `topics` the number of each
    row's topic; `counts` and `firsts` the partitions of each topic and its first place. `spare`
    counts rows without a key.
    """
    for row in range(len(slots)):
        topic = topics[row]
        count = counts[topic]
        if wanted[row] != -1:
            if not 0 <= wanted[row] < count:
                return row, spare
            partition = wanted[row]
        elif rows.key_nulls[row]:
            partition = (spare // SPARE_RUN) % count
            spare += 1
        else:
            hashed = murmur2(rows.keys, rows.key_ends[row], rows.key_ends[row + 1])
            partition = np.int64(hashed & np.uint32(0x7FFFFFFF)) % count
        slots[row] = firsts[topic] + partition
    return -1, spare


@njit(cache=True, nogil=True)
def group(slots: Integers, order: Integers, ends: Integers) -> None:
    """Fill `order` with the rows of each place, and `ends` with where those of a place end there.

    `ends` has one more number than there are places, and begins with zero.
    """
    ends[:] = 0
    for slot in slots:
        ends[slot + 1] += 1
    for place in range(1, len(ends)):
        ends[place] += ends[place - 1]
    following = ends[:-1].copy()
    for row in range(len(slots)):
        slot = slots[row]
        order[following[slot]] = row
        following[slot] += 1


@njit(cache=True, nogil=True, inline="always")
def _varint_bytes(number: Number) -> Number:
    raw = np.uint64((number << 1) ^ (number >> 63))
    size = 1
    while raw > np.uint64(0x7F):
        raw >>= np.uint64(7)
        size += 1
    return size


@njit(cache=True, nogil=True, inline="always")
def _put_varint(out: Bytes, at: Number, number: Number) -> Number:
    raw = np.uint64((number << 1) ^ (number >> 63))
    while raw > np.uint64(0x7F):
        out[at] = np.uint8(raw & np.uint64(0x7F)) | np.uint8(0x80)
        raw >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(raw)
    return at + 1


@njit(cache=True, nogil=True, inline="always")
def _put_bytes(out: Bytes, at: Number, data: Bytes, start: Number, end: Number) -> Number:
    # Positions without a sign need no check for negative ones, and the loop becomes a block copy.
    source = np.uint64(start)
    target = np.uint64(at)
    for index in range(np.uint64(end - start)):
        out[target + index] = data[source + index]
    return at + end - start


@njit(cache=True, nogil=True, inline="always")
def _digits(number: Number) -> Number:
    count = 1
    while number >= 10:
        number //= 10
        count += 1
    return count


@njit(cache=True, nogil=True, inline="always")
def _sized(start: Number, end: Number, is_null: Number) -> Number:
    """Return the bytes that a key or a value takes with its length."""
    if is_null:
        return 1
    return _varint_bytes(np.int64(end - start)) + end - start


@njit(cache=True, nogil=True, inline="always")
def _put_sized(
    out: Bytes, at: Number, data: Bytes, start: Number, end: Number, is_null: Number
) -> Number:
    if is_null:
        return _put_varint(out, at, np.int64(-1))
    at = _put_varint(out, at, np.int64(end - start))
    return _put_bytes(out, at, data, start, end)


@njit(cache=True, nogil=True)
def _headers_bytes(rows: Rows, row: Number) -> Number:
    first, last = rows.header_ends[row], rows.header_ends[row + 1]
    count = np.int64(last - first)
    size = np.int64(0)
    for header in range(first, last):
        size += _sized(rows.name_ends[header], rows.name_ends[header + 1], False)
        size += _sized(
            rows.content_ends[header], rows.content_ends[header + 1], rows.content_nulls[header]
        )
    if rows.priorities[row] >= 0:
        size += 1 + len(_PRIORITY_NAME) + 2
        count += 1
    if rows.deliver_at[row] >= 0:
        size += 1 + len(_DELIVER_AT_NAME) + 1 + _digits(rows.deliver_at[row])
        count += 1
    return size + _varint_bytes(count)


@njit(cache=True, nogil=True)
def _put_number_header(out: Bytes, at: Number, name: Bytes, number: Number) -> Number:
    at = _put_sized(out, at, name, 0, len(name), False)
    digits = _digits(number)
    at = _put_varint(out, at, np.int64(digits))
    for place in range(digits):
        out[at + digits - 1 - place] = np.uint8(48 + number % 10)
        number //= 10
    return at + digits


@njit(cache=True, nogil=True)
def _put_headers(out: Bytes, at: Number, rows: Rows, row: Number) -> Number:
    first, last = rows.header_ends[row], rows.header_ends[row + 1]
    priority, deliver_at = rows.priorities[row], rows.deliver_at[row]
    at = _put_varint(out, at, np.int64(last - first + (priority >= 0) + (deliver_at >= 0)))
    for header in range(first, last):
        at = _put_sized(
            out, at, rows.names, rows.name_ends[header], rows.name_ends[header + 1], False
        )
        at = _put_sized(
            out, at, rows.contents, rows.content_ends[header], rows.content_ends[header + 1],
            rows.content_nulls[header],
        )  # fmt: skip
    # What a column says stands above a header of that name: the last one counts.
    if priority >= 0:
        at = _put_number_header(out, at, _PRIORITY_NAME, priority)
    if deliver_at >= 0:
        at = _put_number_header(out, at, _DELIVER_AT_NAME, deliver_at)
    return at


@njit(cache=True, nogil=True)
def encode(
    rows: Rows,
    order: Integers,
    out: Bytes,
    at: Number,
    first_delta: Number,
    base_timestamp: Number,
    max_timestamp: Number,
) -> tuple[Number, Number, Number]:
    """Append rows to `out` from `at` on, while there is room.

    Returns how many were appended, where they end, and the newest timestamp.
    """
    for done in range(len(order)):
        row = order[done]
        delta = np.int64(first_delta + done)
        time_delta = rows.timestamps[row] - base_timestamp
        key_start, key_end = rows.key_ends[row], rows.key_ends[row + 1]
        value_start, value_end = rows.value_ends[row], rows.value_ends[row + 1]
        size = 1 + _varint_bytes(time_delta) + _varint_bytes(delta)
        size += _sized(key_start, key_end, rows.key_nulls[row])
        size += _sized(value_start, value_end, rows.value_nulls[row])
        size += _headers_bytes(rows, row)
        if at + _varint_bytes(np.int64(size)) + size > len(out):
            return done, at, max_timestamp
        at = _put_varint(out, at, np.int64(size))
        out[at] = 0
        at = _put_varint(out, at + 1, time_delta)
        at = _put_varint(out, at, delta)
        at = _put_sized(out, at, rows.keys, key_start, key_end, rows.key_nulls[row])
        at = _put_sized(out, at, rows.values, value_start, value_end, rows.value_nulls[row])
        at = _put_headers(out, at, rows, row)
        max_timestamp = max(max_timestamp, rows.timestamps[row])
    return len(order), at, max_timestamp
