"""The archive job of one topic: a streaming query whose driver commits each micro-batch once.

The order of a commit is fixed: see that the topic is still the one that was read, commit the files
and the positions to the table in one version, make that durable, and only then tell the cluster,
for whose retention it counts. `archive_table` says what a crash between any two of these leaves.
Spark's own checkpoint is temporary: where a run begins is read from the table, so that there is one
truth.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.client import ArchivedTopic, Client
from penstock.errors import Conflict, Unavailable
from penstock.spark.archive_source import ArchiveSource, Manifest, decode_manifest
from penstock.spark.archive_table import (
    ArchivedTopicId,
    ArchiveFile,
    ArchiveLocation,
    ArchiveTable,
)
from penstock.spark.session import parallelism

EPOCH_BYTES = 2 << 30
_KEEP_NO_CHECKPOINT = "spark.sql.streaming.forceDeleteTempCheckpointLocation"
_log = logging.getLogger("penstock.spark")


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one micro-batch adds to the archive, and where that takes each partition."""

    files: list[ArchiveFile]
    positions: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveJob:
    """One topic to archive; a plain value, so that it can run on a Connect server, too."""

    bootstrap: str
    url: str | Sequence[str]
    archive: ArchivedTopic
    storage: tuple[tuple[str, str], ...] = ()
    epoch_bytes: int = EPOCH_BYTES

    @property
    def location(self) -> ArchiveLocation:
        """Where the archive is."""
        return ArchiveLocation(self.archive.path, dict(self.storage))

    @property
    def topic(self) -> ArchivedTopicId:
        """The topic as the archive knows it."""
        return ArchivedTopicId(self.archive.topic, self.archive.topic_id)

    def start(self, spark: SparkSession, *, every_s: float | None) -> StreamingQuery:
        """Start the query; without an interval it ends when all that is there now is archived."""
        ArchiveTable.create(self.location)
        self._pass_over_gone()
        self.report()
        spark.conf.set(_KEEP_NO_CHECKPOINT, "true")
        spark.dataSource.register(ArchiveSource)
        stream = spark.readStream.format(ArchiveSource.name()).options(**self._options(spark))
        writer = stream.load().writeStream.queryName(f"archive {self.archive.topic}")
        if every_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{every_s:g} seconds")
        return writer.foreachBatch(self.commit).start()

    def commit(self, manifests: DataFrame, epoch: int) -> None:
        """Commit what the executors wrote, once."""
        del epoch
        found = [decode_manifest(row) for row in manifests.collect()]
        table = ArchiveTable.open(self.location)
        with Client(self.url) as client:
            self._check_topic(client)
            known = {each.partition: table.position(self.topic, each.partition) for each in found}
            epoch_found = plan_epoch(self.archive.topic, found, known)
            if epoch_found.positions:
                table.add(self.topic, epoch_found.files, epoch_found.positions)
            self._report(client, table)

    def _pass_over_gone(self) -> None:
        """Move positions past records that were deleted before they could be archived.

        A partition that has no others left would stay behind its log for good, and whoever reads
        archive and log as one would be told of a gap there and nowhere else.
        """
        table = ArchiveTable.open(self.location)
        with Client(self.url) as client:
            self._check_topic(client)
            held = client.archives.get(self.archive.topic).partitions
        gone = {
            each.partition: each.start
            for each in held
            if (table.position(self.topic, each.partition) or 0) < each.start
        }
        if gone:
            table.add(self.topic, [], gone)

    def report(self) -> None:
        """Tell the cluster how far the archive is."""
        table = ArchiveTable.open(self.location)
        with Client(self.url) as client:
            self._report(client, table)

    def _report(self, client: Client, table: ArchiveTable) -> None:
        state = client.archives.get(self.archive.topic)
        positions = {
            each.partition: table.position(self.topic, each.partition) for each in state.partitions
        }
        offsets = {number: held for number, held in positions.items() if held is not None}
        try:
            client.archives.report(self.archive, table=table.table_id, offsets=offsets)
        except Unavailable as error:
            # The next micro-batch tells it again; until then retention waits.
            _log.warning("the cluster was not told how far the archive is: %s", error)

    def _check_topic(self, client: Client) -> None:
        """Raise when what was read may belong to another topic than this job's."""
        state = client.archives.get(self.archive.topic)
        if state.topic_id != self.archive.topic_id:
            raise Conflict(f"topic {self.archive.topic} was deleted and created anew")
        if state.path != self.archive.path:
            raise Conflict(
                f"topic {self.archive.topic} is archived to {state.path or 'nowhere'} by now,"
                f" not to {self.archive.path}"
            )

    def _options(self, spark: SparkSession) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.archive.topic,
            "path": self.archive.path,
            "storage": json.dumps(dict(self.storage)),
            "topicId": self.archive.topic_id,
            "minPartitions": str(parallelism(spark)),
            "maxBytesPerTrigger": str(self.epoch_bytes),
            "kafka.isolation.level": "read_committed",
            # Records that somebody deletes before they are archived are gone on purpose.
            "failOnDataLoss": "false",
        }


def plan_epoch(topic: str, manifests: Iterable[Manifest], known: dict[int, int | None]) -> Epoch:
    """Return what is new in a micro-batch; `known` is how far each partition is archived.

    A partition whose ranges are archived already has been committed by an earlier attempt. Ranges
    that are archived in part, or that do not join, were not read from where the archive ends.
    """
    by_partition: dict[int, list[Manifest]] = defaultdict(list)
    for each in manifests:
        by_partition[each.partition].append(each)
    epoch = Epoch([], {})
    for partition, found in sorted(by_partition.items()):
        ranges = sorted({(each.start, each.end) for each in found})
        start, end = ranges[0][0], ranges[-1][1]
        position = known.get(partition) or 0
        if end <= position:
            continue
        joined = all(ranges[i][1] == ranges[i + 1][0] for i in range(len(ranges) - 1))
        if start < position or not joined:
            raise Conflict(
                f"topic {topic} partition {partition} is archived up to {position}, and offsets"
                f" {start} up to {end} were read: another job archives it"
            )
        epoch.files.extend(each.file for each in found if each.file is not None)
        epoch.positions[partition] = end
    return epoch
