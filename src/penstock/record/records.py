"""The records inside a batch.

Only those who must look inside come here: lookups by time, compaction, people with `log dump`, and
the doors that are not Kafka's. A record, after its length, is: attributes (one byte), timestamp
delta, offset delta, key length, key, value length, value, header count, and for each header the
length and bytes of its key and value. All numbers are zigzag varints; a length of -1 means null.

Both directions are loops without a call per number: a record costs about a microsecond each way,
and a door that encodes or decodes messages pays it for every one of them.
"""

from collections.abc import Iterator, Sequence

import msgspec
from crc32c import crc32c

from penstock.errors import InvalidBatch
from penstock.record.batch import (
    CHECKED,
    CHECKED_FROM,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    Buffer,
    read_header,
)
from penstock.record.compression import Codec, compress, decompress

# Ten bytes of seven bits each hold 64 bits.
VARINT_BITS_MAX = 70
# What the first byte of a zigzag varint stands for; the bits of later ones are added by `^`.
_SIGNED = tuple((low & 0x7F) >> 1 ^ -(low & 1) for low in range(256))


# Records come by the thousand and point at bytes only, so the garbage collector leaves them alone.
class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record with its final offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def decode_records(batch: Buffer) -> Iterator[Record]:
    """Yield the records of one batch; raise `InvalidBatch` when the bytes do not hold them."""
    header = read_header(batch)
    view = memoryview(batch)
    data = decompress(header.codec, view[HEADER_BYTES : header.size_bytes])
    try:
        yield from _decode_body(data, header)
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidBatch(
            f"the batch at offset {header.base_offset} ends inside a record"
        ) from error


def decode_values(batch: Buffer) -> list[Record] | None:
    """Return the records of a batch like those of `encode_values`; None says it is another.

    Most messages are a value and nothing else, and it costs less to write down what should stand
    before it than to read what does.
    """
    header = read_header(batch)
    if header.attributes or not 0 < header.records == header.offsets <= len(_VALUE_HEADS):
        return None
    try:
        return _decode_values(bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes]), header)
    except IndexError:
        return None


def encode_batch(
    records: Sequence[Record],
    *,
    codec: int = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Encode records into one batch; their offsets must ascend."""
    first = records[0]
    header = BatchHeader(
        base_offset=first.offset,
        length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=records[-1].offset - first.offset,
        base_timestamp=first.timestamp,
        max_timestamp=max([record.timestamp for record in records]),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records=len(records),
    )
    return _assemble(header, _encode_body(header, records), records=len(records))


def encode_values(values: Sequence[bytes], timestamp: int) -> bytearray:
    """Encode records of one time that have a value and nothing else."""
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=Codec.NONE,
        last_offset_delta=len(values) - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records=len(values),
    )
    parts: list[bytes] = []
    short, short_max = _SHORT, len(_SHORT)
    for delta, value in enumerate(values):
        size = len(value)
        head = _VALUE_HEADS[delta] if delta < short_max else _value_head(varint_bytes(delta))
        head += short[size] if size < short_max else varint_bytes(size)
        length = len(head) + size + 1
        length_bytes = short[length] if length < short_max else varint_bytes(length)
        parts += (length_bytes, head, value, b"\0")
    return _assemble(header, b"".join(parts), records=len(values))


def batch_without_records(base_offset: int, offsets: int, leader_epoch: int) -> bytearray:
    """Return a batch that holds the place of `offsets` records which are gone."""
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=Codec.NONE,
        last_offset_delta=offsets - 1,
        base_timestamp=-1,
        max_timestamp=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records=0,
    )
    return _assemble(header, b"", records=0)


def rewrite_batch(header: BatchHeader, records: Sequence[Record]) -> bytearray:
    """Encode the records that compaction keeps; offsets, times and producer stay as they were."""
    return _assemble(header, _encode_body(header, records), records=len(records))


def _assemble(header: BatchHeader, body: bytes, *, records: int) -> bytearray:
    packed = compress(header.codec, body)
    checked = (
        CHECKED.pack(
            header.attributes,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            records,
        )
        + packed
    )
    batch = bytearray(HEADER_BYTES + len(packed))
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        len(batch) - LENGTH_OVERHEAD_BYTES,
        header.leader_epoch,
        MAGIC,
        crc32c(checked),
        *CHECKED.unpack_from(checked),
    )
    batch[CHECKED_FROM:] = checked
    return batch


def _decode_body(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records; `IndexError` says that the bytes end too early.

    One and two byte numbers are read in place: they are nearly all there are.
    """
    base_offset, next_offset = header.base_offset, header.next_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.has_append_time else None
    offset_min = base_offset
    signed = _SIGNED
    at = 0
    for _ in range(header.records):
        if (low := data[at]) < 0x80:
            start = at + 1
            record_end = start + signed[low]
        elif (high := data[at + 1]) < 0x80:
            start = at + 2
            record_end = start + (signed[low] ^ high << 6)
        else:
            length, start = _read_varint(data, at)
            record_end = start + length
        key: bytes | None = None
        value: bytes | None = None
        # The attributes of a record are not in use.
        at = start + 1
        if (low := data[at]) < 0x80:
            delta = signed[low]
            at += 1
        else:
            delta, at = _read_varint(data, at)
        timestamp = base_timestamp + delta if append_time is None else append_time
        if (low := data[at]) < 0x80:
            offset = base_offset + signed[low]
            at += 1
        elif (high := data[at + 1]) < 0x80:
            offset = base_offset + (signed[low] ^ high << 6)
            at += 2
        else:
            delta, at = _read_varint(data, at)
            offset = base_offset + delta
        if (low := data[at]) < 0x80:
            length = signed[low]
            at += 1
        else:
            length, at = _read_varint(data, at)
        if length >= 0:
            key = data[at : at + length]
            at += length
        if (low := data[at]) < 0x80:
            length = signed[low]
            at += 1
        elif (high := data[at + 1]) < 0x80:
            length = signed[low] ^ high << 6
            at += 2
        else:
            length, at = _read_varint(data, at)
        if length >= 0:
            value = data[at : at + length]
            at += length
        # A slice stops at the end of the data without a word, the next number does not.
        if data[at]:
            headers, at = _read_headers(data, at)
        else:
            headers = ()
            at += 1
        if at != record_end or not offset_min <= offset < next_offset:
            raise _refusal(at - start, record_end - start, offset, range(offset_min, next_offset))
        offset_min = offset + 1
        yield Record(offset, timestamp, key, value, headers)


def _decode_values(data: bytes, header: BatchHeader) -> list[Record] | None:
    """Guess where each value lies, and compare what stands before it with what should.

    `IndexError` says that the bytes end too early, or that a value is too long for this.
    """
    timestamp = header.base_timestamp
    signed, short = _SIGNED, _SHORT
    records = []
    at = 0
    for offset, head in enumerate(_VALUE_HEADS[: header.records], header.base_offset):
        start = at + 1 if data[at] < 0x80 else at + 2
        length_at = start + len(head)
        if (low := data[length_at]) < 0x80:
            value_at, length = length_at + 1, signed[low]
        else:
            value_at, length = length_at + 2, signed[low] ^ data[length_at + 1] << 6
        end = value_at + length
        expected = short[end + 1 - start] + head + short[length]
        if data[at:value_at] != expected or length < 0 or data[end]:
            return None
        records.append(Record(offset, timestamp, None, data[value_at:end]))
        at = end + 1
    return records


def _refusal(size: int, said: int, offset: int, offsets: range) -> InvalidBatch:
    if size != said:
        return InvalidBatch(f"a record of {size} bytes says that it has {said}")
    # Compaction takes the larger offset for the newer record, so a wrong one does harm.
    return InvalidBatch(f"a record says offset {offset}, not {offsets.start} to {offsets.stop - 1}")


def _read_headers(data: bytes, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = _read_varint(data, at)
    headers = []
    for _ in range(count):
        name, at = _read_bytes(data, at)
        content, at = _read_bytes(data, at)
        headers.append(((name or b"").decode(), content))
    return tuple(headers), at


def _encode_body(header: BatchHeader, records: Sequence[Record]) -> bytes:
    base_timestamp, base_offset = header.base_timestamp, header.base_offset
    parts: list[bytes] = []
    short, short_max = _SHORT, len(_SHORT)
    for record in records:
        key, value, headers = record.key, record.value, record.headers
        delta = record.timestamp - base_timestamp
        body = b"\0" + (short[delta] if 0 <= delta < short_max else varint_bytes(delta))
        delta = record.offset - base_offset
        body += short[delta] if 0 <= delta < short_max else varint_bytes(delta)
        if key is None:
            body += _NULL
        else:
            length = len(key)
            body += (short[length] if length < short_max else varint_bytes(length)) + key
        if value is None:
            body += _NULL
            value = b""
        else:
            length = len(value)
            body += short[length] if length < short_max else varint_bytes(length)
        tail = _headers_bytes(headers) if headers else b"\0"
        length = len(body) + len(value) + len(tail)
        parts += (
            short[length] if length < short_max else varint_bytes(length),
            body,
            value,
            tail,
        )
    return b"".join(parts)


def _headers_bytes(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    out = varint_bytes(len(headers))
    for name, content in headers:
        encoded = name.encode()
        out += varint_bytes(len(encoded)) + encoded
        out += _NULL if content is None else varint_bytes(len(content)) + content
    return out


def varint_bytes(number: int) -> bytes:
    """Return a number of 64 bits as a zigzag varint."""
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_NULL = varint_bytes(-1)
# Numbers of one and two bytes: offsets within a batch and lengths, as a rule.
_SHORT = [bytes((number << 1,)) for number in range(64)] + [
    bytes((number << 1 & 0x7F | 0x80, number >> 6)) for number in range(64, 8192)
]


def _value_head(delta: bytes) -> bytes:
    """Return what stands before a value alone: attributes, time, offset, no key."""
    return b"\0\0" + delta + _NULL


_VALUE_HEADS = [_value_head(delta) for delta in _SHORT]


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    position += 1
    raw = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if shift >= VARINT_BITS_MAX:
            raise InvalidBatch(f"a number takes more than {VARINT_BITS_MAX} bits")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    return (raw >> 1) ^ -(raw & 1), position


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(data, position)
    if size < 0:
        return None, position
    end = position + size
    if end > len(data):
        raise IndexError(end)
    return data[position:end], end
