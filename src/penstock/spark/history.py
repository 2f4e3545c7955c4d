"""The whole history of a topic: archive and log as one.

The archive holds every record below its position, also those that retention or compaction removed
from the log, and the log holds what comes after: neither removes what is not archived. So a range
is read from the archive up to that position and from there on in the log. Should the log answer
that an offset is gone, it was archived and removed meanwhile, and reading goes on in the archive at
that offset. Each record comes once, in order, at its offset.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.client import Admin, Connection
from penstock.errors import InvalidRequest, OffsetOutOfRange, TopicNotFound
from penstock.ids import TopicPartition
from penstock.spark.archive_reading import ArchiveReader
from penstock.spark.archive_table import ArchivedTopicId, ArchiveLocation, ArchiveTable
from penstock.spark.catalog import Catalog, check_chosen, chosen_partitions
from penstock.spark.fetching import RangeReader
from penstock.spark.options import SourceOptions
from penstock.spark.ranges import FetchSettings, RecordRange, place_of
from penstock.spark.schema import check_columns

ARCHIVE_SETTING = "archive.path"


@dataclass(frozen=True, slots=True)
class ArchivePlace:
    """Where the archive of a topic is, and as what the archive knows the topic."""

    location: ArchiveLocation
    topic: ArchivedTopicId

    def open(self) -> ArchiveReader:
        """Return the archive as it stands."""
        return ArchiveReader(ArchiveTable.open(self.location), self.topic)


def read_history(
    bootstrap: str,
    records: RecordRange,
    place: ArchivePlace,
    *,
    columns: Sequence[str],
    settings: FetchSettings,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, from the archive as far as that goes."""
    check_columns(columns)
    while len(records):
        archive = place.open()
        archived = min(records.end, archive.end(records.partition))
        if records.start < archived:
            yield from archive.read(replace(records, end=archived), columns=columns)
            records = replace(records, start=archived)
            continue
        reader = RangeReader(bootstrap, records, replace(settings, fails_on_data_loss=True))
        try:
            yield from reader.record_batches(columns)
        except (OffsetOutOfRange, TopicNotFound):
            if place.open().end(records.partition) <= reader.offset:
                yield from _what_is_left(
                    bootstrap, replace(records, start=reader.offset), place, columns, settings
                )
                return
        finally:
            reader.close()
        records = replace(records, start=reader.offset)


def _what_is_left(
    bootstrap: str,
    records: RecordRange,
    place: ArchivePlace,
    columns: Sequence[str],
    settings: FetchSettings,
) -> Iterator[pa.RecordBatch]:
    """Go on behind records that are gone for good, unless losses shall be told."""
    if settings.fails_on_data_loss:
        where = place_of(TopicPartition(records.topic, records.partition), records.start)
        raise OffsetOutOfRange(
            f"{where}: neither the log nor the archive at {place.location.path} holds it;"
            " failOnDataLoss=false of Spark's source reads what is left"
        )
    reader = RangeReader(bootstrap, records, settings)
    try:
        yield from reader.record_batches(columns)
    finally:
        reader.close()


class HistoryCatalog(Catalog):
    """What cluster and archives hold together."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._places: dict[str, ArchivePlace] = {}
        self._archives: dict[str, ArchiveReader] = {}

    def archive_of(self, topic: str) -> ArchivePlace:
        """Return where a topic is archived, or raise that it is not."""
        if topic not in self._places:
            self._places[topic] = self._find(topic)
        return self._places[topic]

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that are wanted, also of a topic that only the archive has."""
        selection = self._options.selection
        topics = {*selection.topics, *(place.topic for place in selection.partitions)}
        held = self._topics()
        gone = sorted(topic for topic in topics if topic not in held)
        if not gone:
            return super().partitions()
        if self._options.archive_path is None:
            raise TopicNotFound(
                f"there is no topic {gone[0]}; archivePath or --archive says where its archive is"
            )
        numbers = {
            topic: self._archive(topic).partitions if topic in gone else held[topic]
            for topic in topics
        }
        check_chosen(selection, numbers)
        return chosen_partitions(selection, numbers)

    def remaining_partitions(self) -> list[TopicPartition]:
        """Return those of the wanted partitions that exist now, in the cluster or in an archive."""
        try:
            return self.partitions()
        except TopicNotFound:
            return super().remaining_partitions()

    def ids_nowait(self, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        """Return the ids of topics, also of those that only archives have."""
        found = super().ids_nowait(partitions)
        for topic, place in list(self._places.items()):
            if found.get(topic, place.topic.topic_id) != place.topic.topic_id:
                # It is that of an earlier topic of the name.
                del self._places[topic]
                self._archives.pop(topic, None)
        archived = {topic: place.topic.topic_id for topic, place in self._places.items()}
        return {**archived, **found}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that the archive or the log holds of each partition."""
        partitions = list(partitions)
        found = super().earliest(self._existing(partitions))
        for place in partitions:
            archived = self._archive(place.topic).start(place.partition)
            if archived is not None:
                found[place] = min(archived, found.get(place, archived))
            else:
                found.setdefault(place, 0)
        return found

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last one of each partition."""
        partitions = list(partitions)
        found = super().latest(self._existing(partitions))
        for place in partitions:
            if place not in found:
                found[place] = self._archive(place.topic).end(place.partition)
        return found

    def at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a time in each partition; None: there is none."""
        found: dict[TopicPartition, int | None] = {
            place: self._archive(place.topic).find_time(place.partition, time_ms)
            for place, time_ms in times_ms.items()
        }
        newer = self._existing(place for place, offset in found.items() if offset is None)
        return found | super().at({place: times_ms[place] for place in newer})

    def bytes_per_offset(self, records: RecordRange) -> float:
        """Return about how many bytes an offset takes."""
        where = TopicPartition(records.topic, records.partition)
        log_start = super().earliest(self._existing([where])).get(where, records.end)
        if log_start >= records.end:
            return self._archive(records.topic).bytes_per_offset(records)
        return super().bytes_per_offset(replace(records, start=max(records.start, log_start)))

    def _existing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        held = self._topics()
        return [each for each in partitions if each.partition in held.get(each.topic, [])]

    def _topics(self) -> dict[str, list[int]]:
        return self._ask(lambda: self._brokers.partitions(None))

    def _archive(self, topic: str) -> ArchiveReader:
        if topic not in self._archives:
            self._archives[topic] = self.archive_of(topic).open()
        return self._archives[topic]

    def _find(self, topic: str) -> ArchivePlace:
        path = self._options.archive_path
        if topic in self._topics():
            described = Admin(Connection(self._options.bootstrap)).topic(topic)
            settings = {each.name: each.value for each in described.settings}
            path = path or settings.get(ARCHIVE_SETTING)
            if not path:
                raise InvalidRequest(
                    f"topic {topic} has no archive; `penstock archive enable {topic} --to PATH`"
                    " makes one, archivePath or --archive names another"
                )
            location = ArchiveLocation(path, self._options.archive_options)
            topic_id = self._ask(lambda: self._brokers.topic_id(topic))
            return ArchivePlace(location, ArchivedTopicId(topic, topic_id))
        assert path is not None, "a topic that is gone was found in an archive"
        location = ArchiveLocation(path, self._options.archive_options)
        known = [each for each in ArchiveTable.open(location).topics() if each.name == topic]
        if not known:
            raise TopicNotFound(
                f"there is no topic {topic}, neither in the cluster nor in the archive at"
                f" {location.path}"
            )
        return ArchivePlace(location, known[-1])
