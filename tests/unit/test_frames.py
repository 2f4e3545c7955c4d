from random import Random

import pytest

from penstock.errors import InvalidRequest
from penstock.frames import FrameReader


def feed(reader: FrameReader, data: bytes) -> list[bytes]:
    """Bring bytes in as a loop does: no more than the reader has asked for."""
    found: list[bytes] = []
    while data:
        buffer = reader.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        found += map(bytes, reader.received(count))
        data = data[count:]
    return found


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


BODIES = [b"a", b"b" * 10, b"c" * 63, b"d" * 64, b"e" * 500, b"f"]


@pytest.mark.parametrize("seed", range(30))
def test_frames_are_found_however_the_stream_is_cut(seed: int) -> None:
    random = Random(seed)
    reader = FrameReader(bytearray(64), 1_000)
    data = framed(*BODIES)
    found: list[bytes] = []

    while data:
        count = random.choice((1, 3, 4, 5, 40, 200))
        found += feed(reader, data[:count])
        data = data[count:]

    assert found == BODIES


def test_connections_share_the_memory_they_read_to_and_keep_their_frames_apart() -> None:
    scratch = bytearray(64)
    one, two = FrameReader(scratch, 1_000), FrameReader(scratch, 1_000)

    assert feed(one, framed(b"x" * 50)[:20]) == []
    assert feed(two, framed(b"y" * 50)) == [b"y" * 50]
    assert feed(one, framed(b"x" * 50)[20:]) == [b"x" * 50]


@pytest.mark.parametrize("size", [0, 1_001, 2**31 - 1, -1])
def test_a_size_out_of_bounds_is_refused(size: int) -> None:
    reader = FrameReader(bytearray(64), 1_000)

    with pytest.raises(InvalidRequest, match=f"a frame of {size} bytes"):
        feed(reader, size.to_bytes(4, "big", signed=True))


def test_a_connection_with_tls_where_none_is_spoken_is_told_as_such() -> None:
    reader = FrameReader(bytearray(64), 1_000)

    with pytest.raises(InvalidRequest, match="so begins a connection with TLS"):
        feed(reader, b"\x16\x03\x01\x02\x00\x01")
