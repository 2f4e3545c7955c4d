"""Writes the files of an archive, as executors do.

Record batches become Parquet as they are decoded; a file holds one day and about `FILE_BYTES`.
Names are unique for each attempt, so that attempts never meet. A file is durable when it is told
of.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.spark.archive_table import (
    FILE_SCHEMA,
    ArchivedTopicId,
    ArchiveFile,
    ArchiveLocation,
)

FILE_BYTES = 256 << 20
# A file is open for each day; records whose days lie scattered close the one used least.
FILES_OPEN_MAX = 16
COMPRESSION = "zstd"
COMPRESSION_LEVEL = 1
_DAY_US = 86_400_000_000
# From the year 1 up to the year 9999: other days cannot be written as text.
_DAY_MIN, _DAY_MAX = -719_162, 2_932_896


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written, and what it holds so far."""

    path: str
    writer: pq.ParquetWriter
    sink: pa.NativeFile
    day: int | None
    records: int = 0
    size_bytes: int = 0
    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    times_us: list[int] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch) -> None:
        self.writer.write_batch(batch)
        self.records += batch.num_rows
        self.size_bytes += batch.nbytes
        for name, bounds in (
            ("partition", self.partitions),
            ("offset", self.offsets),
            ("timestamp", self.times_us),
        ):
            bounds += _least_and_most(batch[name])

    def close(self) -> ArchiveFile:
        self.writer.close()
        size_bytes = self.sink.tell()
        self.sink.close()
        return ArchiveFile(
            path=self.path,
            size_bytes=size_bytes,
            date=None if self.day is None else _date(self.day),
            records=self.records,
            partitions=(min(self.partitions), max(self.partitions)),
            offsets=(min(self.offsets), max(self.offsets)),
            times_us=None if self.day is None else (min(self.times_us), max(self.times_us)),
        )


class ArchiveWriter:
    """Writes record batches of one topic; `name` begins the names of its files."""

    def __init__(self, location: ArchiveLocation, topic: ArchivedTopicId, name: str) -> None:
        self._location = location
        self._topic = topic
        self._name = name
        self._filesystem = location.filesystem()
        self._open: dict[int | None, _OpenFile] = {}

    def write(self, batch: pa.RecordBatch) -> Iterator[ArchiveFile]:
        """Write records, which have all columns of the source; yield the files that are full."""
        for day, part in _by_day(self._in_table(batch)):
            file = self._open.pop(day, None) or self._create(day)
            # The one that was used last is the last to be closed.
            self._open[day] = file
            file.write(part)
            if file.size_bytes >= FILE_BYTES:
                yield self._finish(day)
            elif len(self._open) > FILES_OPEN_MAX:
                yield self._finish(next(iter(self._open)))

    def close(self) -> Iterator[ArchiveFile]:
        """Close and yield the files that are left."""
        for day in list(self._open):
            yield self._finish(day)

    def _in_table(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        topic_id = pa.repeat(pa.scalar(self._topic.topic_id), batch.num_rows)
        columns = [
            topic_id if each == "topicId" else batch.column(each) for each in FILE_SCHEMA.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=FILE_SCHEMA)

    def _create(self, day: int | None) -> _OpenFile:
        date = "__HIVE_DEFAULT_PARTITION__" if day is None else _date(day)
        directory = f"topic={self._topic.name}/date={date}"
        path = f"{directory}/{self._name}-{uuid.uuid4()}.parquet"
        self._filesystem.create_dir(directory, recursive=True)
        sink = self._filesystem.open_output_stream(path, compression=None)
        writer = pq.ParquetWriter(
            sink,
            FILE_SCHEMA,
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=["topicId", "partition", "timestampType"],
            column_encoding=dict.fromkeys(("offset", "timestamp"), "DELTA_BINARY_PACKED"),
            write_statistics=["partition", "offset", "timestamp", "topicId"],
            write_page_checksum=True,
            store_schema=True,
        )
        return _OpenFile(path, writer, sink, day)

    def _finish(self, day: int | None) -> ArchiveFile:
        file = self._open.pop(day).close()
        self._location.sync(file.path)
        return file


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Split records by their day; those of one day, which is most of them, stay as they are."""
    days = np.floor_divide(_microseconds(batch), _DAY_US)
    if not len(days):
        return
    first = int(days[0])
    if (days == first).all():
        yield _told(first), batch
        return
    for day in np.unique(days).tolist():
        yield _told(day), batch.filter(pa.array(days == day))


def _microseconds(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    column = batch["timestamp"].cast(pa.int64())
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = column.to_numpy(zero_copy_only=False)
    return found


def _told(day: int) -> int | None:
    return day if _DAY_MIN <= day <= _DAY_MAX else None


def _date(day: int) -> str:
    return str(np.datetime64(day, "D"))


def _least_and_most(column: pa.Array) -> list[int]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    bounds = pc.min_max(column)
    return [bounds["min"].as_py(), bounds["max"].as_py()]
