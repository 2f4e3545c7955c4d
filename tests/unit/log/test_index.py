import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Corruption
from penstock.log import EntryKind, Row
from penstock.log.index import (
    HEADER_BYTES,
    ROW_BYTES,
    IndexHeader,
    IndexTable,
    read_index_header,
    read_row,
)

HEADER = IndexHeader(first_index=7, first_offset=40, previous_term=2, created_ms=99, cleaned_ms=5)
ROW = Row(3, EntryKind.RECORDS, 2, 80, 40, 0, 0, 1_000, 1)


def test_header_and_rows_have_their_documented_sizes() -> None:
    assert (len(HEADER.pack()), len(ROW.pack())) == (HEADER_BYTES, ROW_BYTES) == (64, 56)


def test_header_comes_back_as_it_was_packed() -> None:
    assert read_index_header(HEADER.pack(), "f") == HEADER


@pytest.mark.parametrize("position", range(52))
def test_a_flipped_bit_in_the_header_is_found(position: int) -> None:
    packed = bytearray(HEADER.pack())
    packed[position] ^= 1

    with pytest.raises(Corruption, match=r"some\.index"):
        read_index_header(packed, "some.index")


@pytest.mark.parametrize("size", range(HEADER_BYTES))
def test_a_header_cut_short_is_found(size: int) -> None:
    with pytest.raises(Corruption, match=f"{size} bytes"):
        read_index_header(HEADER.pack()[:size], "f")


@pytest.mark.parametrize("position", range(ROW_BYTES))
def test_a_flipped_bit_in_a_row_is_found(position: int) -> None:
    packed = bytearray(ROW.pack())
    packed[position] ^= 0x80

    assert read_row(HEADER.pack() + packed, 0) is None
    table = IndexTable.mapped(HEADER, HEADER.pack() + bytes(packed), 1)
    assert table.checked_row(0) is None


def test_rows_are_read_by_number() -> None:
    other = ROW._replace(first_offset=42, log_position=80)
    data = HEADER.pack() + ROW.pack() + other.pack() + b"torn"

    assert [read_row(data, number) for number in range(3)] == [ROW, other, None]


def test_ends_follow_from_kind_and_size() -> None:
    state = Row(3, EntryKind.STATE, 0, 50, 42, 80, 10, 1_000, 0)

    assert (ROW.next_offset, ROW.log_end, ROW.state_end) == (42, 80, 0)
    assert (state.next_offset, state.log_end, state.state_end) == (42, 80, 60)


def test_an_empty_table_answers_from_its_header() -> None:
    table = IndexTable.empty(HEADER)

    assert (table.next_index, table.next_offset, table.max_timestamp) == (7, 40, -1)
    assert table.last() is None


def test_a_growing_table_begins_with_the_rows_of_a_file_and_can_be_cut() -> None:
    file = HEADER.pack() + ROW.pack() * 3

    table = IndexTable.growing(HEADER, file, 2)
    table.append(ROW._replace(first_offset=42))

    assert (table.count, table.next_index, table.next_offset) == (3, 10, 44)
    table.truncate(1)
    assert (table.count, table.next_offset) == (1, 42)


def test_a_mapped_table_refuses_to_change() -> None:
    table = IndexTable.mapped(HEADER, HEADER.pack() + ROW.pack(), 1)

    assert table.row(0) == ROW
    with pytest.raises(AssertionError):
        table.append(ROW)
    with pytest.raises(AssertionError):
        table.truncate(0)


@st.composite
def tables(draw: st.DrawFn) -> IndexTable:
    table = IndexTable.empty(HEADER)
    offset, log, state, newest = 40, 0, 0, -1
    for _ in range(draw(st.integers(0, 12))):
        if draw(st.booleans()):
            count, size = draw(st.integers(1, 3)), draw(st.sampled_from((0, 61, 100)))
            newest = max(newest, draw(st.integers(0, 20)))
            table.append(Row(1, EntryKind.RECORDS, count, size, offset, log, state, newest, 0))
            offset, log = offset + count, log + size
        else:
            table.append(Row(1, EntryKind.STATE, 0, 40, offset, log, state, newest, 0))
            state += 40
    return table


@given(table=tables(), offset=st.integers(38, 80), position=st.integers(0, 1_300))
def test_binary_searches_agree_with_walks(table: IndexTable, offset: int, position: int) -> None:
    rows = [table.row(number) for number in range(table.count)]

    assert table.number_of_offset(offset) == max(
        (number for number, row in enumerate(rows) if row.first_offset <= offset), default=0
    )
    assert table.number_past_position(position) == sum(r.log_position <= position for r in rows)
    assert table.number_of_position(position) == sum(r.log_position < position for r in rows)
    for timestamp in range(-1, 22):
        assert table.number_of_time(timestamp) == sum(r.max_timestamp < timestamp for r in rows)
