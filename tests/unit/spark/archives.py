"""Archives that tests make without Spark or a cluster."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from penstock.spark.archive_files import ArchiveWriter
from penstock.spark.archive_table import (
    ArchivedTopicId,
    ArchiveFile,
    ArchiveLocation,
    ArchiveTable,
)
from penstock.spark.schema import COLUMNS_WITH_HEADERS, arrow_schema

ORDERS = ArchivedTopicId("orders", "0c1e")
NOON_MS = 1_763_294_400_000
DAY_MS = 86_400_000


def new_table(directory: Path) -> ArchiveTable:
    return ArchiveTable.create(ArchiveLocation(str(directory / "archive")))


def record_batch(
    offsets: Sequence[int], *, partition: int = 0, times_ms: Sequence[int] | None = None
) -> pa.RecordBatch:
    """Records whose contents follow from their offsets."""
    times_ms = times_ms or [NOON_MS + offset for offset in offsets]
    rows = [
        {
            "key": b"key %d" % (offset % 3) if offset % 2 else None,
            "value": b"value %d" % offset,
            "topic": "orders",
            "partition": partition,
            "offset": offset,
            "timestampType": 0,
            "headers": [{"key": "n", "value": b"%d" % offset}] if offset % 5 == 0 else None,
        }
        for offset in offsets
    ]
    times = pa.array([1000 * each for each in times_ms], pa.int64())
    schema = arrow_schema(COLUMNS_WITH_HEADERS)
    batch = pa.RecordBatch.from_pylist([{**row, "timestamp": None} for row in rows], schema=schema)
    return batch.set_column(
        schema.get_field_index("timestamp"), "timestamp", times.view(pa.timestamp("us", tz="UTC"))
    )


def write_files(table: ArchiveTable, *batches: pa.RecordBatch) -> list[ArchiveFile]:
    """Write files without committing them."""
    writer = ArchiveWriter(table.location, ORDERS, "test")
    files = [file for batch in batches for file in writer.write(batch)]
    return [*files, *writer.close()]
