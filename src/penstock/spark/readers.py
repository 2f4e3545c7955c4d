"""What Spark asks of a source: ranges on the driver, record batches in the executors.

A stream's place is a set of offsets, which Spark keeps in its checkpoint and hands back after a
restart, together with the ids of the topics: offsets of a topic that was created anew since are
told as a loss. The group's committed offsets are only for those who watch the lag: Spark tells of a
finished micro-batch when the next one begins, and never of the last one.
"""

import importlib
import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.clock import SystemClock
from penstock.errors import InvalidRequest, OffsetOutOfRange, TopicIdMismatch, TopicNotFound
from penstock.ids import TopicPartition
from penstock.spark.brokers import EARLIEST, LATEST
from penstock.spark.catalog import Catalog
from penstock.spark.options import SourceOptions
from penstock.spark.planning import (
    Offsets,
    TopicIds,
    check_held,
    created_anew,
    ids_from_json,
    limit_offsets,
    make_ranges,
    offsets_from_json,
    offsets_to_json,
    resolve_end,
    resolve_start,
    split_ranges,
)
from penstock.spark.ranges import RecordRange, place_of

if TYPE_CHECKING:
    from penstock.spark.history import ArchivePlace

FETCHING_MODULE = "penstock.spark.fetching"
HISTORY_MODULE = "penstock.spark.history"
_log = logging.getLogger("penstock.spark")


class RangePartition(InputPartition):
    """One task: a range of offsets of one partition, and where older records are."""

    def __init__(self, records: RecordRange, archive: "ArchivePlace | None") -> None:
        super().__init__(records)
        self.archive = archive


class PenstockBatchReader(DataSourceReader):
    """Reads what lies between two sets of offsets."""

    def __init__(self, options: SourceOptions) -> None:
        if options.start is not None and options.start.is_latest_anywhere:
            raise InvalidRequest("startingOffsets is latest: a batch would hold nothing")
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges to read."""
        options = self._options
        catalog = open_catalog(options)
        start = resolve_start(options, catalog, EARLIEST)
        end = resolve_end(options, catalog, start)
        if options.start is not None and options.start.offsets is not None:
            start = check_held(options, catalog, start)
        if options.end is not None and options.end.offsets is not None:
            end = check_held(options, catalog, end)
        return _tasks(options, catalog, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range."""
        return _read(self._options, partition)


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream of micro-batches."""

    def __init__(self, options: SourceOptions) -> None:
        if options.end is not None:
            raise InvalidRequest("a stream has no end: endingOffsets and the like are for batches")
        self._options = options
        self._has_target = False
        self._target: Offsets | None = None
        self._seen: Offsets | None = None
        self._ids: TopicIds | None = None
        self._taken_s = SystemClock().steady_s()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a query without a checkpoint begins."""
        start = resolve_start(self._options, self._catalog, LATEST)
        return offsets_to_json(start, self._catalog.ids_nowait(start))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next micro-batch ends."""
        begin, known = offsets_from_json(start), ids_from_json(start)
        self._catalog.note_standing(begin)
        partitions: list[TopicPartition] = []
        if self._target is None:
            partitions = self._partitions(begin)
            self._ids = {**known, **self._catalog.ids_nowait(partitions)}
        begin = self._without_former_topics(begin, known, self._ids or {})
        end = self._target if self._target is not None else self._latest(begin, partitions)
        if self._has_target:
            self._target = end
        self._seen = end
        begin |= self._catalog.earliest(place for place in end if place not in begin)
        self._check_loss(begin, end)
        if not isinstance(limit, ReadAllAvailable):
            end = self._limited(begin, end)
        return offsets_to_json(end, self._ids)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a limit, so that Spark knows there is one; all of them are applied together."""
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where the partitions end when the first micro-batch is planned.

        By then it is known where the query stands, which an error about a lost partition names.
        """
        self._has_target = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return where the partitions end; the query's progress shows it beside its own place."""
        return None if self._seen is None else offsets_to_json(self._seen)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of one micro-batch; partitions that are new begin at their start."""
        begin, stop = offsets_from_json(start), offsets_from_json(end)
        ids = ids_from_json(end)
        if self._ids is None:
            # This micro-batch was planned before a restart, and of topics as they were then.
            self._ids = {**ids, **self._catalog.ids_nowait(self._catalog.remaining_partitions())}
        stop = self._without_former_topics(stop, ids, self._ids)
        begin = self._without_former_topics(begin, ids_from_json(start), ids)
        begin |= self._catalog.earliest(place for place in stop if place not in begin)
        return _tasks(self._options, self._catalog, begin, stop)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range."""
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit progress under the group's name."""
        if self._options.group is not None:
            self._catalog.commit(self._options.group, offsets_from_json(end))

    @cached_property
    def _catalog(self) -> Catalog:
        return open_catalog(self._options)

    def _latest(self, begin: Offsets, partitions: list[TopicPartition]) -> Offsets:
        latest = self._catalog.latest(partitions)
        if self._options.fetch.fails_on_data_loss:
            return latest
        # What is gone stays where it was, should it come back.
        return {**begin, **latest}

    def _partitions(self, begin: Offsets) -> list[TopicPartition]:
        """Return all partitions; without those that are gone, where `_check_loss` tells of them."""
        if not self._options.fetch.fails_on_data_loss:
            return self._catalog.remaining_partitions()
        try:
            return self._catalog.partitions()
        except TopicNotFound:
            remaining = self._catalog.remaining_partitions()
            if begin.keys() <= set(remaining):
                raise
            return remaining

    def _without_former_topics(self, offsets: Offsets, known: TopicIds, ids: TopicIds) -> Offsets:
        """Return offsets but for those of topics whose names belong to other topics by now."""
        anew = created_anew(known, ids)
        for place in sorted(each for each in offsets if each.topic in anew):
            message = (
                f"{place_of(place, offsets[place])}: the topic is another one by now,"
                " which was created or resharded under the name"
            )
            if self._options.fetch.fails_on_data_loss:
                raise TopicIdMismatch(f"{message}; failOnDataLoss=false goes on where that begins")
            _log.warning("%s", message)
        return {place: offset for place, offset in offsets.items() if place.topic not in anew}

    def _check_loss(self, begin: Offsets, end: Offsets) -> None:
        fails = self._options.fetch.fails_on_data_loss
        for place, offset in begin.items():
            if place not in end and fails:
                raise TopicNotFound(
                    f"{place_of(place, offset)}: the partition is gone;"
                    " failOnDataLoss=false goes on"
                )
            if offset > end.get(place, offset):
                message = (
                    f"{place_of(place, offset)}: the partition ends at {end[place]};"
                    " was the topic created anew, or is the checkpoint of another query?"
                )
                if fails:
                    raise OffsetOutOfRange(f"{message} failOnDataLoss=false goes on at its end")
                _log.warning("%s", message)

    def _limited(self, begin: Offsets, end: Offsets) -> Offsets:
        limits = self._options.limits
        waiting = sum(max(end[place] - begin[place], 0) for place in end)
        now_s = SystemClock().steady_s()
        is_late = 1000 * (now_s - self._taken_s) >= limits.delay_ms_max
        # All that a query with AvailableNow will see has come, so that it waits for nothing.
        if not self._has_target and not is_late and waiting < (limits.offsets_min or 0):
            return {place: begin[place] for place in end}
        self._taken_s = now_s
        if limits.bytes_max is not None:
            end = limit_offsets(begin, end, self._offsets_in(limits.bytes_max, begin, end))
        if limits.offsets_max is not None:
            end = limit_offsets(begin, end, limits.offsets_max)
        return end

    def _offsets_in(self, bytes_max: int, begin: Offsets, end: Offsets) -> int:
        """Estimate how many offsets of what is waiting take so many bytes."""
        waiting = make_ranges(begin, end)
        sizes = {each: self._catalog.bytes_per_offset(each) * len(each) for each in waiting}
        offsets = sum(map(len, waiting))
        return max(1, int(bytes_max * offsets / max(sum(sizes.values()), 1)))


def open_catalog(options: SourceOptions) -> Catalog:
    """Return what can be asked about the topics, with their archives when these are read, too."""
    if not options.includes_deleted:
        return Catalog(options)
    catalog: Catalog = importlib.import_module(HISTORY_MODULE).HistoryCatalog(options)
    return catalog


def _tasks(
    options: SourceOptions, catalog: Catalog, start: Offsets, end: Offsets
) -> list[InputPartition]:
    ranges = split_ranges(
        make_ranges(start, end),
        partitions_min=options.partitions_min,
        records_max=options.records_per_partition_max,
    )
    return [RangePartition(each, catalog.archive_of(each.topic)) for each in ranges]


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    records = partition.value
    # Spark invents a partition without a value when there is nothing to read.
    if records is None:
        return iter(())
    if isinstance(partition, RangePartition) and partition.archive is not None:
        found: Iterator[pa.RecordBatch] = importlib.import_module(HISTORY_MODULE).read_history(
            options.bootstrap,
            records,
            partition.archive,
            columns=options.columns,
            settings=options.fetch,
        )
        return found
    batches: Iterator[pa.RecordBatch] = _load_fetching().read_range(
        options.bootstrap,
        records.topic,
        records.partition,
        records.start,
        records.end,
        columns=options.columns,
        settings=options.fetch,
    )
    return batches


def _load_fetching() -> ModuleType:
    # Spark plans in several processes that never fetch: these do without the compiled loops.
    return importlib.import_module(FETCHING_MODULE)
