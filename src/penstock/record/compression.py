"""The four codecs of Kafka clients.

Snappy comes in two forms: the raw block that librdkafka writes and the chunked stream of the Java
library, told apart by its magic bytes.

A few kilobytes can be made that unpack to gigabytes, so there is a limit to what is unpacked.
"""

import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam

from penstock.errors import BatchTooLarge, InvalidBatch, UnsupportedCompression

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_CHUNK_SIZE = struct.Struct(">i")
# What is unpacked may be so large, or so many times larger than it was, whichever is more.
UNPACKED_BYTES_MAX = 128 * 1024 * 1024
UNPACKED_TIMES_MAX = 32
# No input of these codecs unpacks to more times its size. Snappy's is below what may be unpacked.
_GZIP_TIMES_MAX = 1_040
_LZ4_TIMES_MAX = 256
# What most batches unpack to takes less room than this; more is made where it does not.
_ROOM_TIMES = 6
_ROOM_BYTES_MIN = 8 * 1024
# How the library says so; it has one error for everything.
_ROOM_IS_FULL = "failed to write whole buffer"


class Codec(IntEnum):
    """The compression code in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(codec: int, data: bytes | memoryview) -> bytes:
    """Return the plain bytes; raise `InvalidBatch` when they cannot be had or are too many."""
    try:
        match codec:
            case Codec.NONE:
                return bytes(data)
            case Codec.GZIP:
                if len(data) * _GZIP_TIMES_MAX > UNPACKED_BYTES_MAX:
                    return _decompress_bounded(cramjam.gzip.decompress_into, data)
                return bytes(cramjam.gzip.decompress(data))
            case Codec.SNAPPY:
                return _decompress_snappy(bytes(data))
            case Codec.LZ4:
                if len(data) * _LZ4_TIMES_MAX > UNPACKED_BYTES_MAX:
                    return _decompress_bounded(cramjam.lz4.decompress_into, data)
                return bytes(cramjam.lz4.decompress(data))
            case Codec.ZSTD:
                return _decompress_bounded(cramjam.zstd.decompress_into, data)
    except (cramjam.DecompressionError, struct.error) as error:
        raise InvalidBatch(f"{Codec(codec).name.lower()} data cannot be read: {error}") from error
    raise UnsupportedCompression(f"compression code {codec} is unknown; the known ones are 0 to 4")


def compress(codec: int, data: bytes) -> bytes:
    """Return `data` under `codec`, readable by every Kafka client."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data))
        case Codec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(data))
        case Codec.LZ4:
            return bytes(cramjam.lz4.compress(data))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data))
    raise UnsupportedCompression(f"compression code {codec} is unknown; the known ones are 0 to 4")


def _decompress_bounded(
    unpack_into: Callable[[bytes | memoryview, bytearray], int], data: bytes | memoryview
) -> bytes:
    most = max(UNPACKED_BYTES_MAX, len(data) * UNPACKED_TIMES_MAX)
    size_bytes = min(most, len(data) * _ROOM_TIMES + _ROOM_BYTES_MIN)
    while True:
        room = bytearray(size_bytes)
        try:
            used = unpack_into(data, room)
        except cramjam.DecompressionError as error:
            if _ROOM_IS_FULL not in str(error):
                raise
        else:
            return bytes(memoryview(room)[:used])
        if size_bytes == most:
            raise BatchTooLarge(
                f"{len(data)} bytes of a batch unpack to more than {most} bytes, which is the limit"
            )
        size_bytes = min(most, size_bytes * _ROOM_TIMES)


def _decompress_snappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    plain = bytearray()
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        (size,) = _CHUNK_SIZE.unpack_from(data, position)
        position += _CHUNK_SIZE.size
        if size < 0 or position + size > len(data):
            raise InvalidBatch(f"a snappy chunk says that it has {size} bytes")
        plain += cramjam.snappy.decompress_raw(data[position : position + size])
        position += size
    return bytes(plain)
