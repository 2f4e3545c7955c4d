"""Fetch answers become the record batches that the plain decoder would show."""

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

from penstock.errors import (
    BadChecksum,
    Corruption,
    InvalidBatch,
    UnsupportedBatchFormat,
    UnsupportedCompression,
)
from penstock.ids import TopicPartition
from penstock.record import Codec, Record, batch_without_records, encode_batch, stamp_append_time
from penstock.spark.decoding import FetchedBatches
from penstock.spark.schema import COLUMNS_WITH_HEADERS
from penstock.spark.wire import FetchAnswer

ORDERS = TopicPartition("orders", 3)
EVERYTHING = (0, 1 << 62)


def fetched(
    *batches: bytes | bytearray, aborted: tuple[tuple[int, int], ...] = ()
) -> FetchedBatches:
    data = np.frombuffer(b"".join(map(bytes, batches)), np.uint8).copy()
    return FetchedBatches(ORDERS, 0, FetchAnswer(0, 100, 0, data.data, aborted))


def rows(
    batches: FetchedBatches,
    bounds: tuple[int, int] = EVERYTHING,
    columns: Sequence[str] = COLUMNS_WITH_HEADERS,
) -> list[dict[str, object]]:
    tables = list(batches.record_batches(bounds, columns))
    for table in tables:
        table.validate(full=True)
    return [row for table in tables for row in table.to_pylist()]


def random_records(seed: int, start: int, count: int) -> list[Record]:
    chance = random.Random(seed)

    def content() -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.choice((0, 1, 9, 300)))

    return [
        Record(
            start + index,
            1_700_000_000_000 + chance.randrange(-500, 500),
            content(),
            content(),
            tuple((f"h{each}", content()) for each in range(chance.choice((0, 0, 1, 3)))),
        )
        for index in range(count)
    ]


def as_row(record: Record) -> tuple[object, ...]:
    headers = [{"key": name, "value": content} for name, content in record.headers]
    return record.offset, record.key, record.value, record.timestamp, headers or None


def shown(row: dict[str, object]) -> tuple[object, ...]:
    assert (row["topic"], row["partition"], row["timestampType"]) == ("orders", 3, 0)
    timestamp_ms = round(row["timestamp"].timestamp() * 1000)  # type: ignore[attr-defined]
    return row["offset"], row["key"], row["value"], timestamp_ms, row["headers"]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("seed", range(5))
def test_records_of_every_codec_come_out_as_they_went_in(codec: Codec, seed: int) -> None:
    records = [random_records(seed, start, 37) for start in (0, 37, 74)]
    batches = [encode_batch(each, codec=codec) for each in records]

    found = [shown(row) for row in rows(fetched(*batches))]

    assert found == [as_row(record) for each in records for record in each]


def test_codecs_may_change_from_batch_to_batch() -> None:
    codecs = [Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.NONE, Codec.LZ4, Codec.GZIP]
    records = [random_records(index, 10 * index, 10) for index in range(len(codecs))]
    batches = [encode_batch(each, codec=codec) for each, codec in zip(records, codecs, strict=True)]

    found = [row["offset"] for row in rows(fetched(*batches))]

    assert found == list(range(60))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_bounds_cut_inside_of_a_batch(codec: Codec) -> None:
    batches = [encode_batch(random_records(1, start, 10), codec=codec) for start in (0, 10, 20)]

    found = [row["offset"] for row in rows(fetched(*batches), (7, 22))]

    assert found == list(range(7, 22))


def test_only_the_columns_that_are_wanted_are_made() -> None:
    batch = encode_batch(random_records(1, 0, 5))

    (table,) = fetched(batch).record_batches(EVERYTHING, ["offset", "topic"])

    assert table.schema == pa.schema([("offset", pa.int64()), ("topic", pa.string())])


def test_append_time_stands_for_the_time_of_each_record() -> None:
    batch = encode_batch(random_records(1, 0, 5))
    stamp_append_time(memoryview(batch), 1_234)

    found = {(row["timestampType"], row["timestamp"].timestamp()) for row in rows(fetched(batch))}  # type: ignore[attr-defined]

    assert found == {(1, 1.234)}


@pytest.mark.parametrize(
    ("time_ms", "time_us"),
    [
        (9_223_372_036_854_775, 9_223_372_036_854_775_000),
        # A producer that dates its records in nanoseconds.
        (1_700_000_000_000_000_000, 9_223_372_036_854_775_000),
        (2**63 - 1, 9_223_372_036_854_775_000),
        (-1, -1_000),
    ],
)
def test_a_time_that_microseconds_cannot_hold_becomes_the_last_one(
    time_ms: int, time_us: int
) -> None:
    batch = encode_batch([Record(0, time_ms, None, b"v", ())])

    (table,) = fetched(batch).record_batches(EVERYTHING, ["timestamp"])

    assert table["timestamp"].cast(pa.int64()).to_pylist() == [time_us]


def test_batches_without_records_only_move_the_place() -> None:
    answer = fetched(encode_batch(random_records(1, 0, 2)), batch_without_records(2, 8, 0))

    assert [row["offset"] for row in rows(answer)] == [0, 1]
    assert answer.next_offset == 10


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    first, second = (encode_batch(random_records(1, start, 10)) for start in (0, 10))

    answer = fetched(first, second[:-1])

    assert answer.next_offset == 10
    assert len(rows(answer)) == 10


def test_aborted_transactions_and_their_markers_are_not_shown() -> None:
    kept = encode_batch(random_records(1, 0, 2), producer_id=7, producer_epoch=0)
    aborted = encode_batch(random_records(2, 2, 2), producer_id=8, producer_epoch=0)
    marker = encode_batch(random_records(3, 4, 1), producer_id=8, producer_epoch=0)
    later = encode_batch(random_records(4, 5, 2), producer_id=8, producer_epoch=0)
    batches = [
        with_attributes(kept, 0x10),
        with_attributes(aborted, 0x10),
        with_attributes(marker, 0x30),
        with_attributes(later, 0x10),
    ]

    found = [row["offset"] for row in rows(fetched(*batches, aborted=((8, 2),)))]

    assert found == [0, 1, 5, 6]


def with_attributes(batch: bytearray, attributes: int) -> bytearray:
    batch[21:23] = attributes.to_bytes(2, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


def with_records(batch: bytearray, count: int) -> bytearray:
    batch[57:61] = count.to_bytes(4, "big")
    return with_attributes(batch, int.from_bytes(batch[21:23], "big"))


def test_a_flipped_byte_is_told_with_topic_partition_and_offset() -> None:
    first, second = (encode_batch(random_records(1, start, 10)) for start in (0, 10))
    second[-3] ^= 0x40

    with pytest.raises(BadChecksum, match="topic orders partition 3 offset 10: a batch carries"):
        rows(fetched(first, second))


def test_an_unknown_codec_is_told_with_its_place() -> None:
    batch = with_attributes(encode_batch(random_records(1, 5, 3)), 0x06)

    with pytest.raises(UnsupportedCompression, match="partition 3 offset 5: compression code 6"):
        rows(fetched(batch))


def test_compressed_bytes_that_cannot_be_read_are_told_with_their_place() -> None:
    batch = with_attributes(encode_batch(random_records(1, 5, 3)), Codec.ZSTD)

    with pytest.raises(InvalidBatch, match="partition 3 offset 5: zstd data cannot be read"):
        rows(fetched(batch))


def test_an_older_format_and_an_impossible_length_are_told() -> None:
    batch = encode_batch(random_records(1, 5, 3))
    older, negative = bytearray(batch), bytearray(batch)
    older[16] = 1
    negative[8:12] = b"\xff\xff\xff\x00"

    with pytest.raises(UnsupportedBatchFormat, match="offset 5: a batch is not of record format 2"):
        fetched(older)
    with pytest.raises(Corruption, match="offset 5: a batch says that it has -244 bytes"):
        fetched(negative)


@pytest.mark.parametrize("count", [4, 1 << 30])
def test_more_records_than_fit_are_refused_before_memory_is_taken(count: int) -> None:
    batch = with_records(encode_batch([Record(0, 0, None, b"", ())]), count)

    with pytest.raises(InvalidBatch, match="offset 0: a batch is broken"):
        rows(fetched(batch))


@pytest.mark.parametrize("seed", range(300))
def test_damage_that_the_checksum_covers_up_never_reads_outside_of_the_batch(seed: int) -> None:
    """Whoever writes a batch can give it a checksum that fits, whatever is inside."""
    chance = random.Random(seed)
    batch = encode_batch(random_records(seed, 0, 20))
    for _ in range(chance.randrange(1, 5)):
        batch[chance.randrange(61, len(batch))] = chance.randrange(256)
    sealed = with_attributes(batch, 0)

    try:
        tables = list(fetched(sealed).record_batches(EVERYTHING, COLUMNS_WITH_HEADERS))
    except InvalidBatch:
        return
    assert sum(table.num_rows for table in tables) <= 20
    assert sum(table.nbytes for table in tables) < 20 * 100 + 2 * len(sealed)
