import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadChecksum, InvalidBatch, InvalidRequest, UnsupportedBatchFormat
from penstock.record import (
    HEADER_BYTES,
    Record,
    batch_size,
    decode_records,
    encode_batch,
    read_header,
    split_batches,
    stamp,
    stamp_append_time,
    verify_checksum,
)

ONE = Record(0, 1_000, b"key", b"value")
TWO = Record(1, 1_005, None, b"other")


def test_header_fields_stand_at_their_places() -> None:
    batch = encode_batch([ONE, TWO], producer_id=7, producer_epoch=3, base_sequence=11)

    header = read_header(batch)

    assert header.size_bytes == len(batch) == batch_size(batch)
    assert (header.base_offset, header.next_offset, header.offsets) == (0, 2, 2)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 11)
    assert (header.records, header.magic, header.codec) == (2, 2, 0)
    assert header.has_producer
    assert not (header.is_control)
    assert not (header.is_transactional)
    assert not (header.has_append_time)


def test_attribute_bits_are_told_apart() -> None:
    batch = encode_batch([ONE])
    for attributes, names in (
        (0x08, {"has_append_time"}),
        (0x10, {"is_transactional"}),
        (0x20, {"is_control"}),
        (0x04, set()),
    ):
        struct.pack_into(">h", batch, 21, attributes)
        header = read_header(batch)
        flags = ("has_append_time", "is_transactional", "is_control")
        assert {name for name in flags if getattr(header, name)} == names
        assert header.codec == attributes & 7


def test_sequence_numbers_wrap() -> None:
    header = read_header(encode_batch([ONE, TWO], producer_id=1, base_sequence=0x7FFFFFFF))

    assert header.last_sequence == 0


def test_batch_without_producer_says_so() -> None:
    assert not read_header(encode_batch([ONE])).has_producer


def test_size_is_zero_when_the_length_cannot_be_true() -> None:
    batch = encode_batch([ONE])
    struct.pack_into(">i", batch, 8, HEADER_BYTES - 12 - 1)

    assert batch_size(batch) == 0


def test_several_batches_are_cut_apart_without_copies() -> None:
    first, second = encode_batch([ONE]), encode_batch([ONE, TWO])
    buffer = first + second

    batches = split_batches(buffer)
    stamp(batches[1].data, 42, 5)

    assert [batch.header.records for batch in batches] == [1, 2]
    assert read_header(buffer, len(first)).base_offset == 42


def test_stamp_does_not_change_the_checksum() -> None:
    (batch,) = split_batches(encode_batch([ONE, TWO]))

    stamp(batch.data, 2**62, 2**31 - 1)

    verify_checksum(batch.data)
    header = read_header(batch.data)
    assert (header.base_offset, header.leader_epoch) == (2**62, 2**31 - 1)
    assert [record.offset for record in decode_records(batch.data)] == [2**62, 2**62 + 1]


def test_append_time_becomes_the_time_of_every_record() -> None:
    (batch,) = split_batches(encode_batch([ONE, TWO]))

    stamp_append_time(batch.data, 9_999)

    verify_checksum(batch.data)
    assert read_header(batch.data).max_timestamp == 9_999
    assert read_header(batch.data).has_append_time
    assert [record.timestamp for record in decode_records(batch.data)] == [9_999, 9_999]


@pytest.mark.parametrize("position", range(21, HEADER_BYTES + 4))
def test_a_flipped_bit_under_the_checksum_is_refused(position: int) -> None:
    batch = encode_batch([ONE])
    batch[position] ^= 0x10

    with pytest.raises((BadChecksum, InvalidBatch)):
        split_batches(batch)


@pytest.mark.parametrize("size", range(len(encode_batch([ONE]))))
def test_a_batch_cut_short_is_refused(size: int) -> None:
    with pytest.raises(InvalidRequest):
        split_batches(encode_batch([ONE])[:size])


def test_an_older_format_is_refused_by_name() -> None:
    batch = encode_batch([ONE])
    batch[16] = 1

    with pytest.raises(UnsupportedBatchFormat, match="record format 1"):
        split_batches(batch)


@pytest.mark.parametrize(("records", "last_delta"), [(0, -1), (-1, -2), (2, 0), (1, 1)])
def test_counts_that_contradict_each_other_are_refused(records: int, last_delta: int) -> None:
    batch = encode_batch([ONE])
    struct.pack_into(">i", batch, 23, last_delta)
    struct.pack_into(">i", batch, 57, records)
    with_checksum(batch)

    with pytest.raises(InvalidBatch, match=f"{records} records"):
        split_batches(batch)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused_in_one_way(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        split_batches(bytearray(data))


@given(
    header=st.binary(min_size=40, max_size=40),
    body=st.binary(max_size=200),
    records=st.integers(1, 4),
    codec=st.integers(0, 7),
)
def test_a_right_checksum_does_not_make_arbitrary_records_dangerous(
    header: bytes, body: bytes, records: int, codec: int
) -> None:
    batch = bytearray(21) + header + body
    struct.pack_into(">qii", batch, 0, 0, len(batch) - 12, 0)
    batch[16] = 2
    struct.pack_into(">hi", batch, 21, codec, records - 1)
    struct.pack_into(">i", batch, 57, records)
    with_checksum(batch)

    (found,) = split_batches(batch)
    try:
        decoded = list(decode_records(found.data))
    except InvalidRequest:
        return

    assert len(decoded) == records


def with_checksum(batch: bytearray) -> None:
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
