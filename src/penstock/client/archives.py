"""Archives as the HTTP door knows of them: which topics have one, and how far it is."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.blocking import BlockingCaller
from penstock.client.calls import Call, path_of, reader_of, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """A topic that is archived, and where to."""

    topic: str
    topic_id: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPartition:
    """What a partition holds, and up to where its archive is known to."""

    partition: int
    start: int
    end: int
    archived: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveState:
    """How far the archive of a topic is; without a path there is none."""

    topic: str
    topic_id: str
    path: str
    partitions: tuple[ArchivedPartition, ...]


@dataclass(frozen=True, slots=True)
class _Archives:
    archives: list[ArchivedTopic]


class Archives:
    """What is known about archives, by blocking calls."""

    def __init__(self, caller: BlockingCaller) -> None:
        self._caller = caller

    def list(self) -> "list[ArchivedTopic]":
        """Return the topics that are archived, by name."""
        return self._caller.run(list_archives_call())

    def get(self, topic: str) -> ArchiveState:
        """Return how far the archive of a topic is."""
        return self._caller.run(archive_call(topic))

    def report(self, archive: ArchivedTopic, *, table: str, offsets: Mapping[int, int]) -> None:
        """Tell up to where an archive durably holds partitions; retention goes by that."""
        self._caller.run(report_archive_call(archive, table, offsets))


def list_archives_call() -> Call[list[ArchivedTopic]]:
    """All topics that are archived."""
    read = reader_of(_Archives)
    path = path_of("v1", "archives")
    return Call(method="GET", path=path, read=lambda answer: read(answer).archives)


def archive_call(topic: str) -> Call[ArchiveState]:
    """How far one archive is."""
    path = path_of("v1", "topics", topic, "archive")
    return Call(method="GET", path=path, read=reader_of(ArchiveState))


def report_archive_call(
    archive: ArchivedTopic, table: str, offsets: Mapping[int, int]
) -> Call[ArchiveState]:
    """Tell how far an archive is; doing that twice changes nothing."""
    body = {
        "path": archive.path,
        "table": table,
        "topic_id": archive.topic_id,
        "offsets": {str(partition): offset for partition, offset in offsets.items()},
    }
    return Call(
        method="POST",
        path=path_of("v1", "topics", archive.topic, "archive"),
        content=to_json(body),
        read=reader_of(ArchiveState),
    )
