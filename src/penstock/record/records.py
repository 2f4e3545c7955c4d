"""The records inside a batch.

Only those who must look inside come here: lookups by time, compaction, people with `log dump`, and
the doors that are not Kafka's. A record, after its length, is: attributes (one byte), timestamp
delta, offset delta, key length, key, value length, value, header count, and for each header the
length and bytes of its key and value. All numbers are zigzag varints; a length of -1 means null.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from penstock.errors import InvalidBatch
from penstock.record.batch import (
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

_CHECKED_HEADER = struct.Struct(">hiqqqhii")


@dataclass(frozen=True, slots=True)
class Record:
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
    position = 0
    offset_min = header.base_offset
    try:
        for _ in range(header.records):
            size, start = _read_varint(data, position)
            record, position = _decode_record(data, start, header)
            if position != start + size:
                raise InvalidBatch(f"a record of {position - start} bytes says that it has {size}")
            # Compaction takes the larger offset for the newer record, so a wrong one does harm.
            if not offset_min <= record.offset < header.next_offset:
                raise InvalidBatch(
                    f"a record says offset {record.offset}, not {offset_min} to"
                    f" {header.next_offset - 1}"
                )
            offset_min = record.offset + 1
            yield record
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidBatch(
            f"the batch at offset {header.base_offset} ends inside a record"
        ) from error


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
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records=len(records),
    )
    return _assemble(header, records)


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
    return _assemble(header, [])


def rewrite_batch(header: BatchHeader, records: Sequence[Record]) -> bytearray:
    """Encode the records that compaction keeps; offsets, times and producer stay as they were."""
    return _assemble(header, records)


def _assemble(header: BatchHeader, records: Sequence[Record]) -> bytearray:
    body = bytearray()
    for record in records:
        _encode_record(body, record, header)
    packed = compress(header.codec, bytes(body))
    checked = (
        _CHECKED_HEADER.pack(
            header.attributes,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            len(records),
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
        *_CHECKED_HEADER.unpack_from(checked),
    )
    batch[CHECKED_FROM:] = checked
    return batch


def _decode_record(data: bytes, position: int, header: BatchHeader) -> tuple[Record, int]:
    if position >= len(data):
        raise IndexError(position)
    position += 1
    timestamp_delta, position = _read_varint(data, position)
    offset_delta, position = _read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    count, position = _read_varint(data, position)
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position)
        content, position = _read_bytes(data, position)
        headers.append(((name or b"").decode(), content))
    if header.has_append_time:
        timestamp = header.max_timestamp
    else:
        timestamp = header.base_timestamp + timestamp_delta
    offset = header.base_offset + offset_delta
    return Record(offset, timestamp, key, value, tuple(headers)), position


def _encode_record(out: bytearray, record: Record, header: BatchHeader) -> None:
    body = bytearray(1)
    _write_varint(body, record.timestamp - header.base_timestamp)
    _write_varint(body, record.offset - header.base_offset)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    _write_varint(body, len(record.headers))
    for name, content in record.headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, content)
    _write_varint(out, len(body))
    out += body


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


def _write_varint(out: bytearray, number: int) -> None:
    raw = (number << 1) ^ (number >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(data, position)
    if size < 0:
        return None, position
    end = position + size
    if end > len(data):
        raise IndexError(end)
    return data[position:end], end


def _write_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        _write_varint(out, -1)
        return
    _write_varint(out, len(content))
    out += content
