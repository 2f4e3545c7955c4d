"""Who should read which partition."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.groups.assignment import Assignment
from penstock.groups.assignor import Candidate, ranged, uniform

T1, T2, T3 = (UUID(int=number) for number in (1, 2, 3))


def loads(assignments: dict[str, Assignment]) -> list[int]:
    return [sum(map(len, assignment.values())) for assignment in assignments.values()]


def pairs(assignment: Assignment) -> set[tuple[UUID, int]]:
    return {(topic, partition) for topic, held in assignment.items() for partition in held}


def test_uniform_counts_partitions_of_all_topics_together() -> None:
    wish = Candidate(frozenset({T1, T2, T3}), {})

    assignments = uniform({"a": wish, "b": wish}, {T1: 1, T2: 1, T3: 1})

    assert sorted(loads(assignments)) == [1, 2]


def test_uniform_passes_partitions_along_when_subscriptions_differ() -> None:
    candidates = {
        "a": Candidate(frozenset({T1}), {}),
        "b": Candidate(frozenset({T1, T2}), {T1: frozenset({0, 1}), T2: frozenset({0, 1})}),
        "c": Candidate(frozenset({T2}), {}),
    }

    assignments = uniform(candidates, {T1: 2, T2: 2})

    assert sorted(loads(assignments)) == [1, 1, 2]


def test_a_topic_that_nobody_reads_goes_to_nobody() -> None:
    assignments = uniform({"a": Candidate(frozenset({T1}), {})}, {T1: 2, T2: 2})

    assert assignments == {"a": {T1: frozenset({0, 1})}}


def test_range_cuts_all_topics_at_the_same_places() -> None:
    wish = Candidate(frozenset({T1, T2}), {})

    assignments = ranged({"a": wish, "b": wish}, {T1: 5, T2: 5})

    assert assignments["a"] == {T1: frozenset({0, 1, 2}), T2: frozenset({0, 1, 2})}
    assert assignments["b"] == {T1: frozenset({3, 4}), T2: frozenset({3, 4})}


def test_range_lines_members_up_by_instance_id() -> None:
    topics = frozenset({T1})
    candidates = {"z": Candidate(topics, {}, "1"), "a": Candidate(topics, {}, "2")}

    assignments = ranged(candidates, {T1: 2})

    assert assignments == {"z": {T1: frozenset({0})}, "a": {T1: frozenset({1})}}


member_ids = st.sets(st.sampled_from("abcdefgh"), min_size=1)
counts = st.dictionaries(st.sampled_from([T1, T2, T3]), st.integers(0, 9), min_size=1)


@settings(max_examples=100, deadline=None)
@given(members=member_ids, former=member_ids, counts=counts, former_counts=counts)
def test_uniform_is_balanced_within_one_and_moves_as_little_as_possible(
    members: set[str],
    former: set[str],
    counts: dict[UUID, int],
    former_counts: dict[UUID, int],
) -> None:
    before = uniform({m: Candidate(frozenset(former_counts), {}) for m in former}, former_counts)
    wish = frozenset(counts)
    candidates = {m: Candidate(wish, before.get(m, {})) for m in members}

    after = uniform(candidates, counts)

    existing = {(topic, p) for topic, count in counts.items() for p in range(count)}
    assert sorted(p for m in members for p in pairs(after[m])) == sorted(existing)
    assert max(loads(after)) - min(loads(after)) <= 1
    kept = {m: pairs(before.get(m, {})) & existing for m in members}
    share, extra = divmod(len(existing), len(members))
    above = [len(held) - share for held in kept.values() if len(held) > share]
    moved = sum(len(kept[m] - pairs(after[m])) for m in members)
    assert moved == sum(above) - min(extra, len(above))


wishes = st.dictionaries(
    st.sampled_from("abcdef"),
    st.frozensets(st.sampled_from([T1, T2, T3])),
    min_size=1,
)


@settings(max_examples=100, deadline=None)
@given(wishes=wishes, former=wishes, counts=counts)
def test_uniform_leaves_nobody_who_could_be_relieved_directly(
    wishes: dict[str, frozenset[UUID]],
    former: dict[str, frozenset[UUID]],
    counts: dict[UUID, int],
) -> None:
    before = uniform({m: Candidate(wish, {}) for m, wish in former.items()}, counts)
    candidates = {m: Candidate(wish, before.get(m, {})) for m, wish in wishes.items()}

    after = uniform(candidates, counts)

    read = frozenset().union(*wishes.values())
    given_out = [pair for assignment in after.values() for pair in pairs(assignment)]
    assert len(given_out) == len(set(given_out)) == sum(counts.get(topic, 0) for topic in read)
    for giver, held in after.items():
        assert held.keys() <= wishes[giver]
        for receiver, wish in wishes.items():
            if wish & held.keys():
                difference = len(pairs(held)) - len(pairs(after[receiver]))
                assert difference <= 1
