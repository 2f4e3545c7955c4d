"""What the sink takes: its columns, their types, and an Arrow record batch of them as plain arrays.

What is wrong with the schema is told before anything is written, what is wrong with a row with the
row's number in its task and the column.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import InvalidRequest
from penstock.record import PRIORITY_MAX, TIME_MS_MAX
from penstock.spark.batches import Bytes, Ends, Integers
from penstock.spark.encoding import Rows

_BYTES = (BinaryType, StringType, NullType)
_NUMBERS = (ByteType, ShortType, IntegerType, LongType, NullType)
_TIMES = (TimestampType, TimestampNTZType, NullType)
_WANTED: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "key": (_BYTES, "binary or string"),
    "value": (_BYTES, "binary or string"),
    "headers": ((ArrayType, NullType), "array<struct<key: string, value: binary>>"),
    "topic": ((StringType, NullType), "string"),
    "partition": (_NUMBERS, "int"),
    "timestamp": (_TIMES, "timestamp"),
    "priority": (_NUMBERS, "int"),
    "deliver_at": (_TIMES, "timestamp"),
}
SINK_COLUMNS = tuple(_WANTED)
# As far as Spark's timestamps go, and the source with them.
_TIME_US_MAX = 2**63 - 1
_HEADERS = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))


def check_sink_schema(schema: StructType, topic: str | None) -> None:
    """Raise when rows of this schema cannot be written."""
    names = schema.fieldNames()
    unknown = [name for name in names if name not in _WANTED]
    if unknown:
        raise InvalidRequest(
            f"the rows have the column{'s' if len(unknown) > 1 else ''} {', '.join(unknown)};"
            f" the sink knows {', '.join(SINK_COLUMNS)}"
        )
    if "value" not in names:
        raise InvalidRequest(f"the rows have no column value, only {', '.join(names)}")
    if topic is None and "topic" not in names:
        raise InvalidRequest("neither the option topic nor a column topic says where rows go")
    for field in schema.fields:
        kinds, told = _WANTED[field.name]
        if not isinstance(field.dataType, kinds) or not _is_headers(field.name, field.dataType):
            raise InvalidRequest(
                f"column {field.name} is {field.dataType.simpleString()}, not {told}"
            )


def _is_headers(name: str, kind: DataType) -> bool:
    if name != "headers" or not isinstance(kind, ArrayType):
        return True
    element = kind.elementType
    return (
        isinstance(element, StructType)
        and element.fieldNames() == ["key", "value"]
        and isinstance(element["key"].dataType, StringType)
        and isinstance(element["value"].dataType, _BYTES)
    )


def rows_of(batch: pa.RecordBatch, *, first_row: int, now_ms: int) -> Rows:
    """Return the columns as arrays; what is not there is null, or now for timestamps.

    `first_row` is the number of the first row in its task, for what is told of a bad one.
    """
    columns = _Columns(batch, first_row)
    key_ends, keys, key_nulls = columns.binary("key")
    value_ends, values, value_nulls = columns.binary("value")
    # Down to the millisecond, as Spark's Kafka source does it.
    timestamps = columns.times_us("timestamp", _TIME_US_MAX) // 1000
    timestamps[timestamps < 0] = now_ms
    found = Rows(
        key_ends, keys, key_nulls,
        value_ends, values, value_nulls,
        *columns.headers(),
        timestamps,
        columns.numbers("priority", PRIORITY_MAX),
        _rounded_up(columns.times_us("deliver_at", 1000 * TIME_MS_MAX)),
    )  # fmt: skip
    # Arrow's memory is read-only, and the loops are compiled for each combination that they meet.
    for array in found:
        array.setflags(write=False)
    return found


def _rounded_up(times_us: Integers) -> Integers:
    """Return milliseconds, never before the time that is meant; -1 stays as it is."""
    return np.where(times_us < 0, np.int64(-1), -(-times_us // 1000))


def partitions_of(batch: pa.RecordBatch, first_row: int) -> Integers:
    """Return the partitions that rows ask for; -1 where they do not."""
    return _Columns(batch, first_row).numbers("partition", 2**31 - 1)


def topics_of(batch: pa.RecordBatch, first_row: int) -> tuple[list[str], Integers]:
    """Return the topics of a batch, and for each row the number of its topic there."""
    column = batch.column("topic")
    if column.null_count:
        row = first_row + _first(np.asarray(pc.is_null(column)))
        raise InvalidRequest(f"row {row}: column topic is null, and there is no option topic")
    encoded = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


class _Columns:
    """Takes the columns of one record batch apart."""

    def __init__(self, batch: pa.RecordBatch, first_row: int) -> None:
        self._batch = batch
        self._first_row = first_row
        self._size = batch.num_rows

    def binary(self, name: str) -> tuple[Ends, Bytes, Bytes]:
        """Return where the bytes of each row end, the bytes, and which rows are null."""
        column = self._column(name)
        if column is None:
            return np.zeros(self._size + 1, np.int32), np.empty(0, np.uint8), _ones(self._size)
        return _binary(column)

    def headers(self) -> tuple[Ends, Ends, Bytes, Ends, Bytes, Bytes]:
        """Return where the headers of each row end, and their names and contents."""
        column = self._column("headers")
        none = np.empty(0, np.uint8)
        no_ends = np.zeros(1, np.int32)
        if column is None:
            return np.zeros(self._size + 1, np.int32), no_ends, none, no_ends, none, none
        # Nulls may stand for bytes in between, which no offset names after this.
        column = pa.concat_arrays([column.cast(_HEADERS)])
        if column.null_count:
            column = pc.coalesce(column, pa.scalar([], _HEADERS))
        name_ends, names, name_nulls = _binary(pc.struct_field(column.values, 0))
        if name_nulls.any():
            raise InvalidRequest(f"rows from {self._first_row} on: a header has no name")
        content_ends, contents, content_nulls = _binary(pc.struct_field(column.values, 1))
        ends = column.offsets.to_numpy()
        return ends, name_ends, names, content_ends, contents, content_nulls

    def numbers(self, name: str, most: int) -> Integers:
        """Return whole numbers from 0 to `most`; -1 stands for null."""
        column = self._column(name)
        if column is None:
            return np.full(self._size, -1, np.int64)
        return self._checked(name, column.cast(pa.int64()), most)

    def times_us(self, name: str, most: int) -> Integers:
        """Return times in microseconds, from 1970 to `most`; -1 stands for null."""
        column = self._column(name)
        if column is None:
            return np.full(self._size, -1, np.int64)
        times_us = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        return self._checked(name, times_us, most)

    def _column(self, name: str) -> pa.Array | None:
        if name not in self._batch.schema.names:
            return None
        column = self._batch.column(name)
        return None if column.null_count == len(column) else column

    def _checked(self, name: str, column: pa.Array, most: int) -> Integers:
        nulls = np.asarray(pc.is_null(column))
        found: Integers = pc.fill_null(column, -1).to_numpy().copy()
        bad = ~nulls & ((found < 0) | (found > most))
        if bad.any():
            row = _first(bad)
            raise InvalidRequest(
                f"row {self._first_row + row}: column {name} is {column[row]}, not 0 to {most}"
            )
        return found


def _binary(column: pa.Array) -> tuple[Ends, Bytes, Bytes]:
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    _, ends, content = column.buffers()
    size = len(column)
    nulls = np.asarray(pc.is_null(column)).view(np.uint8) if column.null_count else _zeros(size)
    found = np.frombuffer(ends, np.int32)[column.offset : column.offset + size + 1]
    return found, np.frombuffer(content or b"", np.uint8), nulls


def _zeros(size: int) -> Bytes:
    return np.zeros(size, np.uint8)


def _ones(size: int) -> Bytes:
    return np.ones(size, np.uint8)


def _first(flags: NDArray[Any]) -> int:
    return int(np.argmax(flags))
