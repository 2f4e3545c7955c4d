import pytest

from penstock.log import StateEntry
from penstock.log.state import STATE_HEADER_BYTES, read_state_entry

ENTRY = StateEntry(index=12, term=3, next_offset=500, payload=b"lease 7")


def test_an_entry_comes_back_as_it_was_packed() -> None:
    packed = ENTRY.pack()

    assert len(packed) == ENTRY.size_bytes == STATE_HEADER_BYTES + 7 == 39
    assert read_state_entry(packed) == ENTRY
    assert read_state_entry(b"junk" + packed + b"more", 4) == ENTRY


def test_an_empty_payload_is_a_payload() -> None:
    entry = StateEntry(0, 0, 0, b"")

    assert read_state_entry(entry.pack()) == entry


@pytest.mark.parametrize("size", range(ENTRY.size_bytes))
def test_an_entry_cut_short_is_none(size: int) -> None:
    assert read_state_entry(ENTRY.pack()[:size]) is None


@pytest.mark.parametrize("bit", range(ENTRY.size_bytes * 8))
def test_an_entry_with_a_flipped_bit_is_none(bit: int) -> None:
    packed = bytearray(ENTRY.pack())
    packed[bit // 8] ^= 1 << bit % 8

    assert read_state_entry(packed + bytes(100)) is None


def test_zeros_are_no_entry() -> None:
    assert read_state_entry(bytes(4_096)) is None
