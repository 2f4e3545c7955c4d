"""What an executor does with one range: fetch it and write it into files of the archive."""

from collections.abc import Iterator

from penstock.spark.archive_files import ArchiveWriter
from penstock.spark.archive_table import ArchivedTopicId, ArchiveFile, ArchiveLocation
from penstock.spark.fetching import read_range
from penstock.spark.options import SourceOptions
from penstock.spark.ranges import RecordRange
from penstock.spark.schema import COLUMNS_WITH_HEADERS


def archive_range(
    options: SourceOptions,
    records: RecordRange,
    location: ArchiveLocation,
    topic: ArchivedTopicId,
) -> Iterator[ArchiveFile]:
    """Write the records of a range; yield the files, each of which is durable by then."""
    batches = read_range(
        options.bootstrap,
        records.topic,
        records.partition,
        records.start,
        records.end,
        columns=COLUMNS_WITH_HEADERS,
        settings=options.fetch,
    )
    writer = ArchiveWriter(location, topic, f"{records.partition:05}-{records.start:020}")
    for batch in batches:
        yield from writer.write(batch)
    yield from writer.close()
