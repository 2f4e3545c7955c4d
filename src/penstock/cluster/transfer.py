"""Bringing a replica up to date that lacks entries which the leader no longer keeps.

The leader offers a snapshot: the state of the machine after some entry, and the segments of the log
up to that entry as they lie on its disk. The follower copies them aside, file by file, and reads
the copy once: damage on the leader's disk must not count as a second copy, and a file that was
replaced while it was copied is noticed. When consensus still wants the snapshot then, the copy is
made durable and swapped in for the log.

Files of a copy lie beside those of the log, under names that begin with `incoming-`. The last one
written is `incoming-complete`, the list of all others. What may crash:

- before the list is durable: the copy is thrown away at the next start;
- after that: the swap is carried out again from the list. It first removes files of the old log
  that are not on the list, then renames the copied files, then removes the list; each of these can
  be repeated. All names are in one directory, because a rename from one directory to another is
  two changes, and a crash may keep the first of them only.

Term, vote and doubt stay: they are the replica's own, not the log's.
"""

from pathlib import Path

import msgspec

from penstock.errors import Corruption, InvalidRequest
from penstock.log import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    STATE_SUFFIX,
    Disk,
    IndexHeader,
    PartitionLog,
    check_copied_segments,
    index_bytes,
    read_snapshot,
    segment_path,
    snapshot_name,
)

_INCOMING = "incoming-"
_COMPLETE = _INCOMING + "complete"
_UNFINISHED = _COMPLETE + ".tmp"
# These belong to the replica and not to its log.
_OWN = ("vote", "doubt")
CHUNK_BYTES = 1024 * 1024


class FileCopy(msgspec.Struct, frozen=True):
    """One file of a snapshot, and how much of it belongs to it."""

    name: str
    size_bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """All files of a snapshot."""

    index: int
    next_offset: int
    term: int
    files: list[FileCopy]


class ChunkRequest(msgspec.Struct, frozen=True):
    """Ask for a part of a file of a snapshot."""

    group: int
    index: int
    name: str
    position: int
    size_bytes: int


def manifest_of(disk: Disk, log: PartitionLog, index: int) -> Manifest:
    """Return the files of the snapshot that stands for all entries up to `index`."""
    name = snapshot_name(index + 1)
    files = [FileCopy(name, disk.open(log.directory / name).size())]
    for segment in log.segments:
        rows = min(segment.table.count, index + 1 - segment.first_index)
        if rows <= 0:
            break
        last = segment.table.row(rows - 1)
        for suffix, size_bytes in (
            (LOG_SUFFIX, last.log_end),
            (STATE_SUFFIX, last.state_end),
            (INDEX_SUFFIX, index_bytes(rows)),
        ):
            files.append(FileCopy(segment.path(suffix).name, size_bytes))
    return Manifest(index, log.offset_before(index + 1), log.term_at(index), files)


def read_chunk(disk: Disk, directory: Path, request: ChunkRequest) -> bytes:
    """Read a part of a file that a manifest names. Runs in a thread."""
    if "/" in request.name or request.size_bytes > CHUNK_BYTES:
        raise InvalidRequest(f"{request.name!r} is not a file of a snapshot")
    file = disk.open(directory / request.name)
    try:
        return file.read_at(request.position, request.size_bytes)
    finally:
        file.close()


class IncomingCopy:
    """A snapshot that is being copied."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    def begin(self) -> None:
        """Start with nothing."""
        _throw_away(self._disk, self._directory)

    def write(self, name: str, position: int, chunk: bytes) -> None:
        """Write one part of a file; the first part creates it."""
        self._write(_INCOMING + name, position, chunk)

    def _write(self, name: str, position: int, chunk: bytes) -> None:
        path = self._directory / name
        file = self._disk.open(path) if position else self._disk.create(path)
        file.write_at(position, [chunk])
        file.close()

    def check(self, index: int) -> None:
        """Raise `Corruption` when the copy is not the log and the state up to `index`, whole."""
        path = self._directory / (_INCOMING + snapshot_name(index + 1))
        if read_snapshot(self._disk, path) is None:
            raise Corruption(f"{path} was copied and is damaged")
        check_copied_segments(self._disk, self._directory, _INCOMING)

    def complete(self, names: list[str], active: IndexHeader) -> None:
        """Say that all files are there; from here on the swap will happen.

        The log gets an empty segment at its end: rows of the copied ones are taken as they are,
        also where compaction has removed what they could be derived from.
        """
        for suffix, content in (
            (LOG_SUFFIX, b""),
            (STATE_SUFFIX, b""),
            (INDEX_SUFFIX, active.pack()),
        ):
            name = segment_path(self._directory, active.first_index, suffix).name
            self.write(name, 0, content)
            names = [*names, name]
        for name in names:
            self._sync(_INCOMING + name)
        self._disk.sync_directory(self._directory)
        # Written beside and renamed, so that the list is never found half written.
        self._write(_UNFINISHED, 0, msgspec.json.encode(names))
        self._sync(_UNFINISHED)
        self._disk.rename(self._directory / _UNFINISHED, self._directory / _COMPLETE)
        self._disk.sync_directory(self._directory)

    def _sync(self, name: str) -> None:
        file = self._disk.open(self._directory / name)
        file.sync()
        file.close()


def finish_interrupted_transfer(disk: Disk, directory: Path) -> None:
    """Carry out a swap that a crash stopped, or throw an unfinished copy away."""
    if not disk.exists(directory):
        return
    if disk.exists(directory / _COMPLETE):
        swap_in(disk, directory)
    _throw_away(disk, directory)


def swap_in(disk: Disk, directory: Path) -> None:
    """Replace the log by the copy that is complete."""
    file = disk.open(directory / _COMPLETE)
    try:
        names = msgspec.json.decode(file.read_at(0, file.size()), type=list[str])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corruption(f"{directory / _COMPLETE} cannot be read: {error}") from error
    # A process that was killed before its sync may have left the list in the page cache only.
    disk.sync_directory(directory)
    for name in disk.names(directory):
        if name not in names and name not in _OWN and not name.startswith(_INCOMING):
            disk.remove(directory / name)
    disk.sync_directory(directory)
    for name in names:
        if disk.exists(directory / (_INCOMING + name)):
            disk.rename(directory / (_INCOMING + name), directory / name)
    disk.sync_directory(directory)
    disk.remove(directory / _COMPLETE)
    disk.sync_directory(directory)


def _throw_away(disk: Disk, directory: Path) -> None:
    """Remove what is left of a copy."""
    left = [name for name in disk.names(directory) if name.startswith(_INCOMING)]
    for name in left:
        disk.remove(directory / name)
    if left:
        disk.sync_directory(directory)
