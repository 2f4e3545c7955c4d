"""State as of one entry, so that replay after a restart is short.

A file `snapshot-<index>` holds the state after all entries below `index` were applied:

    magic    8 bytes  b"PENSTSN1"
    index    int64
    term     int64    the term of the entry before `index`
    crc      uint32   CRC-32C of index, term and payload
    payload

It is written beside, synced and renamed, so a crash leaves the one before. Older ones are removed
after that.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from penstock.ids import EntryIndex, Term
from penstock.log.disk import Disk
from penstock.record import Buffer

_HEADER = struct.Struct("<8sqqI")
_CHECKED = struct.Struct("<qq")
_MAGIC = b"PENSTSN1"
PREFIX = "snapshot-"
_TEMPORARY = "snapshot.tmp"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State after all entries below `index`."""

    index: EntryIndex
    term: Term
    payload: Buffer


def save_snapshot(disk: Disk, directory: Path, snapshot: Snapshot) -> None:
    """Write a snapshot durably and remove the older ones."""
    crc = _crc(snapshot.index, snapshot.term, snapshot.payload)
    header = _HEADER.pack(_MAGIC, snapshot.index, snapshot.term, crc)
    temporary = directory / _TEMPORARY
    file = disk.create(temporary)
    file.write_at(0, [header, snapshot.payload])
    file.sync()
    file.close()
    target = directory / snapshot_name(snapshot.index)
    disk.rename(temporary, target)
    disk.sync_directory(directory)
    for name in disk.names(directory):
        if name.startswith(PREFIX) and name < target.name:
            disk.remove(directory / name)


def snapshot_name(index: int) -> str:
    """Return the name of the file that holds the state before entry `index`."""
    return f"{PREFIX}{index:020}"


def load_snapshot(disk: Disk, directory: Path) -> Snapshot | None:
    """Return the newest snapshot that is whole."""
    names = [name for name in disk.names(directory) if name.startswith(PREFIX)]
    for name in sorted(names, reverse=True):
        snapshot = read_snapshot(disk, directory / name)
        if snapshot is not None:
            return snapshot
    return None


def read_snapshot(disk: Disk, path: Path) -> Snapshot | None:
    """Return the snapshot in one file, or None when it is damaged."""
    file = disk.open(path)
    data = file.read_at(0, file.size())
    if len(data) < _HEADER.size:
        return None
    magic, index, term, crc = _HEADER.unpack_from(data)
    # A state may be large, and is not copied on its way to the machine.
    payload = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or crc != _crc(index, term, payload):
        return None
    return Snapshot(EntryIndex(index), Term(term), payload)


def _crc(index: int, term: int, payload: Buffer) -> int:
    return crc32c(payload, crc32c(_CHECKED.pack(index, term)))
