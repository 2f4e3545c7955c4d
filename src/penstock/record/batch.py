"""The header of a record batch, and the checks that guard the log.

Layout of version 2, big endian, 61 bytes before the records:

    base_offset            int64   set by the broker, outside the checksum
    length                 int32   bytes after this field
    leader_epoch           int32   set by the broker, outside the checksum
    magic                  int8    2
    crc                    uint32  CRC-32C of everything that follows
    attributes             int16   bits 0-2 codec, 3 append time, 4 transactional, 5 control
    last_offset_delta      int32
    base_timestamp         int64
    max_timestamp          int64
    producer_id            int64
    producer_epoch         int16
    base_sequence          int32
    records                int32   how many records follow

Because the two fields that the broker sets lie outside the checksum, a batch is stored as the
client encoded it: no record is ever decoded on the way in or out.
"""

import struct

import msgspec
from crc32c import crc32c

from penstock.errors import BadChecksum, InvalidBatch, UnsupportedBatchFormat

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
MAGIC = 2
# The fields before the one that `length` counts from.
LENGTH_OVERHEAD_BYTES = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
CHECKED_FROM = 21
MAX_TIMESTAMP_POSITION = 35

NO_PRODUCER_ID = -1
# The producer of batches that leave the stage of scheduled messages.
STAGE_PRODUCER_ID = -2

CODEC_MASK = 0x07
APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20

FRONT = struct.Struct(">qiibI")
CHECKED = struct.Struct(">hiqqqhii")
PRODUCER_POSITION = 43

_PRODUCER = struct.Struct(">qhi")
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")

Buffer = bytes | bytearray | memoryview


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The fields before the records, as they stand in the bytes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.length + LENGTH_OVERHEAD_BYTES

    @property
    def next_offset(self) -> int:
        """The offset after the last one of this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def offsets(self) -> int:
        """How many offsets the batch takes; compaction may leave fewer records than that."""
        return self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The compression code of the records."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """True for transaction markers, which consumers never see."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def is_transactional(self) -> bool:
        """True when the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def has_append_time(self) -> bool:
        """True when every record carries the time at which the broker appended it."""
        return bool(self.attributes & APPEND_TIME_FLAG)

    @property
    def has_producer(self) -> bool:
        """True when an idempotent producer numbered this batch."""
        return self.producer_id >= 0

    @property
    def is_release(self) -> bool:
        """True when the records leave the stage with this batch."""
        return self.producer_id == STAGE_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; sequences wrap at 2^31."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


class RecordBatch(msgspec.Struct, frozen=True, gc=False):
    """One checked batch: its header and a writable view of all its bytes."""

    header: BatchHeader
    data: memoryview


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`; the caller has made sure that the bytes are there."""
    return BatchHeader(*HEADER.unpack_from(buffer, position))


def batch_size(buffer: Buffer, position: int = 0) -> int:
    """Return the size of the batch at `position`, or 0 when its length field cannot be true."""
    (length,) = _LENGTH.unpack_from(buffer, position + _OFFSET.size)
    if length < HEADER_BYTES - LENGTH_OVERHEAD_BYTES:
        return 0
    return int(length) + LENGTH_OVERHEAD_BYTES


def checksum_matches(batch: Buffer) -> bool:
    """Compare the stored CRC-32C with the bytes of exactly one batch."""
    (crc,) = _CRC.unpack_from(batch, CRC_POSITION)
    is_same: bool = crc == crc32c(memoryview(batch)[CHECKED_FROM:])
    return is_same


def verify_checksum(batch: Buffer) -> None:
    """Raise `BadChecksum` when the bytes of one batch do not match their CRC-32C."""
    if not checksum_matches(batch):
        raise _bad_checksum(batch)


def _bad_checksum(batch: Buffer) -> BadChecksum:
    (crc,) = _CRC.unpack_from(batch, CRC_POSITION)
    actual = crc32c(memoryview(batch)[CHECKED_FROM:])
    return BadChecksum(f"record batch carries CRC {crc:#010x}, its bytes give {actual:#010x}")


def split_batches(buffer: bytearray | memoryview) -> list[RecordBatch]:
    """Cut what a producer sent into batches and check each of them.

    Raises a subclass of `InvalidRequest` that names what is wrong. Nothing is copied: the batches
    are views of `buffer`.
    """
    view = memoryview(buffer)
    batches = [first_batch(view)]
    while view := view[len(batches[-1].data) :]:
        batches.append(first_batch(view))
    return batches


def first_batch(view: memoryview) -> RecordBatch:
    """Cut the first batch off what a producer sent and check it, as `split_batches` does."""
    header = _checked_header(view)
    data = view[: header.length + LENGTH_OVERHEAD_BYTES]
    if header.crc != crc32c(data[CHECKED_FROM:]):
        raise _bad_checksum(data)
    return RecordBatch(header, data)


def _checked_header(view: memoryview) -> BatchHeader:
    size_bytes = len(view)
    if size_bytes <= MAGIC_POSITION:
        raise InvalidBatch(
            f"{size_bytes} bytes cannot hold a record batch"
            if size_bytes
            else "no record batch was sent"
        )
    if view[MAGIC_POSITION] != MAGIC:
        raise UnsupportedBatchFormat(
            f"record format {view[MAGIC_POSITION]} is not supported;"
            f" producers must send version {MAGIC}"
        )
    if size_bytes < HEADER_BYTES:
        raise InvalidBatch(f"a batch header has {HEADER_BYTES} bytes, only {size_bytes} were sent")
    header = read_header(view)
    if not HEADER_BYTES <= header.length + LENGTH_OVERHEAD_BYTES <= size_bytes:
        raise InvalidBatch(
            f"a batch says that it has {header.size_bytes} bytes, {size_bytes} bytes were sent"
        )
    if header.records < 1 or header.last_offset_delta != header.records - 1:
        raise InvalidBatch(
            f"a batch says {header.records} records with a last offset delta of"
            f" {header.last_offset_delta}"
        )
    return header


def stamp(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the two fields that the broker owns; the checksum does not cover them."""
    _OFFSET.pack_into(batch, 0, base_offset)
    _EPOCH.pack_into(batch, LENGTH_OVERHEAD_BYTES, leader_epoch)


def stamp_append_time(batch: memoryview, now_ms: int) -> None:
    """Make `now_ms` the timestamp of every record; the checksum is computed anew."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CHECKED_FROM)
    _ATTRIBUTES.pack_into(batch, CHECKED_FROM, attributes | APPEND_TIME_FLAG)
    _TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_POSITION, now_ms)
    _CRC.pack_into(batch, CRC_POSITION, crc32c(batch[CHECKED_FROM:]))


def stamp_producer(
    batch: memoryview, *, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Number the batch as one of an idempotent producer; the checksum is computed anew."""
    _PRODUCER.pack_into(batch, PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(batch, CRC_POSITION, crc32c(batch[CHECKED_FROM:]))


def frame_batch(data: bytearray, *, codec: int, records: int, times: tuple[int, int]) -> None:
    """Write the header of a batch of no producer; its records stand behind the header already.

    `times` are the timestamp that the records count from, and the newest one.
    """
    checked = CHECKED.pack(codec, records - 1, *times, -1, -1, -1, records)
    data[CHECKED_FROM:HEADER_BYTES] = checked
    crc = crc32c(memoryview(data)[CHECKED_FROM:])
    FRONT.pack_into(data, 0, 0, len(data) - LENGTH_OVERHEAD_BYTES, -1, MAGIC, crc)
