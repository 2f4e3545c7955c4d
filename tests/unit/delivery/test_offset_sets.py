import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from penstock.delivery.offset_sets import cut_at, next_member, run_end

OFFSETS = st.sets(st.integers(0, 300), min_size=1)


@given(OFFSETS)
def test_a_run_ends_at_the_first_offset_that_is_missing(offsets: set[int]) -> None:
    start = min(offsets)

    end = run_end(BitMap64(offsets), start)

    assert offsets.issuperset(range(start, end))
    assert end not in offsets


@given(OFFSETS, st.integers(0, 310))
def test_the_next_member_is_the_smallest_from_there_on(offsets: set[int], start: int) -> None:
    expected = min((each for each in offsets if each >= start), default=None)

    assert next_member(BitMap64(offsets), start) == expected
    assert cut_at(BitMap64(offsets), start, 305) == (305 if expected is None else expected)


@pytest.mark.parametrize("offsets", [None, BitMap64()])
def test_an_empty_set_has_no_next_member(offsets: BitMap64 | None) -> None:
    assert next_member(offsets, 0) is None
