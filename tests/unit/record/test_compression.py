import random
import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BatchTooLarge, InvalidBatch, InvalidRequest, UnsupportedCompression
from penstock.record import Codec, compress, compression, decompress

PLAIN = b"a penstock carries a river to a turbine " * 50


def xerial(*chunks: bytes) -> bytes:
    """Build the stream of the Java library: magic, version, lowest version, then chunks."""
    stream = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for chunk in chunks:
        packed = bytes(cramjam.snappy.compress_raw(chunk))
        stream += struct.pack(">i", len(packed)) + packed
    return stream


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("plain", [b"", b"x", PLAIN])
def test_each_codec_gives_back_what_it_took(codec: Codec, plain: bytes) -> None:
    packed = compress(codec, plain)

    assert decompress(codec, packed) == plain
    assert decompress(codec, memoryview(packed)) == plain
    assert codec == Codec.NONE or not plain or packed != plain


def test_snappy_of_the_java_library_is_read() -> None:
    assert decompress(Codec.SNAPPY, xerial(PLAIN[:700], PLAIN[700:])) == PLAIN
    assert decompress(Codec.SNAPPY, xerial()) == b""


@pytest.mark.parametrize("size", [-1, -4, -20, -(2**31), 10_000])
def test_a_snappy_chunk_of_impossible_size_is_refused(size: int) -> None:
    stream = xerial(PLAIN) + struct.pack(">i", size) + b"\x00\x00"

    with pytest.raises(InvalidBatch):
        decompress(Codec.SNAPPY, stream)


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.GZIP, bytes(cramjam.gzip.compress(PLAIN, level=9))),
        (Codec.LZ4, bytes(cramjam.lz4.compress(PLAIN, level=9))),
        (Codec.ZSTD, bytes(cramjam.zstd.compress(PLAIN, level=1))),
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(PLAIN))),
    ],
)
def test_what_other_encoders_wrote_is_read(codec: Codec, packed: bytes) -> None:
    assert decompress(codec, packed) == PLAIN


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_no_more_is_unpacked_than_the_limit(monkeypatch: pytest.MonkeyPatch, codec: Codec) -> None:
    most = 1_000_000
    monkeypatch.setattr(compression, "UNPACKED_BYTES_MAX", most)

    assert decompress(codec, compress(codec, bytes(most))) == bytes(most)
    with pytest.raises(BatchTooLarge, match=f"more than {most} bytes"):
        decompress(codec, compress(codec, bytes(most + 1)))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_what_is_large_before_it_is_unpacked_may_be_as_many_times_larger(
    monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    monkeypatch.setattr(compression, "UNPACKED_BYTES_MAX", 1_000)
    plain = random.Random(1).randbytes(5_000) * 2

    assert decompress(codec, compress(codec, plain)) == plain


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_bytes_that_cannot_be_unpacked_are_told_from_those_that_are_too_many(
    monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    monkeypatch.setattr(compression, "UNPACKED_BYTES_MAX", 1_000)

    with pytest.raises(InvalidBatch, match="cannot be read"):
        decompress(codec, compress(codec, PLAIN)[:-8])


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codes_are_refused(codec: int) -> None:
    with pytest.raises(UnsupportedCompression, match=str(codec)):
        decompress(codec, b"")
    with pytest.raises(UnsupportedCompression, match=str(codec)):
        compress(codec, b"")


@given(codec=st.integers(0, 7), data=st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(codec: int, data: bytes) -> None:
    try:
        decompress(codec, data)
    except InvalidRequest:
        return


@given(codec=st.sampled_from(list(Codec)[1:]), cut=st.integers(0, 60))
def test_a_stream_cut_short_is_refused(codec: Codec, cut: int) -> None:
    packed = compress(codec, PLAIN)

    try:
        plain = decompress(codec, packed[: min(cut, len(packed) - 1)])
    except InvalidRequest:
        return

    # Some decoders return what they could read; that is never more than was there.
    assert PLAIN.startswith(plain)


@given(data=st.binary(max_size=120))
def test_arbitrary_snappy_streams_of_the_java_form_end(data: bytes) -> None:
    try:
        decompress(Codec.SNAPPY, b"\x82SNAPPY\x00" + data)
    except InvalidRequest:
        return
