"""Reading all of a partition's files and checking them, without changing a byte."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import Corruption, NotFound
from penstock.log.ahead import torn_bytes
from penstock.log.disk import Disk, LocalDisk
from penstock.log.index import HEADER_BYTES, ROW_BYTES, IndexTable, read_index_header
from penstock.log.scrub import scrub_segment
from penstock.log.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment


@dataclass(slots=True)
class PartitionReport:
    """What was found in one partition directory."""

    directory: Path
    segments: int = 0
    entries: int = 0
    records: int = 0
    size_bytes: int = 0
    first_offset: int = 0
    next_offset: int = 0
    # Bytes that follow the last indexed entry and are not zeros written ahead: a running node is
    # about to index them, and the next start of a stopped one decides what becomes of them.
    tail_bytes: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The partitions below a directory."""

    partitions: list[PartitionReport]

    @property
    def problems(self) -> list[str]:
        """Everything that is wrong, over all partitions."""
        return [problem for partition in self.partitions for problem in partition.problems]


def verify_directory(path: Path) -> VerifyReport:
    """Read every entry below `path`, a data directory or a part of it, and check it."""
    if not path.is_dir():
        raise NotFound(f"{path} is not a directory")
    directories = sorted({index.parent for index in path.rglob(f"*{INDEX_SUFFIX}")})
    if not directories:
        raise NotFound(f"there is no partition below {path}")
    return VerifyReport([_verify_partition(LocalDisk(), directory) for directory in directories])


class _CopiedSegment(Segment):
    """A segment whose files lie beside those of the log, under longer names."""

    def __init__(self, disk: Disk, index_path: Path, prefix: str) -> None:
        self._prefix = prefix
        data = disk.open(index_path).view()
        header = read_index_header(data, str(index_path))
        table = IndexTable.mapped(header, data, (len(data) - HEADER_BYTES) // ROW_BYTES)
        super().__init__(disk, index_path.parent, table)

    def path(self, suffix: str) -> Path:
        """Return the path of one of the copied files."""
        return self.directory / (self._prefix + super().path(suffix).name)


def check_copied_segments(disk: Disk, directory: Path, prefix: str) -> None:
    """Read all segments whose names begin with `prefix`; raise `Corruption` unless all are whole.

    Runs file operations.
    """
    previous: Segment | None = None
    for name in disk.names(directory):
        if name.startswith(prefix) and name.endswith(INDEX_SUFFIX):
            segment = _CopiedSegment(disk, directory / name, prefix)
            for fault in (*_faults_of(segment, previous), *_faults_of_sizes(segment)):
                raise Corruption(fault)
            segment.drop_files()
            previous = segment


def _faults_of_sizes(segment: Segment) -> Iterator[str]:
    found = segment.files.log.size(), segment.files.state.size()
    if found != (segment.log_bytes, segment.state_bytes):
        yield f"{segment.path(LOG_SUFFIX)} and its .state file have other sizes than the index says"


def _verify_partition(disk: Disk, directory: Path) -> PartitionReport:
    report = PartitionReport(directory)
    previous: Segment | None = None
    for path in sorted(directory.glob(f"*{INDEX_SUFFIX}")):
        try:
            segment = _open_segment(disk, path)
        except (Corruption, OSError) as error:
            report.problems.append(str(error))
            continue
        report.problems.extend(_faults_of(segment, previous))
        _count(report, segment)
        if report.segments == 1:
            report.first_offset = segment.first_offset
        previous = segment
    return report


def _open_segment(disk: Disk, path: Path) -> Segment:
    data = disk.open(path).view()
    header = read_index_header(data, str(path))
    table = IndexTable.mapped(header, data, (len(data) - HEADER_BYTES) // ROW_BYTES)
    segment = Segment(disk, path.parent, table)
    # A missing file is a problem of this segment; the others are still to be checked.
    assert segment.files
    return segment


def _faults_of(segment: Segment, previous: Segment | None) -> Iterator[str]:
    if previous is not None and previous.next_index != segment.first_index:
        yield (
            f"{segment.path(INDEX_SUFFIX)} begins with entry {segment.first_index},"
            f" the segment before ends before entry {previous.next_index}"
        )
    for damage in scrub_segment(segment, lambda _: None):
        yield f"{damage.path}, bytes {damage.start} to {damage.end}: {damage.reason}"


def _count(report: PartitionReport, segment: Segment) -> None:
    report.segments += 1
    report.entries += segment.table.count
    report.records += segment.table.next_offset - segment.first_offset
    report.size_bytes += segment.size_bytes
    report.next_offset = segment.table.next_offset
    report.tail_bytes += torn_bytes(segment.files.log, segment.log_bytes)
    report.tail_bytes += torn_bytes(segment.files.state, segment.state_bytes)
