"""A small file that always holds the last thing written whole.

It has two slots, written in turn, each with a sequence number and a checksum, and each as two
copies. Every copy lies in a disk sector of its own, so that writing one slot cannot tear the other:
after a crash the newest whole slot is what was written last, or what was written before. A copy
that rots has a twin, so rot is not taken for a torn write.
"""

import struct
from pathlib import Path

from crc32c import crc32c

from penstock.log.disk import Disk, DiskFile

_CRC = struct.Struct("<I")
_SECTOR_BYTES = 512
_SLOT_BYTES = 2 * _SECTOR_BYTES


class SlotFile:
    """Keeps one tuple of numbers, laid out as `fields` says."""

    def __init__(self, disk: Disk, path: Path, fields: str) -> None:
        self._fields = struct.Struct("<q" + fields)
        self._sequence = 0
        self.newest: tuple[int, ...] | None = None
        self.is_new = not disk.exists(path)
        self._file: DiskFile = disk.create(path) if self.is_new else disk.open(path)
        for start in range(0, 2 * _SLOT_BYTES, _SECTOR_BYTES):
            self._read(self._file.read_at(start, self._fields.size + _CRC.size))

    def _read(self, slot: bytes) -> None:
        packed, crc = slot[: self._fields.size], slot[self._fields.size :]
        if len(crc) < _CRC.size or _CRC.unpack(crc)[0] != crc32c(packed):
            return
        sequence, *values = self._fields.unpack(packed)
        if sequence > self._sequence:
            self._sequence = sequence
            self.newest = tuple(values)

    def write(self, *values: int) -> None:
        """Write the next slot; `sync` makes it durable."""
        self._sequence += 1
        packed = self._fields.pack(self._sequence, *values)
        copy = packed + _CRC.pack(crc32c(packed))
        position = self._sequence % 2 * _SLOT_BYTES
        self._file.write_at(position, [copy.ljust(_SECTOR_BYTES, b"\0"), copy])
        self.newest = values

    @property
    def file(self) -> DiskFile:
        """The open file, to be synced."""
        return self._file

    def clear(self) -> None:
        """Forget everything, durably."""
        self._file.truncate(0)
        self._file.sync()
        self._sequence = 0
        self.newest = None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
