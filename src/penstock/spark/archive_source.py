"""A stream whose executors archive: ranges in, files of the archive out, one row for each file.

Planning is that of the source. Instead of records, a task returns its *manifest*: what it wrote,
and which offsets that covers, so that the driver can commit a micro-batch without having seen a
record. A range without records has a row too, without a file.
"""

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.archive_table import (
    ArchivedTopicId,
    ArchiveFile,
    ArchiveLocation,
    ArchiveTable,
)
from penstock.spark.options import SourceOptions, parse_json_texts, parse_options
from penstock.spark.planning import Offsets, offsets_to_json
from penstock.spark.readers import PenstockStreamReader

TASK_MODULE = "penstock.spark.archive_task"
_MANIFEST = pa.schema(
    [
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("date", pa.string()),
        ("records", pa.int64()),
        ("offset_min", pa.int64()),
        ("offset_max", pa.int64()),
        ("time_min", pa.int64()),
        ("time_max", pa.int64()),
    ]
)
_SPARK_TYPES = {pa.int32(): "int", pa.int64(): "bigint", pa.string(): "string"}


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a task did with one range: a file that it wrote, or None when there was no record."""

    partition: int
    start: int
    end: int
    file: ArchiveFile | None


class ArchiveSource(DataSource):
    """`format("penstock_archive")`, for the archive job alone."""

    @classmethod
    def name(cls) -> str:
        """Return the word for `format`."""
        return "penstock_archive"

    def schema(self) -> str:
        """Return the columns of manifests."""
        return ", ".join(f"{each.name} {_SPARK_TYPES[each.type]}" for each in _MANIFEST)

    def streamReader(self, schema: StructType) -> "ArchiveStreamReader":  # noqa: N802
        """Return a reader that archives what it reads."""
        del schema
        # Spark's options do not care about upper and lower case.
        given = {name.lower(): value for name, value in dict(self.options).items()}
        location = ArchiveLocation(
            given.pop("path"), parse_json_texts("storage", given.pop("storage"))
        )
        topic = ArchivedTopicId(given["subscribe"], given.pop("topicid"))
        return ArchiveStreamReader(parse_options(given), location, topic)


class ArchiveStreamReader(PenstockStreamReader):
    """Reads on where the archive ends."""

    def __init__(
        self, options: SourceOptions, location: ArchiveLocation, topic: ArchivedTopicId
    ) -> None:
        super().__init__(options)
        self._location = location
        self._topic = topic

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where the archive ends; what was deleted before it was archived is left out."""
        table = ArchiveTable.open(self._location)
        partitions = self._catalog.partitions()
        earliest = self._catalog.earliest(partitions)
        start: Offsets = {
            place: max(table.position(self._topic, place.partition) or 0, earliest[place])
            for place in partitions
        }
        return offsets_to_json(start)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Archive one range and yield its manifest."""
        records = partition.value
        # Spark invents a partition without a value when there is nothing to read.
        if records is None:
            return
        # Spark plans in processes that never fetch: these do without the compiled loops.
        task = importlib.import_module(TASK_MODULE)
        files: list[ArchiveFile | None] = [
            *task.archive_range(self._options, records, self._location, self._topic)
        ]
        covered = (records.partition, records.start, records.end)
        yield encode_manifests(Manifest(*covered, each) for each in files or [None])


def encode_manifests(manifests: Iterable[Manifest]) -> pa.RecordBatch:
    """Return manifests as rows for Spark."""
    rows: list[dict[str, Any]] = []
    for each in manifests:
        row: dict[str, Any] = {"partition": each.partition, "start": each.start, "end": each.end}
        if each.file is not None:
            times_us = each.file.times_us or (None, None)
            row |= {
                "path": each.file.path,
                "size": each.file.size_bytes,
                "date": each.file.date,
                "records": each.file.records,
                "offset_min": each.file.offsets[0],
                "offset_max": each.file.offsets[1],
                "time_min": times_us[0],
                "time_max": times_us[1],
            }
        rows.append(row)
    return pa.RecordBatch.from_pylist(rows, schema=_MANIFEST)


def decode_manifest(row: Any) -> Manifest:
    """Return the manifest of a row that Spark collected."""
    file = None
    if row["path"] is not None:
        times_us = None if row["time_min"] is None else (row["time_min"], row["time_max"])
        file = ArchiveFile(
            path=row["path"],
            size_bytes=row["size"],
            date=row["date"],
            records=row["records"],
            partitions=(row["partition"], row["partition"]),
            offsets=(row["offset_min"], row["offset_max"]),
            times_us=times_us,
        )
    return Manifest(row["partition"], row["start"], row["end"], file)
