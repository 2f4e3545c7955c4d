"""The four codecs of Kafka clients.

Snappy comes in two forms: the raw block that librdkafka writes and the chunked stream of the Java
library, told apart by its magic bytes.
"""

import struct
from enum import IntEnum

import cramjam

from penstock.errors import InvalidBatch, UnsupportedCompression

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_CHUNK_SIZE = struct.Struct(">i")


class Codec(IntEnum):
    """The compression code in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(codec: int, data: bytes | memoryview) -> bytes:
    """Return the plain bytes; raise `InvalidBatch` when they cannot be had."""
    try:
        match codec:
            case Codec.NONE:
                return bytes(data)
            case Codec.GZIP:
                return bytes(cramjam.gzip.decompress(data))
            case Codec.SNAPPY:
                return _decompress_snappy(bytes(data))
            case Codec.LZ4:
                return bytes(cramjam.lz4.decompress(data))
            case Codec.ZSTD:
                return bytes(cramjam.zstd.decompress(data))
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
