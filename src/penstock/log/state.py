"""Entries that are not records, as they stand in the .state file.

Each has a header of 32 bytes, little endian, and then its payload:

    size         uint32  bytes of header and payload
    crc          uint32  CRC-32C of everything that follows
    index        int64   the entry's place in the log
    next_offset  int64   the offset of the first record after it
    term         int32
    kind         int32   `EntryKind`

`index` and `next_offset` say between which record entries a state entry stands. Record batches have
no room for their index; they fill the places that state entries leave free, which is how recovery
numbers every entry from the payloads alone.
"""

import struct

import msgspec
from crc32c import crc32c

from penstock.log.disk import Buffer
from penstock.log.index import EntryKind

_HEADER = struct.Struct("<IIqqii")
_BEGIN = struct.Struct("<II")
_CHECKED = struct.Struct("<qqii")
_CHECKED_FROM = _BEGIN.size
STATE_HEADER_BYTES = _HEADER.size


class StateEntry(msgspec.Struct, frozen=True, gc=False):
    """One state change and its place in the log."""

    index: int
    term: int
    next_offset: int
    payload: bytes
    kind: int = EntryKind.STATE

    @property
    def size_bytes(self) -> int:
        """Bytes of header and payload."""
        return STATE_HEADER_BYTES + len(self.payload)

    def pack(self) -> bytes:
        """Return the entry as it stands in the file."""
        checked = _CHECKED.pack(self.index, self.next_offset, self.term, self.kind) + self.payload
        return _BEGIN.pack(_CHECKED_FROM + len(checked), crc32c(checked)) + checked


def read_state_entry(data: Buffer, position: int = 0) -> StateEntry | None:
    """Return the entry at `position`, or None when it is not whole or damaged."""
    if position + STATE_HEADER_BYTES > len(data):
        return None
    size, crc, index, next_offset, term, kind = _HEADER.unpack_from(data, position)
    end = position + size
    if size < STATE_HEADER_BYTES or end > len(data):
        return None
    if crc != crc32c(memoryview(data)[position + _CHECKED_FROM : end]):
        return None
    payload = bytes(memoryview(data)[position + STATE_HEADER_BYTES : end])
    return StateEntry(index, term, next_offset, payload, kind)
