"""Reads records of one topic out of an archive, in the order of their offsets, without Spark.

Files are chosen by what the table says about them. A range is read window by window, so that memory
stays small whatever its size; records of one window may lie in several files, since these are split
by day, and are put in order here.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.errors import ArchiveUnavailable, Corruption, PenstockError
from penstock.ids import TopicPartition
from penstock.spark.archive_table import (
    FILE_SCHEMA,
    ArchivedTopicId,
    ArchiveFile,
    ArchiveTable,
    one_line,
)
from penstock.spark.ranges import RecordRange, place_of
from penstock.spark.schema import COLUMNS, arrow_schema

WINDOW_BYTES = 64 << 20
# Files are compressed; a window is meant to hold so many bytes in memory.
_EXPANSION = 4
# What retention has removed is nowhere else, so each page is compared with its checksum.
_CHECKED_PARQUET = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


class ArchiveReader:
    """One topic of an archive, as the table stands, or some of its files."""

    def __init__(
        self,
        table: ArchiveTable,
        topic: ArchivedTopicId,
        *,
        files: Sequence[ArchiveFile] | None = None,
    ) -> None:
        self._table = table
        self._topic = topic
        self._files = table.files(topic) if files is None else list(files)
        self._filesystem = table.location.filesystem()

    @property
    def partitions(self) -> list[int]:
        """The partitions that have records here."""
        last = max((each.partitions[1] for each in self._files), default=-1)
        return list(range(last + 1))

    def start(self, partition: int) -> int | None:
        """Return the first offset that is archived; None when no record is."""
        # A file that compaction made may hold several partitions, and then says little of each.
        found = self._files_of(partition)
        if not found:
            return None
        if found[0].partitions == (partition, partition):
            return found[0].offsets[0]
        return self._least_offset(found, partition, ds.field("offset") >= 0)

    def end(self, partition: int) -> int:
        """Return up to where the partition is archived."""
        return self._table.position(self._topic, partition) or 0

    def find_time(self, partition: int, time_ms: int) -> int | None:
        """Return the first archived offset at or after a time; None when there is none."""
        time_us = 1000 * time_ms
        found = [
            each
            for each in self._files_of(partition)
            if each.times_us is None or each.times_us[1] >= time_us
        ]
        wanted = pa.scalar(time_us, pa.timestamp("us", tz="UTC"))
        return self._least_offset(found, partition, ds.field("timestamp") >= wanted)

    def bytes_per_offset(self, records: RecordRange) -> float:
        """Return about how many bytes an offset takes, as archived."""
        files = self._overlapping(records)
        return sum(each.size_bytes for each in files) / max(1, sum(each.records for each in files))

    def read(
        self, records: RecordRange, *, columns: Sequence[str] = COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        """Yield the archived records of a range."""
        files = self._overlapping(records)
        at = records.start
        while files:
            at = max(at, min(each.offsets[0] for each in files))
            stop = min(at + self._window(files), records.end)
            yield from self._read_window(
                files, RecordRange(records.topic, records.partition, at, stop), columns
            )
            at = stop
            files = [each for each in files if each.offsets[1] >= at and at < records.end]

    def _files_of(self, partition: int) -> list[ArchiveFile]:
        return [
            each for each in self._files if each.partitions[0] <= partition <= each.partitions[1]
        ]

    def _overlapping(self, records: RecordRange) -> list[ArchiveFile]:
        return [
            each
            for each in self._files_of(records.partition)
            if each.offsets[0] < records.end and each.offsets[1] >= records.start
        ]

    def _window(self, files: Sequence[ArchiveFile]) -> int:
        size_bytes = sum(each.size_bytes for each in files) / sum(each.records for each in files)
        return max(1, int(WINDOW_BYTES / max(1.0, _EXPANSION * size_bytes)))

    def _read_window(
        self, files: Sequence[ArchiveFile], records: RecordRange, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        chosen = [
            each
            for each in files
            if each.offsets[0] < records.end and each.offsets[1] >= records.start
        ]
        is_wanted = (ds.field("offset") >= records.start) & (ds.field("offset") < records.end)
        stored = list(dict.fromkeys(["offset", *(each for each in columns if each != "topic")]))
        found = self._scan(chosen, records.partition, is_wanted, stored)
        offsets = found["offset"].combine_chunks()
        if len(offsets) > 1 and pc.any(pc.less_equal(offsets[1:], offsets[:-1])).as_py():
            found = found.sort_by("offset")
        for batch in found.combine_chunks().to_batches():
            yield _with_topic(batch, records.topic, columns)

    def _least_offset(
        self, files: Sequence[ArchiveFile], partition: int, wanted: ds.Expression
    ) -> int | None:
        """Return the smallest offset of a partition that fulfils a condition."""
        least: int | None = None
        for each in files:
            if least is not None and each.offsets[0] >= least:
                break
            found = pc.min(self._scan([each], partition, wanted, ["offset"])["offset"]).as_py()
            if found is not None:
                least = found if least is None else min(least, found)
        return least

    def _scan(
        self, files: Sequence[ArchiveFile], partition: int, wanted: ds.Expression, names: list[str]
    ) -> pa.Table:
        try:
            return self._load([each.path for each in files], partition, wanted, names)
        except (OSError, pa.ArrowException) as error:
            if len(files) == 1:
                raise self._unreadable(files[0], partition, error) from None
        # One by one, the file at fault is the one that is told.
        return pa.concat_tables(self._scan([each], partition, wanted, names) for each in files)

    def _load(
        self, paths: list[str], partition: int, wanted: ds.Expression, names: list[str]
    ) -> pa.Table:
        dataset = ds.dataset(
            paths, schema=FILE_SCHEMA, format=_CHECKED_PARQUET, filesystem=self._filesystem
        )
        is_own = ds.field("partition") == partition
        return dataset.to_table(columns=names, filter=is_own & wanted)

    def _unreadable(self, file: ArchiveFile, partition: int, error: Exception) -> PenstockError:
        where = place_of(TopicPartition(self._topic.name, partition), file.offsets[0])
        location = self._table.location
        told = f"{where}: the archive at {location.path}"
        if isinstance(error, FileNotFoundError):
            return Corruption(f"{told} lacks its file {file.path}")
        if location.local_path is None and isinstance(error, OSError):
            return ArchiveUnavailable(
                f"{told} does not give its file {file.path}: {one_line(error)}"
            )
        return Corruption(f"{told} cannot read its file {file.path}: {one_line(error)}")


def _with_topic(batch: pa.RecordBatch, topic: str, columns: Sequence[str]) -> pa.RecordBatch:
    arrays = [
        pa.repeat(pa.scalar(topic), batch.num_rows) if name == "topic" else batch.column(name)
        for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))
