import datetime as dt
import io
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, RecordHeader
from kio.records.schema import Record as KioRecord
from kio.records.writers import write_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from penstock.errors import InvalidBatch
from penstock.record import (
    HEADER_BYTES,
    Codec,
    Record,
    decode_records,
    decode_values,
    encode_batch,
    encode_values,
    read_header,
    rewrite_batch,
    verify_checksum,
)

small_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), small_bytes), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 6))):
        timestamp = draw(st.integers(0, 2**41))
        records.append(
            Record(offset, timestamp, draw(small_bytes), draw(small_bytes), draw(headers))
        )
        offset += draw(st.integers(1, 3))
    return records


@given(records=record_lists(), codec=st.sampled_from(list(Codec)))
def test_records_come_back_as_they_were_encoded(records: list[Record], codec: Codec) -> None:
    batch = encode_batch(records, codec=codec)

    verify_checksum(batch)
    assert list(decode_records(batch)) == records
    assert read_header(batch).codec == codec


@pytest.mark.parametrize("timestamp", [0, 63, 64, 8_191, 8_192, 2**31, 2**62, -1, -64, -65])
def test_timestamps_at_the_limits_of_varints_come_back(timestamp: int) -> None:
    records = [Record(0, 0, None, b""), Record(1, timestamp, b"", None)]

    assert list(decode_records(encode_batch(records))) == records


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8_191, 8_192, 1_048_576])
def test_values_at_the_limits_of_varints_come_back(size: int) -> None:
    records = [Record(5, 1, bytes(size), bytes(size), (("h" * min(size, 99), bytes(size)),))]

    assert list(decode_records(encode_batch(records))) == records


@pytest.mark.parametrize("sizes", [[0, 1, 55, 63, 64, 8190, 8191, 8192, 20_000], [3] * 8_200])
def test_values_alone_are_encoded_as_records_without_anything_else(sizes: list[int]) -> None:
    values = [b"v" * size for size in sizes]
    records = [Record(delta, 7, None, value) for delta, value in enumerate(values)]

    assert encode_values(values, 7) == encode_batch(records)


@pytest.mark.parametrize("sizes", [[0, 1, 55, 56, 63, 64, 65, 8_000], [3] * 8_192])
def test_values_alone_come_back(sizes: list[int]) -> None:
    records = [Record(5 + delta, 7, None, b"v" * size) for delta, size in enumerate(sizes)]

    assert decode_values(encode_batch(records)) == records


@given(records=record_lists(), codec=st.sampled_from(list(Codec)))
def test_records_that_are_not_values_alone_are_left_to_others(
    records: list[Record], codec: Codec
) -> None:
    batch = encode_batch(records, codec=codec)

    assert decode_values(batch) in (None, list(decode_records(batch)))


def test_values_are_told_from_what_only_begins_like_them() -> None:
    others = (
        Record(1, 0, None, bytes(10_000)),
        Record(1, 0, None, None),
        Record(1, 0, b"k", b"v"),
        Record(1, 1, None, b"v"),
        Record(2, 0, None, b"v"),
        Record(1, 0, None, b"v", (("name", b""),)),
    )
    for other in others:
        assert decode_values(encode_batch([Record(0, 0, None, b"v"), other])) is None


def test_null_and_empty_are_told_apart() -> None:
    records = [
        Record(0, 1, None, None, (("", None), ("", b""))),
        Record(1, 1, b"", b"", ()),
    ]

    assert list(decode_records(encode_batch(records))) == records


def test_offsets_may_have_gaps_where_compaction_was() -> None:
    records = [Record(10, 5, b"k", b"v"), Record(17, 6, b"l", b"w"), Record(19, 7, b"m", b"x")]
    batch = encode_batch(records)

    kept = rewrite_batch(read_header(batch), [records[1]])

    verify_checksum(kept)
    assert list(decode_records(kept)) == [records[1]]
    assert read_header(kept).next_offset == 20
    assert read_header(kept).max_timestamp == 7
    assert read_header(kept).records == 1


@pytest.mark.parametrize("codec", list(Codec))
def test_rewriting_keeps_codec_producer_and_term(codec: Codec) -> None:
    records = [Record(0, 5, b"k", b"v" * 100), Record(1, 6, b"l", b"w")]
    batch = encode_batch(records, codec=codec, producer_id=4, producer_epoch=2, base_sequence=9)
    struct.pack_into(">i", batch, 12, 77)

    kept = rewrite_batch(read_header(batch), records[:1])

    header = read_header(kept)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 2, 9)
    assert (header.leader_epoch, header.codec) == (77, codec)
    assert list(decode_records(kept)) == records[:1]


# Bodies that lie about themselves. A record is: length, attributes, timestamp delta, offset delta,
# key length, value length, header count; all of them fit one byte here, zigzag encoded.

GOOD = bytes([12, 0, 0, 0, 1, 1, 0])


def batch_with_body(body: bytes, records: int = 1, last_delta: int | None = None) -> bytes:
    batch = encode_batch([Record(0, 0, None, None)])[:HEADER_BYTES] + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, records - 1 if last_delta is None else last_delta)
    struct.pack_into(">i", batch, 57, records)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch)


def test_the_smallest_record_is_read() -> None:
    assert list(decode_records(batch_with_body(GOOD))) == [Record(0, 0, None, None)]


@pytest.mark.parametrize("size", range(len(GOOD)))
def test_a_record_cut_short_is_refused(size: int) -> None:
    with pytest.raises(InvalidBatch):
        list(decode_records(batch_with_body(GOOD[:size])))


@pytest.mark.parametrize("length", [1, 3, 10, 14, 13])
def test_a_record_that_lies_about_its_length_is_refused(length: int) -> None:
    body = bytes([length]) + GOOD[1:] + bytes(20)

    with pytest.raises(InvalidBatch):
        list(decode_records(batch_with_body(body)))


def test_a_negative_length_does_not_lead_back_to_the_same_record() -> None:
    # Thirteen is minus seven: the record after this one would be this one again.
    body = bytes([13]) + GOOD[1:]

    with pytest.raises(InvalidBatch):
        for _ in decode_records(batch_with_body(body, records=2**31 - 1)):
            pass


@pytest.mark.parametrize("delta", [2, 1, 126])
def test_a_record_outside_the_offsets_of_its_batch_is_refused(delta: int) -> None:
    body = GOOD[:3] + bytes([delta]) + GOOD[4:]

    with pytest.raises(InvalidBatch, match="offset"):
        list(decode_records(batch_with_body(body)))


def test_records_that_share_an_offset_are_refused() -> None:
    with pytest.raises(InvalidBatch, match="offset"):
        list(decode_records(batch_with_body(GOOD + GOOD, records=2)))


def test_a_number_without_end_is_refused_quickly() -> None:
    with pytest.raises(InvalidBatch, match="bits"):
        list(decode_records(batch_with_body(b"\x80" * 1_000_000)))


def test_a_header_name_that_is_not_text_is_refused() -> None:
    body = bytes([18, 0, 0, 0, 1, 1, 2, 2, 0xFF, 1])

    with pytest.raises(InvalidBatch):
        list(decode_records(batch_with_body(body)))


@given(body=st.binary(max_size=60), records=st.integers(1, 3))
def test_arbitrary_bodies_are_read_or_refused(body: bytes, records: int) -> None:
    batch = batch_with_body(body, records)
    values = decode_values(batch)
    try:
        found = list(decode_records(batch))
    except InvalidBatch:
        assert values is None
        return

    assert values in (None, found)
    assert [record.offset for record in found] == sorted({record.offset for record in found})


# Another implementation of the format must agree, byte for byte.


def kio_records(records: list[Record]) -> tuple[KioRecord, ...]:
    return tuple(
        KioRecord(
            attributes=i8(0),
            timestamp=TZAwareMicros.parse(
                dt.datetime.fromtimestamp(record.timestamp / 1000, dt.UTC)
            ),
            offset=i64(record.offset),
            key=record.key,
            value=record.value,
            headers=tuple(
                RecordHeader(key=name.encode(), value=value) for name, value in record.headers
            ),
        )
        for record in records
    )


@st.composite
def whole_second_records(draw: st.DrawFn) -> list[Record]:
    return [
        Record(
            record.offset, record.timestamp % 2**31 * 1000, record.key, record.value, record.headers
        )
        for record in draw(record_lists())
    ]


@given(records=whole_second_records(), producer=st.integers(-1, 2**40), epoch=st.integers(-1, 99))
def test_encoded_bytes_are_those_of_kio(records: list[Record], producer: int, epoch: int) -> None:
    buffer = io.BytesIO()
    write_batch(
        buffer,
        NewRecordBatch(
            producer_id=i64(producer),
            producer_epoch=i16(epoch),
            partition_leader_epoch=i32(-1),
            base_sequence=i32(12),
            records=kio_records(records),
            attributes=i16(0),
        ),
    )

    encoded = encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=12)

    assert bytes(encoded) == buffer.getvalue()
    assert list(decode_records(buffer.getvalue())) == records


@given(records=whole_second_records())
def test_kio_reads_what_is_encoded(records: list[Record]) -> None:
    batch, size = read_batch(bytes(encode_batch(records)), 0)

    assert size == len(encode_batch(records))
    assert batch.records == kio_records(records)
