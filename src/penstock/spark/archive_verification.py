"""Compares an archive with the log, record by record, where both hold the same offsets.

Both are read once, in the order of offsets and in bounded memory. Records that only the log holds,
or that differ in key, value, headers or time, are faults of the archive. What only the archive
holds was removed from the log by compaction, or is a fault where nothing is compacted. Of the
archive alone, offsets must be strictly increasing.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client import ArchiveState
from penstock.spark.archive_reading import ArchiveReader
from penstock.spark.archive_table import ArchivedTopicId, ArchiveLocation, ArchiveTable
from penstock.spark.fetching import RangeReader
from penstock.spark.ranges import FetchSettings, RecordRange
from penstock.spark.schema import COLUMNS_WITH_HEADERS, arrow_schema

_COMPARED = tuple(name for name in COLUMNS_WITH_HEADERS if name not in ("topic", "partition"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found in one partition; `checksum` is over all that the archive holds."""

    partition: int
    records: int = 0
    missing_offsets: int = 0
    repeated: int = 0
    compared: int = 0
    only_in_log: int = 0
    only_in_archive: int = 0
    different: int = 0
    checksum: str = ""

    def is_sound(self, *, compacts: bool) -> bool:
        """Return whether the archive is what it must be."""
        extra = 0 if compacts else self.only_in_archive
        return not (self.repeated or self.only_in_log or self.different or extra)


def verify_archive(
    bootstrap: str,
    state: ArchiveState,
    storage: Mapping[str, str],
    *,
    show: Callable[[str], None] = lambda _text: None,
) -> list[Verdict]:
    """Check the archive of a topic, one partition after the other."""
    location = ArchiveLocation(state.path, storage)
    topic = ArchivedTopicId(state.topic, state.topic_id)
    archive = ArchiveReader(ArchiveTable.open(location), topic)
    settings = FetchSettings(is_committed_only=True)
    verdicts = []
    for each in state.partitions:
        show(f"partition {each.partition}: {archive.end(each.partition)} offsets")
        records = RecordRange(state.topic, each.partition, each.start, each.end)
        verdicts.append(verify_partition(bootstrap, archive, records, settings))
    return verdicts


def verify_partition(
    bootstrap: str, archive: ArchiveReader, records: RecordRange, settings: FetchSettings
) -> Verdict:
    """Check the archive of one partition; `records` is what the log holds."""
    verdict = _verify_alone(archive, records)
    shared = replace(records, end=min(records.end, archive.end(records.partition)))
    # What retention takes before it is read here, the archive alone answers for from then on.
    reader = RangeReader(bootstrap, shared, replace(settings, fails_on_data_loss=False))
    try:
        while (at := reader.offset) < shared.end:
            fetched = reader.fetch()
            if fetched is not None:
                logged = fetched.record_batches((at, shared.end), _COMPARED)
                covered = replace(shared, start=at, end=min(reader.offset, shared.end))
                verdict = _verify_beside(verdict, archive, covered, logged)
    finally:
        reader.close()
    return verdict


def _verify_beside(
    verdict: Verdict,
    archive: ArchiveReader,
    records: RecordRange,
    logged: Iterable[pa.RecordBatch],
) -> Verdict:
    """Compare a range with what the log holds of it."""
    at = records.start
    for batch in logged:
        stop = int(batch["offset"][-1].as_py()) + 1
        verdict = _compare(verdict, _archived(archive, replace(records, start=at, end=stop)), batch)
        at = stop
    left = _archived(archive, replace(records, start=at))
    return replace(verdict, only_in_archive=verdict.only_in_archive + left.num_rows)


def _verify_alone(archive: ArchiveReader, records: RecordRange) -> Verdict:
    checksum = Checksum()
    count, repeated, last, first = 0, 0, -1, -1
    everything = replace(records, start=0, end=archive.end(records.partition))
    for batch in archive.read(everything, columns=_COMPARED):
        offsets = batch["offset"].to_numpy()
        first = int(offsets[0]) if first < 0 else first
        repeated += int((np.diff(offsets) <= 0).sum()) + int(offsets[0] <= last)
        last = int(offsets[-1])
        count += len(offsets)
        checksum.update(batch)
    span = last + 1 - first if count else 0
    return Verdict(
        partition=records.partition,
        records=count,
        missing_offsets=max(0, span - count),
        repeated=repeated,
        checksum=checksum.text(),
    )


class Checksum:
    """A checksum of records that does not depend on how they are cut into batches.

    Each column has digests of its own: of contents back to back, and of their lengths.
    """

    def __init__(self) -> None:
        self._digests = {
            (name, part): hashlib.blake2b(digest_size=16)
            for name in _COMPARED
            for part in ("contents", "lengths")
        }

    def update(self, batch: pa.RecordBatch) -> None:
        """Go on with more records."""
        for name in _COMPARED:
            column = batch[name]
            if name == "headers":
                if column.null_count < len(column):
                    rows = zip(batch["offset"].to_pylist(), column.to_pylist(), strict=True)
                    told = "".join(f"{row}" for row in rows if row[1] is not None)
                    self._digests[name, "contents"].update(told.encode())
            elif pa.types.is_binary(column.type):
                lengths = pc.fill_null(pc.binary_length(column), -1)
                self._digests[name, "lengths"].update(lengths.to_numpy(zero_copy_only=False))
                self._digests[name, "contents"].update(_bytes_of(column))
            else:
                numbers = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
                self._digests[name, "contents"].update(numbers)

    def text(self) -> str:
        """Return the checksum of everything so far."""
        parts = b"".join(each.digest() for each in self._digests.values())
        return hashlib.blake2b(parts, digest_size=16).hexdigest()


def _bytes_of(column: pa.Array) -> memoryview:
    """Return the contents of a column of bytes, back to back."""
    _, ends, contents = column.buffers()
    if contents is None or ends is None:
        return memoryview(b"")
    edges = np.frombuffer(ends, np.int32)
    begin, stop = edges[column.offset], edges[column.offset + len(column)]
    return memoryview(contents)[begin:stop]


def _archived(archive: ArchiveReader, records: RecordRange) -> pa.Table:
    batches = archive.read(records, columns=_COMPARED) if len(records) else iter(())
    return pa.Table.from_batches(batches, schema=arrow_schema(_COMPARED))


def _compare(verdict: Verdict, archived: pa.Table, logged: pa.RecordBatch) -> Verdict:
    log = pa.Table.from_batches([logged])
    offsets = [each["offset"].to_numpy() for each in (archived, log)]
    in_both = [
        table.filter(pa.array(np.isin(own, other)))
        for table, own, other in ((archived, *offsets), (log, *offsets[::-1]))
    ]
    different = 0
    if not in_both[0].equals(in_both[1]):
        pairs = zip(*(table.to_pylist() for table in in_both), strict=True)
        different = sum(one != other for one, other in pairs)
    shared = in_both[0].num_rows
    return replace(
        verdict,
        compared=verdict.compared + shared,
        only_in_log=verdict.only_in_log + log.num_rows - shared,
        only_in_archive=verdict.only_in_archive + archived.num_rows - shared,
        different=verdict.different + different,
    )
