"""The columns of Spark's Kafka source: their names, and their types for Arrow and for Spark."""

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import InvalidRequest

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
FIELDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),
}
COLUMNS = tuple(name for name in FIELDS if name != "headers")
COLUMNS_WITH_HEADERS = tuple(FIELDS)
_SPARK_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}


def check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns; raise when one is unknown or named twice, or when there is none."""
    unknown = [name for name in columns if name not in FIELDS]
    if unknown or not columns or len(set(columns)) < len(columns):
        raise InvalidRequest(
            f"columns is {','.join(columns)!r}; each of {', '.join(FIELDS)} may be named once"
        )
    return tuple(columns)


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """Return the schema of record batches with these columns."""
    return pa.schema([(name, FIELDS[name]) for name in check_columns(columns)])


def spark_schema(columns: Sequence[str]) -> str:
    """Return the same schema in Spark's words."""
    return ", ".join(f"{name} {_SPARK_TYPES[name]}" for name in columns)
