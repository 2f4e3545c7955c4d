"""Decoded records as Arrow record batches with the columns of Spark's Kafka source.

The arrays that the compiled loops fill become the buffers of the columns as they are. Columns that
hold one value throughout are made once per partition and cut to length.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.spark.batches import Bytes, Columns, Ends
from penstock.spark.schema import FIELDS, HEADER_TYPE, arrow_schema

_HEADER_BYTES_MIN = 2


class ColumnBuffers:
    """Room for the columns of at most `records` records whose bytes number `size_bytes`."""

    def __init__(self, wanted: Sequence[str], records: int, size_bytes: int) -> None:
        self._wanted = wanted
        self._arrays: dict[str, NDArray[Any]] = {}
        headers = size_bytes // _HEADER_BYTES_MIN if "headers" in wanted else 0
        self.columns = Columns(
            offsets=np.empty(records, np.int64),
            timestamps=np.empty(records, np.int64),
            timestamp_types=np.empty(records, np.int32),
            **self._bytes_room("key", records if "key" in wanted else 0, size_bytes),
            **self._bytes_room("value", records if "value" in wanted else 0, size_bytes),
            header_ends=self._ends("header_ends", records if headers else 0),
            header_nulls=np.empty(records if headers else 0, np.uint8),
            name_ends=self._ends("name_ends", headers),
            names=np.empty(size_bytes if headers else 0, np.uint8),
            content_ends=self._ends("content_ends", headers),
            content_nulls=np.empty(headers, np.uint8),
            contents=np.empty(size_bytes if headers else 0, np.uint8),
        )

    def record_batch(self, topic: str, partition: int, counts: tuple[int, int]) -> pa.RecordBatch:
        """Return the columns of the records that were decoded, without a copy."""
        records, headers = counts
        columns = self.columns
        made = {
            "key": lambda: self._bytes_column("key", records),
            "value": lambda: self._bytes_column("value", records),
            "topic": lambda: _constant_column(topic, pa.string(), _room(records))[:records],
            "partition": lambda: _constant_column(partition, pa.int32(), _room(records))[:records],
            "offset": lambda: _fixed(pa.int64(), columns.offsets, records),
            "timestamp": lambda: _fixed(FIELDS["timestamp"], columns.timestamps, records),
            "timestampType": lambda: _fixed(pa.int32(), columns.timestamp_types, records),
            "headers": lambda: self._headers_column(records, headers),
        }
        arrays = [made[name]() for name in self._wanted]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self._wanted))

    def _bytes_room(self, name: str, records: int, size_bytes: int) -> dict[str, Any]:
        return {
            f"{name}_ends": self._ends(f"{name}_ends", records),
            f"{name}_nulls": np.empty(records, np.uint8),
            f"{name}s": np.empty(size_bytes if records else 0, np.uint8),
        }

    def _ends(self, name: str, count: int) -> Ends:
        # Arrow wants a zero before the first end; the loops see what comes after it.
        self._arrays[name] = np.empty(count + 1, np.int32)
        self._arrays[name][0] = 0
        return self._arrays[name][1:]

    def _bytes_column(self, name: str, count: int) -> pa.Array:
        nulls: Bytes = getattr(self.columns, f"{name}_nulls")
        content: Bytes = getattr(self.columns, f"{name}s")
        return _binary(pa.binary(), self._arrays[f"{name}_ends"], content, nulls[:count])

    def _headers_column(self, records: int, headers: int) -> pa.Array:
        columns = self.columns
        names = _binary(
            pa.string(), self._arrays["name_ends"], columns.names, np.zeros(headers, np.uint8)
        )
        contents = _binary(
            pa.binary(), self._arrays["content_ends"], columns.contents,
            columns.content_nulls[:headers],
        )  # fmt: skip
        return pa.Array.from_buffers(
            FIELDS["headers"],
            records,
            [_validity(columns.header_nulls[:records]), pa.py_buffer(self._arrays["header_ends"])],
            children=[pa.StructArray.from_arrays([names, contents], fields=list(HEADER_TYPE))],
        )


def _fixed(kind: pa.DataType, array: NDArray[Any], count: int) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(array)])


def _binary(kind: pa.DataType, ends: Ends, content: Bytes, nulls: Bytes) -> pa.Array:
    buffers = [_validity(nulls), pa.py_buffer(ends), pa.py_buffer(content)]
    return pa.Array.from_buffers(kind, len(nulls), buffers)


def _validity(nulls: Bytes) -> pa.Buffer | None:
    if not nulls.any():
        return None
    return pa.py_buffer(np.packbits(nulls == 0, bitorder="little"))


def _room(records: int) -> int:
    """Round up to a power of two, so that few constant columns are made."""
    return 1 << max(records - 1, 0).bit_length()


@lru_cache(maxsize=64)
def _constant_column(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)
