"""Puts many small files of an archive into few large ones.

Each micro-batch leaves a file per task and day. Files of one partition and day are read in the
order of offsets, written anew, and swapped in one version of the table, which holds the same
records before and after; a crash in between leaves files that no version names.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.errors import Conflict
from penstock.spark.archive_files import FILE_BYTES, ArchiveWriter
from penstock.spark.archive_reading import ArchiveReader
from penstock.spark.archive_table import ArchivedTopicId, ArchiveFile, ArchiveTable
from penstock.spark.ranges import RecordRange
from penstock.spark.schema import COLUMNS_WITH_HEADERS

# Files above this size are left alone. So are neighbours that make a large file and are fewer than
# this: to write them again would cost more than to read them as they are.
SMALL_BYTES = FILE_BYTES // 2
FILES_MIN = 8
_log = logging.getLogger("penstock.spark")


@dataclass(frozen=True, slots=True)
class Compacted:
    """How many files were replaced, and by how many."""

    files_before: int = 0
    files_after: int = 0

    def __add__(self, other: "Compacted") -> "Compacted":
        return Compacted(
            self.files_before + other.files_before, self.files_after + other.files_after
        )


def compact_archive(
    table: ArchiveTable, topic: ArchivedTopicId, *, files_min: int = FILES_MIN
) -> Compacted:
    """Compact what is worth it; another job that was faster makes this one do nothing."""
    table.refresh()
    done = Compacted()
    for chosen in choose_files(table.files(topic), files_min=files_min):
        try:
            done += _rewrite(table, topic, chosen)
        except Conflict as error:
            _log.warning("files were not compacted: %s", error)
            table.refresh()
    return done


def choose_files(
    files: Sequence[ArchiveFile], *, files_min: int = FILES_MIN
) -> Iterator[list[ArchiveFile]]:
    """Yield small files of one day and partition, neighbours, that make about one large file."""
    groups: dict[tuple[str | None, int], list[ArchiveFile]] = defaultdict(list)
    for each in sorted(files, key=lambda file: file.offsets):
        if each.partitions[0] == each.partitions[1] and each.size_bytes < SMALL_BYTES:
            groups[each.date, each.partitions[0]].append(each)
    for group in groups.values():
        chosen: list[ArchiveFile] = []
        chosen_bytes = 0
        for each in group:
            if chosen_bytes + each.size_bytes > FILE_BYTES:
                if len(chosen) >= files_min:
                    yield chosen
                chosen, chosen_bytes = [], 0
            chosen.append(each)
            chosen_bytes += each.size_bytes
        if len(chosen) >= files_min:
            yield chosen


def _rewrite(table: ArchiveTable, topic: ArchivedTopicId, old: list[ArchiveFile]) -> Compacted:
    partition = old[0].partitions[0]
    start, end = old[0].offsets[0], max(each.offsets[1] for each in old) + 1
    reader = ArchiveReader(table, topic, files=old)
    writer = ArchiveWriter(table.location, topic, f"{partition:05}-{start:020}")
    new = [
        file
        for batch in reader.read(
            RecordRange(topic.name, partition, start, end), columns=COLUMNS_WITH_HEADERS
        )
        for file in writer.write(batch)
    ]
    new += writer.close()
    before, after = (sum(each.records for each in files) for files in (old, new))
    assert before == after, f"{before} records became {after} of topic {topic.name}"
    table.replace(topic, old, new)
    return Compacted(len(old), len(new))
