"""Term and vote of a replica, which must survive a crash before any message reveals them.

The file holds two slots written in turn, each with a sequence number and a checksum. Unlike
a checkpoint, a slot is synced before `save` returns: a replica that forgot a vote could vote twice.
A torn slot leaves the one before, and then `save` had not returned.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from penstock.log.disk import Disk
from penstock.log.segment import sync_file

_SLOT = struct.Struct("<qqqq")
_CRC = struct.Struct("<I")
_SLOT_BYTES = 512
FILE_NAME = "vote"
_NOBODY = -1


class SavedHardState(NamedTuple):
    """What was saved last; a vote of -1 stands for none."""

    sequence: int
    term: int
    vote: int
    commit: int


class HardStateFile:
    """Keeps the hard state of one replica."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        path = directory / FILE_NAME
        if disk.exists(path):
            self._file = disk.open(path)
            self._newest = _newest(self._file.read_at(0, 2 * _SLOT_BYTES))
        else:
            self._file = disk.create(path)
            disk.sync_directory(directory)
            self._newest = SavedHardState(0, 0, _NOBODY, 0)

    @property
    def newest(self) -> SavedHardState:
        """What was saved last."""
        return self._newest

    def save(self, *, term: int, vote: int | None, commit: int) -> None:
        """Save durably; raises `StorageFailed` when the disk cannot."""
        sequence = self._newest.sequence + 1
        saved = SavedHardState(sequence, term, _NOBODY if vote is None else vote, commit)
        packed = _SLOT.pack(*saved)
        self._file.write_at((sequence % 2) * _SLOT_BYTES, [packed + _CRC.pack(crc32c(packed))])
        sync_file(self._file)
        self._newest = saved

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _newest(data: bytes) -> SavedHardState:
    found = [SavedHardState(0, 0, _NOBODY, 0)]
    for start in (0, _SLOT_BYTES):
        if start + _SLOT.size + _CRC.size <= len(data):
            (crc,) = _CRC.unpack_from(data, start + _SLOT.size)
            if crc == crc32c(data[start : start + _SLOT.size]):
                found.append(SavedHardState(*_SLOT.unpack_from(data, start)))
    return max(found)
