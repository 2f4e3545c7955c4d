"""Where new replicas go."""

import uuid
from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from penstock.cluster import ClusterMetadata, choose_replicas
from penstock.cluster.metadata import Command, CreateTopic, Node, RegisterNode, encode_command
from penstock.errors import InvalidReplication
from penstock.log import StateEntry


def applied(metadata: ClusterMetadata, command: Command) -> None:
    metadata.apply_state(StateEntry(1, 1, 0, encode_command(command)))


def cluster_of(nodes: int) -> ClusterMetadata:
    metadata = ClusterMetadata()
    for node in range(1, nodes + 1):
        applied(metadata, RegisterNode(Node(node, 10 * node, "peer", 1, "kafka", 2, 3)))
    return metadata


def spread(counts: Counter[int], metadata: ClusterMetadata) -> int:
    numbers = [counts[node] for node in metadata.nodes]
    return max(numbers) - min(numbers)


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("factor", [1, 2, 3, 5])
def test_leads_and_replicas_stay_balanced_within_one_topic_after_topic(
    nodes: int, factor: int
) -> None:
    if factor > nodes:
        return
    metadata = cluster_of(nodes)
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for number, partitions in enumerate([1, 3, 2, 7, 1, 1, 5, 4]):
        placement = choose_replicas(metadata, partitions, factor)
        applied(metadata, CreateTopic(f"topic{number}", uuid.uuid4(), placement, {}))

        for members in placement:
            assert len({node for node, _ in members}) == factor
            leads[members[0][0]] += 1
            replicas.update(node for node, _ in members)
        assert spread(leads, metadata) <= 1
        assert spread(replicas, metadata) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_replicas_stay_balanced_also_when_topics_differ_in_their_factor(seed: int) -> None:
    random = Random(seed)
    metadata = cluster_of(random.randint(2, 7))
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for number in range(40):
        factor = random.randint(1, len(metadata.nodes))
        placement = choose_replicas(metadata, random.randint(1, 5), factor)
        applied(metadata, CreateTopic(f"topic{number}", uuid.uuid4(), placement, {}))

        leads.update(members[0][0] for members in placement)
        replicas.update(node for members in placement for node, _ in members)
        assert spread(replicas, metadata) <= 1
        assert spread(leads, metadata) <= 2


def test_members_are_named_with_their_incarnations() -> None:
    metadata = cluster_of(3)

    (members,) = choose_replicas(metadata, 1, 3)

    assert sorted(members) == [(1, 10), (2, 20), (3, 30)]


def test_a_node_that_comes_later_is_given_the_next_replicas() -> None:
    metadata = cluster_of(2)
    applied(metadata, CreateTopic("old", uuid.uuid4(), choose_replicas(metadata, 6, 1), {}))
    applied(metadata, RegisterNode(Node(3, 30, "peer", 1, "kafka", 2, 3)))

    placement = choose_replicas(metadata, 3, 1)

    assert [members[0][0] for members in placement] == [3, 3, 3]


@pytest.mark.parametrize("factor", [-1, 0, 4])
def test_a_factor_that_the_cluster_cannot_meet_is_refused(factor: int) -> None:
    with pytest.raises(InvalidReplication, match=f"{factor} was asked for.* 3 nodes"):
        choose_replicas(cluster_of(3), 1, factor)


def test_neighbouring_partitions_are_led_by_different_nodes() -> None:
    placement = choose_replicas(cluster_of(3), 9, 3)

    leads = [members[0][0] for members in placement]
    assert all(one != other for one, other in pairwise(leads))
