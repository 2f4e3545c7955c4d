"""How far a partition's files are known to be durable.

The file holds two slots that are written in turn, each with a sequence number and a checksum. A
slot is written only after the data that it speaks of was synced, and it is never synced itself:
after a power cut an older slot may be found, so a checkpoint can lag behind the disk but never
lead.

Recovery trusts everything below the checkpoint and scans only what lies above.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from penstock.log.disk import Disk, DiskFile

_SLOT = struct.Struct("<qqqqq")
_CRC = struct.Struct("<I")
# Each slot lies in a disk sector of its own, so that writing one cannot tear the other.
_SLOT_BYTES = 512
FILE_NAME = "checkpoint"


class Checkpoint(NamedTuple):
    """Durable sizes of one segment; earlier segments are durable whole."""

    sequence: int
    first_index: int
    rows: int
    log_bytes: int
    state_bytes: int


class CheckpointFile:
    """Keeps the newest checkpoint of a partition."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        path = directory / FILE_NAME
        self._file: DiskFile
        self.newest: Checkpoint | None = None
        if disk.exists(path):
            self._file = disk.open(path)
            self.newest = _newest(self._file.read_at(0, 2 * _SLOT_BYTES))
        else:
            self._file = disk.create(path)

    def write(self, *, first_index: int, rows: int, log_bytes: int, state_bytes: int) -> None:
        """Record sizes whose sync has returned."""
        sequence = self.newest.sequence + 1 if self.newest else 1
        newest = Checkpoint(sequence, first_index, rows, log_bytes, state_bytes)
        packed = _SLOT.pack(*newest)
        slot = sequence % 2
        self._file.write_at(slot * _SLOT_BYTES, [packed + _CRC.pack(crc32c(packed))])
        self.newest = newest

    def withdraw(self) -> None:
        """Forget all checkpoints, durably, before the log is cut below them."""
        self._file.truncate(0)
        self._file.sync()
        self.newest = None

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _newest(data: bytes) -> Checkpoint | None:
    found = []
    for start in (0, _SLOT_BYTES):
        if start + _SLOT.size + _CRC.size <= len(data):
            (crc,) = _CRC.unpack_from(data, start + _SLOT.size)
            if crc == crc32c(data[start : start + _SLOT.size]):
                found.append(Checkpoint(*_SLOT.unpack_from(data, start)))
    return max(found, default=None)
