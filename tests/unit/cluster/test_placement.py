"""Where replicas go, and how few of them have to move."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.described import Node, Replicas
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.placement import choose_replicas, plan_moves, plan_shard_replicas
from penstock.errors import InvalidReplication


def cluster(nodes: int, *places: tuple[int, ...]) -> ClusterMetadata:
    """Return metadata with logs on these nodes."""
    metadata = ClusterMetadata()
    for node in range(1, nodes + 1):
        metadata.nodes[node] = Node(node, 100 + node, "host", 1, "host", 2, 3)
    metadata.shards = [
        Replicas(number, members, members)
        for number, place in enumerate(places)
        for members in [tuple((node, 100 + node) for node in place)]
    ]
    return metadata


def test_new_partitions_are_spread_over_the_nodes() -> None:
    placement = choose_replicas(cluster(4), 8, 3, reachable=range(1, 5))

    assert set(Counter(members[0][0] for members in placement).values()) == {2}
    assert set(Counter(node for members in placement for node, _ in members).values()) == {6}


def test_a_node_that_is_being_drained_gets_nothing() -> None:
    metadata = cluster(3)
    metadata.draining.add(2)

    assert choose_replicas(metadata, 1, 2, reachable=[1, 2, 3]) == [((1, 101), (3, 103))]
    with pytest.raises(InvalidReplication, match="factor 3 was asked for, the cluster has 2 nodes"):
        choose_replicas(metadata, 1, 3, reachable=[1, 2, 3])


def test_nodes_out_of_reach_get_replicas_only_where_there_are_not_enough_others() -> None:
    alone = choose_replicas(cluster(3), 6, 1, reachable=[1, 3])
    pairs = choose_replicas(cluster(3), 6, 2, reachable=[1, 3])
    all_of_them = choose_replicas(cluster(3), 6, 3, reachable=[1, 3])

    assert Counter(node for members in alone for node, _ in members) == {1: 3, 3: 3}
    assert {node for members in pairs for node, _ in members} == {1, 3}
    assert [len(members) for members in all_of_them] == [3] * 6
    assert Counter(members[0][0] for members in all_of_them) == {1: 3, 3: 3}


def test_a_newcomer_takes_its_share_of_replicas_and_leads() -> None:
    metadata = cluster(4, *[(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 4)

    moves = plan_moves(metadata, [1, 2, 3, 4])

    assert len(moves) == 9
    places = [moves.get(each.group, each.nodes) for each in metadata.shards]
    assert Counter(node for place in places for node in place) == {1: 9, 2: 9, 3: 9, 4: 9}
    assert Counter(place[0] for place in places) == {1: 3, 2: 3, 3: 3, 4: 3}


def test_nothing_moves_in_a_cluster_that_is_balanced() -> None:
    assert plan_moves(cluster(3, (1, 2), (2, 3), (3, 1)), [1, 2, 3]) == {}
    assert plan_moves(cluster(3, (1, 2), (2, 3)), [1, 2, 3]) == {}


def test_nodes_out_of_reach_or_draining_neither_give_nor_take() -> None:
    metadata = cluster(4, *[(1, 2)] * 4)
    metadata.draining.add(4)

    moves = plan_moves(metadata, [1, 3, 4])

    assert all(4 not in place and 2 in place for place in moves.values())
    assert len(moves) == 2


def test_a_log_that_is_changing_is_left_alone() -> None:
    metadata = cluster(2, (1,), (1,), (1,), (1,))
    changing = Replicas(0, ((1, 101),), ((1, 101),), (), ((2, 102),))
    metadata.shards[0] = changing

    assert 0 not in plan_moves(metadata, [1, 2])


def test_consumer_groups_of_a_cluster_that_has_grown_get_up_to_three_replicas() -> None:
    grown = cluster(4, *[(1,)] * 6, (2, 3, 4))

    planned = plan_shard_replicas(grown, [1, 2, 3, 4])

    assert planned.keys() == set(range(6))
    assert all(len(set(place)) == 3 and 1 in place for place in planned.values())
    counts = Counter(node for place in planned.values() for node in place)
    assert max(counts[node] for node in (2, 3, 4)) - min(counts[node] for node in (2, 3, 4)) <= 1
    assert set(Counter(place[0] for place in planned.values()).values()) <= {1, 2}


def test_consumer_groups_get_no_replicas_where_no_node_can_take_them() -> None:
    metadata = cluster(4, (1,), (1, 2))
    metadata.draining.add(3)

    assert plan_shard_replicas(metadata, [1, 2, 3]) == {0: (1, 2)}
    assert plan_shard_replicas(metadata, [1]) == {}
    metadata.shards[0] = Replicas(0, (), ((1, 101),), (), ((2, 102),))
    assert plan_shard_replicas(metadata, [1, 2, 4]) == {1: (2, 4, 1)}


@given(
    nodes=st.integers(1, 6),
    places=st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True), max_size=30),
)
def test_a_plan_keeps_every_number_of_replicas_and_leaves_nobody_worse(
    nodes: int, places: list[list[int]]
) -> None:
    kept = [tuple(place) for place in places if max(place) <= nodes]
    metadata = cluster(nodes, *kept)

    moves = plan_moves(metadata, range(1, nodes + 1))

    after = [moves.get(number, place) for number, place in enumerate(kept)]
    for before, place in zip(kept, after, strict=True):
        assert len(set(place)) == len(before)
        assert len(set(before) - set(place)) <= 1
    spread = [spread_of(each, nodes) for each in (kept, after)]
    assert spread[1] <= spread[0]


def spread_of(places: list[tuple[int, ...]], nodes: int) -> int:
    counts = Counter(node for place in places for node in place)
    values = [counts[node] for node in range(1, nodes + 1)]
    return max(values) - min(values)
