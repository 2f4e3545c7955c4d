"""How far a reset moves a group."""

from collections.abc import Iterable, Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.moves import (
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    plan_moves,
)
from penstock.client import Admin, OffsetRange
from penstock.errors import InvalidRequest
from penstock.ids import TopicPartition

P0 = TopicPartition("t", 0)
HELD = OffsetRange(start=10, end=20)


class FakeAdmin:
    """Every partition holds 10 up to 20; the record at offset o was stored at time 100 * o."""

    def offset_ranges(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetRange]:
        return dict.fromkeys(partitions, HELD)

    def offsets_at(
        self, partitions: Sequence[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int | None]:
        offset = max(HELD.start, -(-timestamp_ms // 100))
        return dict.fromkeys(partitions, offset if offset < HELD.end else None)


def after(target: Target, before: int | None) -> int:
    committed = {} if before is None else {P0: before}
    admin = cast("Admin", FakeAdmin())
    (move,) = plan_moves(target, [P0], committed=committed, admin=admin)
    assert move.before == before
    return move.after


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (ToEarliest(), 10),
        (ToLatest(), 20),
        (ToOffset(13), 13),
        (ToTime(1_250), 13),
        (ToTime(9_999), 20),
        (ShiftBy(3), 18),
        (ShiftBy(-2), 13),
    ],
)
def test_a_target_is_found_in_a_partition(target: Target, expected: int) -> None:
    assert after(target, before=15) == expected


def test_a_group_without_an_offset_can_be_given_one() -> None:
    assert after(ToEarliest(), before=None) == 10


def test_a_shift_needs_an_offset_to_shift_from() -> None:
    with pytest.raises(InvalidRequest, match="no offset in t-0 to shift from"):
        after(ShiftBy(1), before=None)


@given(
    st.one_of(
        st.builds(ToOffset, st.integers(0, 10**12)),
        st.builds(ShiftBy, st.integers(-(10**12), 10**12)),
        st.builds(ToTime, st.integers(0, 10**12)),
    ),
    st.integers(0, 10**12),
)
def test_no_target_leads_out_of_what_a_partition_holds(target: Target, before: int) -> None:
    assert HELD.start <= after(target, before) <= HELD.end
