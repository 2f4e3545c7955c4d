"""Rows become record batches that every Kafka client reads, in the partitions that it expects."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BatchTooLarge, InvalidRequest, TopicNotFound
from penstock.ids import TopicPartition
from penstock.record import Codec, Record, decode_records, partition_of_key, split_batches
from penstock.spark.building import BatchBuilder, BuiltBatch, TopicShape
from penstock.spark.encoding import SPARE_RUN

NOW_MS = 1_800_000_000_000
PARTITIONS = 4
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("topic", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("priority", pa.int32()),
        ("deliver_at", pa.timestamp("us", "UTC")),
    ]
)
bytes_or_null = st.none() | st.binary(max_size=300)
times_us = st.none() | st.integers(0, 4_000_000_000_000_000)
any_times_us = times_us | st.integers(0, 2**63 - 1)
rows = st.fixed_dictionaries(
    {
        "key": bytes_or_null,
        "value": bytes_or_null,
        "headers": st.none()
        | st.lists(st.fixed_dictionaries({"key": st.text(max_size=9), "value": bytes_or_null})),
        "topic": st.sampled_from(["a", "b", "ü"]),
        "timestamp": any_times_us,
        "priority": st.none() | st.integers(0, 9),
        "deliver_at": times_us,
    }
)


def new_builder(
    *, bytes_max: int = 1 << 20, record_bytes_max: int = 1 << 20, codec: Codec = Codec.NONE,
    task: int = 0, topic: str | None = None,
) -> BatchBuilder:  # fmt: skip
    shape = TopicShape(PARTITIONS, record_bytes_max)
    return BatchBuilder(lambda _: shape, task=task, topic=topic, codec=codec, bytes_max=bytes_max)


def build(builder: BatchBuilder, *batches: pa.RecordBatch) -> list[BuiltBatch]:
    built = [each for batch in batches for each in builder.add(batch, NOW_MS)]
    return [*built, *builder.finish()]


def expected_record(row: dict[str, Any]) -> tuple[object, ...]:
    headers = [(each["key"], each["value"]) for each in row["headers"] or []]
    if row["priority"] is not None:
        headers.append(("penstock-priority", b"%d" % row["priority"]))
    if row["deliver_at"] is not None:
        headers.append(("penstock-deliver-at", b"%d" % -(-row["deliver_at"] // 1000)))
    timestamp = NOW_MS if row["timestamp"] is None else row["timestamp"] // 1000
    return timestamp, row["key"], row["value"], tuple(headers)


def shown(record: Record) -> tuple[object, ...]:
    return record.timestamp, record.key, record.value, record.headers


@settings(max_examples=60, deadline=None)
@given(st.lists(rows, max_size=60), st.sampled_from(Codec), st.integers(0, 60), st.integers(0, 9))
def test_every_row_is_a_record_of_its_partition_in_order(
    given_rows: list[dict[str, Any]], codec: Codec, cut: int, task: int
) -> None:
    batch = pa.RecordBatch.from_pylist(given_rows, schema=SCHEMA)
    builder = new_builder(bytes_max=2_000, codec=codec, task=task)

    found: dict[TopicPartition, list[tuple[object, ...]]] = {}
    for built in build(builder, batch.slice(0, cut), batch.slice(cut)):
        header = split_batches(built.data)[0].header
        assert header.records == built.records
        records = list(decode_records(built.data))
        assert header.max_timestamp == max(record.timestamp for record in records)
        found.setdefault(built.place, []).extend(map(shown, records))

    expected: dict[TopicPartition, list[tuple[object, ...]]] = {}
    for row in given_rows:
        key = row["key"]
        partition = task % PARTITIONS
        if isinstance(key, bytes):
            partition = partition_of_key(key, PARTITIONS)
        place = TopicPartition(str(row["topic"]), partition)
        expected.setdefault(place, []).append(expected_record(row))
    assert found == expected


def test_rows_without_a_key_take_turns_by_their_number_alone() -> None:
    batch = pa.record_batch({"value": pa.array([b"v"] * 3 * SPARE_RUN)})

    whole = build(new_builder(topic="t", task=1), batch)
    halves = build(new_builder(topic="t", task=1), batch.slice(0, 77), batch.slice(77))

    counts = {built.place.partition: built.records for built in whole}
    assert counts == {1: SPARE_RUN, 2: SPARE_RUN, 3: SPARE_RUN}
    assert {built.place.partition: built.records for built in halves} == counts


def test_batches_stay_within_their_limit_except_for_a_record_that_is_larger() -> None:
    sizes = [100] * 50 + [3_000] + [100] * 50
    batch = pa.record_batch({"value": pa.array([b"v" * size for size in sizes])})

    built = build(new_builder(topic="t", bytes_max=1_000, record_bytes_max=4_000), batch)

    assert sum(each.records for each in built) == len(sizes)
    large = [each for each in built if len(each.data) > 1_000]
    assert [len(each.data) <= 4_000 for each in large] == [True]


@pytest.mark.parametrize("value_bytes", [919, 920])
def test_a_record_fits_up_to_the_last_byte(value_bytes: int) -> None:
    batch = pa.record_batch({"value": pa.array([b"v" * value_bytes])})
    builder = new_builder(topic="t", record_bytes_max=61 + 928)

    if value_bytes == 919:
        (built,) = build(builder, batch)
        assert len(built.data) == 61 + 928
    else:
        with pytest.raises(BatchTooLarge, match=r"row 0: .* topic t .* max.message.bytes, 989"):
            build(builder, batch)


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("priority", pa.array([3, 10], pa.int32()), "row 1: column priority is 10, not 0 to 9"),
        ("timestamp", pa.array([1, -1], pa.timestamp("us")), "row 1: column timestamp is -1"),
        (
            "deliver_at",
            pa.array([1, 253_402_300_800_000_000], pa.timestamp("us")),
            "row 1: column deliver_at is 253402300800000000, not 0 to 253402300799999000",
        ),
        ("partition", pa.array([1, 4], pa.int32()), "row 1: partition is 4, topic t has 4"),
        ("partition", pa.array([1, -1], pa.int32()), "row 1: column partition is -1"),
    ],
)
def test_a_row_that_cannot_be_written_is_named(column: str, values: pa.Array, told: str) -> None:
    batch = pa.record_batch({"value": pa.array([b"v", b"w"]), column: values})

    with pytest.raises((InvalidRequest, TopicNotFound), match=told):
        build(new_builder(topic="t"), batch)
