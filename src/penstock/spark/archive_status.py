"""How far an archive is, from the table and from the cluster."""

from dataclasses import dataclass

from penstock.client import ArchivedPartition, ArchiveState
from penstock.errors import NotFound
from penstock.spark.archive_table import (
    ArchivedTopicId,
    ArchiveFile,
    ArchiveLocation,
    ArchiveTable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPartitionStatus:
    """One partition: what the log holds, and up to which offset and time the archive does.

    `reported` is how far the cluster knows the archive to be; retention goes by that.
    """

    partition: int
    log_start: int
    log_end: int
    archived: int
    archived_until_ms: int | None
    reported: int

    @property
    def lag(self) -> int:
        """How many offsets are not archived yet."""
        return max(0, self.log_end - max(self.archived, self.log_start))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveStatus:
    """The archive of one topic."""

    topic: str
    path: str
    files: int
    size_bytes: int
    records: int
    partitions: tuple[ArchivedPartitionStatus, ...]

    @property
    def lag(self) -> int:
        """How many offsets are not archived yet."""
        return sum(each.lag for each in self.partitions)


def archive_status(state: ArchiveState, location: ArchiveLocation) -> ArchiveStatus:
    """Look at an archive; one that no job has created yet holds nothing."""
    topic = ArchivedTopicId(state.topic, state.topic_id)
    table: ArchiveTable | None
    try:
        table = ArchiveTable.open(location)
    except NotFound:
        table = None
    files = table.files(topic) if table is not None else []
    return ArchiveStatus(
        topic=state.topic,
        path=state.path,
        files=len(files),
        size_bytes=sum(each.size_bytes for each in files),
        records=sum(each.records for each in files),
        partitions=tuple(_partition(each, topic, table, files) for each in state.partitions),
    )


def _partition(
    known: ArchivedPartition,
    topic: ArchivedTopicId,
    table: ArchiveTable | None,
    files: list[ArchiveFile],
) -> ArchivedPartitionStatus:
    times = [
        each.times_us[1] // 1000
        for each in files
        if each.partitions[0] <= known.partition <= each.partitions[1] and each.times_us
    ]
    position = table.position(topic, known.partition) if table is not None else None
    return ArchivedPartitionStatus(
        partition=known.partition,
        log_start=known.start,
        log_end=known.end,
        archived=position or 0,
        archived_until_ms=max(times, default=None),
        reported=known.archived,
    )
