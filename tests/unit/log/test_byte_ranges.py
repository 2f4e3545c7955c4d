from hypothesis import given
from hypothesis import strategies as st

from penstock.log.byte_ranges import ByteRanges

END = 40
_ranges = st.tuples(st.integers(0, END), st.integers(0, END))


@given(st.lists(_ranges))
def test_positions_are_found_as_in_a_set_of_them(added: list[tuple[int, int]]) -> None:
    ranges, positions = ByteRanges(), set()

    for start, end in added:
        ranges.add(start, end)
        positions.update(range(start, end))

    for position in range(END):
        end = next(each for each in range(position, END + 1) if each not in positions)
        assert ranges.end_from(position) == end


def test_too_many_ranges_are_forgotten() -> None:
    ranges = ByteRanges()

    for number in range(1_001):
        ranges.add(2 * number, 2 * number + 1)

    assert ranges.end_from(0) == 0
    assert ranges.end_from(2_000) == 2_001
