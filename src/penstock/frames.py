"""Cutting the byte stream of a connection into frames: those of Kafka clients and of peers.

Each frame is four bytes of size and then that many bytes. Reads go into a buffer that all
connections share; only a frame that is not whole yet gets memory of its own, exactly as much as it
needs, and the rest of it is read straight into place. So an idle connection costs nothing, and a
large batch is not copied.
"""

import struct
from collections.abc import Iterable, Iterator

from penstock.errors import InvalidRequest

_SIZE = struct.Struct(">i")
_SIZE_BYTES = _SIZE.size
# The first two bytes of a handshake of TLS, which no size of a frame that is taken begins with.
_TLS_RECORD = 0x1603


class FrameReader:
    """The unfinished frame of one connection."""

    __slots__ = ("_bytes_max", "_filled", "_frame", "_scratch", "_size_bytes")

    def __init__(self, scratch: bytearray, bytes_max: int) -> None:
        self._scratch = scratch
        self._bytes_max = bytes_max
        self._size_bytes = b""
        self._frame: bytearray | None = None
        self._filled = 0

    def buffer(self) -> memoryview:
        """Return where the next bytes are to be read to."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return memoryview(self._scratch)

    def received(self, count: int) -> Iterable[bytearray]:
        """Give the frames that `count` more bytes complete; raise when one is too large."""
        if self._frame is None and not self._size_bytes and count > _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(self._scratch)
            if size == count - _SIZE_BYTES <= self._bytes_max:
                # What comes is most often one whole frame.
                return (self._scratch[_SIZE_BYTES:count],)
        return self._all_received(count)

    def _all_received(self, count: int) -> Iterator[bytearray]:
        if self._frame is not None:
            self._filled += count
            if self._filled == len(self._frame):
                frame, self._frame = self._frame, None
                yield frame
            return
        yield from self._cut(memoryview(self._scratch)[:count])

    def _cut(self, data: memoryview) -> Iterator[bytearray]:
        position = 0
        while position < len(data):
            missing = _SIZE_BYTES - len(self._size_bytes)
            self._size_bytes += data[position : position + missing]
            position += missing
            if len(self._size_bytes) < _SIZE_BYTES:
                return
            size = self._checked_size()
            end = position + size
            if end <= len(data):
                yield bytearray(data[position:end])
            else:
                self._frame = bytearray(size)
                self._filled = len(data) - position
                self._frame[: self._filled] = data[position:]
            position = end

    def _checked_size(self) -> int:
        (size,) = _SIZE.unpack(self._size_bytes)
        self._size_bytes = b""
        if not 0 < size <= self._bytes_max:
            is_tls = size >> 16 == _TLS_RECORD
            hint = "; so begins a connection with TLS, and here is none" if is_tls else ""
            raise InvalidRequest(
                f"a frame of {size} bytes was announced, the limit is {self._bytes_max}{hint}"
            )
        return int(size)
