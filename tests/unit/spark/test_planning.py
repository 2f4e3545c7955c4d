"""Ranges are split and limited without gap or overlap."""

import pytest

from penstock.errors import InvalidRequest
from penstock.ids import TopicPartition
from penstock.spark import RecordRange, split_ranges
from penstock.spark.planning import (
    created_anew,
    ids_from_json,
    limit_offsets,
    make_ranges,
    offsets_from_json,
    offsets_to_json,
)

A, B, C = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))


def covered(ranges: list[RecordRange]) -> list[tuple[str, int, int]]:
    return [
        (each.topic, each.partition, offset)
        for each in ranges
        for offset in range(each.start, each.end)
    ]


@pytest.mark.parametrize("partitions_min", [1, 2, 3, 7, 50, 10_000])
@pytest.mark.parametrize("records_max", [None, 1, 7, 1000])
def test_pieces_cover_exactly_what_they_were_cut_from(
    partitions_min: int, records_max: int | None
) -> None:
    ranges = [RecordRange("a", 0, 5, 105), RecordRange("a", 1, 0, 3), RecordRange("b", 0, 9, 10)]

    pieces = split_ranges(ranges, partitions_min=partitions_min, records_max=records_max)

    assert covered(pieces) == covered(ranges)
    assert len(pieces) >= min(partitions_min, 104)
    assert all(len(piece) <= (records_max or 100) for piece in pieces)


def test_empty_ranges_are_no_tasks() -> None:
    assert make_ranges({A: 5, B: 0}, {A: 5, B: 2}) == [RecordRange("a", 1, 0, 2)]


def test_a_limit_is_shared_in_proportion_and_no_partition_waits_forever() -> None:
    start, end = {A: 0, B: 100, C: 7}, {A: 900, B: 200, C: 8}

    limited = limit_offsets(start, end, 100)

    assert sum(limited[place] - start[place] for place in start) <= 100
    assert all(start[place] < limited[place] <= end[place] for place in start)
    assert limited[A] - start[A] > 5 * (limited[B] - start[B])


def test_a_limit_above_what_is_there_changes_nothing() -> None:
    assert limit_offsets({A: 0}, {A: 10}, 10) == {A: 10}


def test_every_limit_above_zero_makes_progress_until_the_end() -> None:
    end = {A: 50, B: 3, C: 1}
    place = {A: 0, B: 0, C: 0}
    for _ in range(1000):
        place = limit_offsets(place, end, 1)

    assert place == end


def test_a_partition_that_went_back_does_not_lend_its_offsets_to_others() -> None:
    limited = limit_offsets({A: 100, B: 0}, {A: 10, B: 80}, 20)

    assert limited == {A: 10, B: 20}


def test_offsets_survive_a_checkpoint() -> None:
    offsets = {C: 3, B: 2, A: 1}

    assert offsets_to_json(offsets) == {"a": {"0": 1, "1": 2}, "b": {"0": 3}}
    assert offsets_from_json(offsets_to_json(offsets)) == offsets


def test_ids_of_topics_survive_a_checkpoint_beside_the_offsets() -> None:
    tree = offsets_to_json({A: 1, C: 3}, {"a": "id-a", "b": "id-b", "elsewhere": "id-c"})

    assert offsets_from_json(tree) == {A: 1, C: 3}
    assert ids_from_json(tree) == {"a": "id-a", "b": "id-b"}
    assert ids_from_json(offsets_to_json({A: 1})) == {}


def test_a_topic_is_created_anew_when_its_id_is_another_one() -> None:
    known, ids = {"a": "1", "b": "2", "gone": "3"}, {"a": "1", "b": "9", "new": "4"}

    assert created_anew(known, ids) == {"b"}


@pytest.mark.parametrize("tree", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": "1"}}, [1], 7, None])
def test_a_checkpoint_of_another_source_is_told(tree: object) -> None:
    with pytest.raises(InvalidRequest, match="which are not offsets of this source"):
        offsets_from_json(tree)
