"""One stretch of a partition's log: three files that share a name.

`<first index>.log` holds record batches back to back, exactly the bytes of a fetch response;
`.state` holds the entries that are not records; `.index` holds a row per entry. The name is the log
index of the first entry, twenty digits: offsets would not do, because a stretch without records
would not advance them.

The last segment is active and grows, and its files may be longer than their entries (`ahead`); the
others are sealed, and only compaction and retention replace or remove them, whole.

Creating a segment, and what a crash between the steps leaves:

1. create .log and .state: both are empty and have no index, the next start removes them;
2. create .index and write its header: as above when the header is torn;
3. sync .index, then the directory: the segment is there, empty.

Removing a segment takes .log first, durably, and then the rest, so a missing .log means a removal
that the next start finishes. Because each removal is durable before the next one begins, a crash
leaves no gap between the segments that are kept.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.errors import Corruption, StorageFailed
from penstock.log.ahead import ZerosAhead
from penstock.log.byte_ranges import ByteRanges
from penstock.log.disk import Disk, DiskFile
from penstock.log.index import HEADER_BYTES, ROW_BYTES, IndexHeader, IndexTable

LOG_SUFFIX = ".log"
STATE_SUFFIX = ".state"
INDEX_SUFFIX = ".index"
NAME_DIGITS = 20


class FileRange(NamedTuple):
    """Bytes of a file that can be sent as they are."""

    file: DiskFile
    position: int
    size_bytes: int

    def read(self) -> bytes:
        """Return the bytes."""
        return self.file.read_at(self.position, self.size_bytes)


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The three open files of a segment."""

    log: DiskFile
    state: DiskFile
    index: DiskFile


class Segment:
    """One stretch of the log.

    `log_bytes`, `state_bytes` and the table count what was appended; `written_log_bytes` and
    `written_rows` count what a finished flush has put into the files: all that may be read.
    """

    __slots__ = (
        "_disk",
        "_files",
        "damage",
        "directory",
        "has_failed",
        "is_on_disk",
        "log_ahead",
        "log_bytes",
        "proven",
        "state_ahead",
        "state_bytes",
        "table",
        "unproven_end",
        "written_log_bytes",
        "written_rows",
    )

    def __init__(self, disk: Disk, directory: Path, table: IndexTable) -> None:
        self._disk = disk
        self._files: SegmentFiles | None = None
        self.directory = directory
        self.has_failed = False
        # False until `create_files` has run; a crash before that leaves no trace of the segment.
        self.is_on_disk = True
        self.table = table
        last = table.last()
        self.log_bytes = last.log_end if last else 0
        self.state_bytes = last.state_end if last else 0
        self.written_log_bytes = self.log_bytes
        self.written_rows = table.count
        self.log_ahead = ZerosAhead()
        self.state_ahead = ZerosAhead()
        # Ranges of .log, by position, whose checksum was found wrong. They are never served.
        self.damage: list[tuple[int, int]] = []
        # Bytes of .log before this are compared with their checksums before they are first sent,
        # and those in `proven` have been (`proof.py`).
        self.unproven_end = self.log_bytes
        self.proven = ByteRanges()

    @property
    def first_index(self) -> int:
        """The log index of the first entry."""
        return self.table.header.first_index

    @property
    def next_index(self) -> int:
        """The log index after the last entry."""
        return self.table.next_index

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.table.header.first_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all three files."""
        return self.log_bytes + self.state_bytes + HEADER_BYTES + self.table.count * ROW_BYTES

    @property
    def files(self) -> SegmentFiles:
        """The open files; they are opened when first asked for."""
        if self._files is None:
            self._files = SegmentFiles(
                self._disk.open(self.path(LOG_SUFFIX)),
                self._disk.open(self.path(STATE_SUFFIX)),
                self._disk.open(self.path(INDEX_SUFFIX)),
            )
        return self._files

    @property
    def may_end_with_zeros(self) -> bool:
        """True when the files are open, and end with the entries or with what was written ahead.

        After a failure there may be entries in the files that are not counted as written.
        """
        return self._files is not None and self.written_rows == self.table.count

    def path(self, suffix: str) -> Path:
        """Return the path of one of the segment's files."""
        return segment_path(self.directory, self.first_index, suffix)

    def create_files(self) -> None:
        """Put an empty segment on disk, durably."""
        log = self._disk.create(self.path(LOG_SUFFIX))
        state = self._disk.create(self.path(STATE_SUFFIX))
        index = self._disk.create(self.path(INDEX_SUFFIX))
        index.write_at(0, [self.table.header.pack()])
        sync_file(index)
        sync_names(self._disk, self.directory)
        self._files = SegmentFiles(log, state, index)
        self.is_on_disk = True

    def sync(self, *files: DiskFile) -> None:
        """Make some of the segment's files durable, or raise `StorageFailed`.

        Flushes and checkpoints run side by side. A sync that succeeds after one that failed proves
        nothing, because the failed one may have dropped what both were to write.
        """
        try:
            for file in files:
                sync_file(file)
        except StorageFailed:
            self.has_failed = True
            raise
        if self.has_failed:
            raise StorageFailed(f"a sync of {self.path(LOG_SUFFIX)} or its index has failed before")

    def cut_ahead(self) -> None:
        """Cut what was written ahead of the entries; a sync makes the cut durable."""
        self.log_ahead.cut(self.files.log, self.log_bytes)
        self.state_ahead.cut(self.files.state, self.state_bytes)

    def remove_files(self) -> None:
        """Remove the segment; .log goes first so that a crash is noticed."""
        self._files = None
        self._disk.remove(self.path(LOG_SUFFIX))
        sync_names(self._disk, self.directory)
        for suffix in (STATE_SUFFIX, INDEX_SUFFIX):
            self._disk.remove(self.path(suffix))
        # A new segment may take the name; it must not find these beside its own .log.
        sync_names(self._disk, self.directory)

    def drop_files(self) -> None:
        """Forget the open files; those who still send from one keep it open."""
        self._files = None

    def range_from(self, *, offset: int, end_offset: int, bytes_max: int) -> FileRange | None:
        """Return the batches from the one that holds `offset` up to `end_offset`.

        At least one batch is returned even when it is larger than `bytes_max`. None means that
        the segment has nothing in between.
        """
        start = self._start_of(offset)
        end = self._end_at(end_offset)
        if start >= end:
            return None
        if end - start > bytes_max:
            end = self._batch_boundary(start, start + bytes_max)
        end = self._clip_damage(start, end)
        return FileRange(self.files.log, start, end - start)

    def _start_of(self, offset: int) -> int:
        if self.table.count == 0:
            return 0
        row = self.table.row_of_offset(offset)
        return row.log_position if offset < row.next_offset else row.log_end

    def _end_at(self, end_offset: int) -> int:
        if end_offset >= self.table.next_offset:
            return self.written_log_bytes
        return min(self._start_of(end_offset), self.written_log_bytes)

    def _batch_boundary(self, start: int, limit: int) -> int:
        """Return the largest batch boundary up to `limit` that leaves at least one batch."""
        number = self.table.number_past_position(limit) - 1
        boundary = self.table.row(number).log_position
        if boundary > start:
            return boundary
        # Rows without bytes in .log share a position, so the first batch ends where the
        # position next changes.
        following = self.table.number_past_position(start)
        if following == self.table.count:
            return self.log_bytes
        return self.table.row(following).log_position

    def _clip_damage(self, start: int, end: int) -> int:
        for damaged_start, damaged_end in self.damage:
            if damaged_start <= start < damaged_end:
                raise Corruption(
                    f"{self.path(LOG_SUFFIX)} is damaged between bytes {damaged_start}"
                    f" and {damaged_end}"
                )
            if start < damaged_start < end:
                end = damaged_start
        return end


def sync_file(file: DiskFile) -> None:
    """Sync a file, or raise `StorageFailed`: unlike a failed write, this cannot be taken back.

    After a failed sync the page cache may have dropped the data, and a second sync would report
    success.
    """
    try:
        file.sync()
    except OSError as error:
        raise StorageFailed(f"the disk failed to sync: {error.strerror or error}") from error


def sync_names(disk: Disk, directory: Path) -> None:
    """Sync a directory, or raise `StorageFailed` as `sync_file` does."""
    try:
        disk.sync_directory(directory)
    except OSError as error:
        raise StorageFailed(f"the disk failed to sync: {error.strerror or error}") from error


def segment_path(directory: Path, first_index: int, suffix: str) -> Path:
    """Return the path of a file of the segment that begins with `first_index`."""
    return directory / f"{first_index:0{NAME_DIGITS}}{suffix}"


def new_segment(disk: Disk, directory: Path, header: IndexHeader) -> Segment:
    """Return a segment that has no files yet."""
    segment = Segment(disk, directory, IndexTable.empty(header))
    segment.is_on_disk = False
    return segment


def sealed_segments(segments: list[Segment]) -> list[Segment]:
    """Return those before the last one on disk, which a crash would leave as the active one.

    A segment whose first flush has not run does not count: were the ones before it removed and the
    power cut, nothing on disk would tell the next index and offset.
    """
    active = len(segments) - 1
    while active >= 0 and not segments[active].is_on_disk:
        active -= 1
    return segments[: max(active, 0)]
