"""Where replicas go: those of new partitions, and existing ones when nodes come or go."""

from collections import Counter
from collections.abc import Collection, Sequence

from penstock.cluster.described import Replicas
from penstock.cluster.metadata import ClusterMetadata
from penstock.errors import InvalidReplication

SHARD_REPLICAS = 3
"""How many replicas the logs of consumer groups have, where there are as many nodes."""


def choose_replicas(
    metadata: ClusterMetadata,
    partitions: int,
    replication_factor: int,
    *,
    reachable: Collection[int],
) -> list[tuple[tuple[int, int], ...]]:
    """Return the members of each new partition.

    The first member of each is meant to lead it. Replicas go to the nodes that have the fewest,
    leads to those of them that have the fewest. Replicas stay balanced within one; leads do while
    all partitions have the same replication factor, and within two otherwise. Nodes that cannot be
    reached get replicas only where there are not enough others, and none to lead.
    """
    nodes = metadata.replica_takers
    if not 1 <= replication_factor <= len(nodes):
        raise InvalidReplication(
            f"replication factor {replication_factor} was asked for,"
            f" the cluster has {len(nodes)} nodes that take replicas"
        )
    leads: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    for replicas in metadata.all_replicas():
        if replicas.members:
            leads[replicas.members[0][0]] += 1
        counts.update(replicas.nodes)
    alive = [node for node in nodes if node in reachable]
    silent = [node for node in nodes if node not in reachable]
    if not alive:
        alive, silent = silent, alive
    placement = []
    for _ in range(partitions):
        chosen = _next_replicas(alive, leads, counts, min(replication_factor, len(alive)))
        silent.sort(key=lambda node: (counts[node], node))
        chosen += silent[: replication_factor - len(chosen)]
        leads[chosen[0]] += 1
        counts.update(chosen)
        placement.append(tuple((node, metadata.nodes[node].incarnation) for node in chosen))
    return placement


def _next_replicas(
    nodes: list[int], leads: Counter[int], counts: Counter[int], replication_factor: int
) -> list[int]:
    """Return the nodes of one partition; the first leads."""
    most = sorted(counts[node] for node in nodes)[replication_factor - 1]
    certain = [node for node in nodes if counts[node] < most]
    possible = [node for node in nodes if counts[node] == most]
    first = min(certain + possible, key=lambda node: (leads[node], counts[node], node))
    # Among equals, those that should lead next are kept for the next partitions.
    possible.sort(key=lambda node: (-leads[node], node))
    others = [node for node in certain + possible if node != first]
    return [first, *others[: replication_factor - 1]]


def plan_moves(metadata: ClusterMetadata, nodes: Collection[int]) -> dict[int, tuple[int, ...]]:
    """Return the nodes of each group that should move, so that no node has two replicas too many.

    Partitions and the logs of consumer groups are spread each by themselves, because they weigh
    differently. Only `nodes` give and take, and only those that are not being drained; a group that
    is changing already stays where it goes. No more is moved than it takes.
    """
    eligible = _eligible(metadata, nodes)
    partitions = [each for topic in metadata.topics.values() for each in topic.replicas]
    return _spread(metadata.shards, eligible) | _spread(partitions, eligible)


def plan_shard_replicas(
    metadata: ClusterMetadata, nodes: Collection[int]
) -> dict[int, tuple[int, ...]]:
    """Return the nodes of each log of consumer groups that can have more replicas than it has.

    Topics have as many as somebody has asked for. Nobody asks for these: a cluster that was founded
    by one node, or was drained down to a few, gets them when it has grown.
    """
    eligible = _eligible(metadata, nodes)
    wanted = min(SHARD_REPLICAS, len(eligible))
    counts = Counter(node for each in metadata.shards for node in each.nodes)
    leads: Counter[int] = Counter()
    planned = {}
    for each in metadata.shards:
        place = list(each.nodes)
        if len(place) < wanted and not (each.former or each.leaving):
            free = [node for node in eligible if node not in place]
            free.sort(key=lambda node: (counts[node], node))
            added = free[: wanted - len(place)]
            counts.update(added)
            place = sorted(
                place + added, key=lambda node: (node not in eligible, leads[node], node)
            )
            planned[each.group] = tuple(place)
        leads.update(place[:1])
    return planned


def _eligible(metadata: ClusterMetadata, nodes: Collection[int]) -> list[int]:
    return sorted(set(nodes) & metadata.nodes.keys() - metadata.draining)


def _spread(logs: Sequence[Replicas], eligible: list[int]) -> dict[int, tuple[int, ...]]:
    places = {each.group: each.nodes for each in logs}
    settled = [each.group for each in logs if not each.former and not each.leaving]
    moved: dict[int, tuple[int, ...]] = {}
    counts = Counter(node for place in places.values() for node in place)
    leads = Counter(place[0] for place in places.values())
    while len(eligible) > 1:
        fullest = max(eligible, key=lambda node: (counts[node], -node))
        emptiest = min(eligible, key=lambda node: (counts[node], node))
        movable = [
            group
            for group in settled
            if group not in moved and fullest in places[group] and emptiest not in places[group]
        ]
        if counts[fullest] - counts[emptiest] < 2 or not movable:
            break
        # Whoever leads more than the other gives away a lead, if it can.
        gives_lead = leads[fullest] - leads[emptiest] > 1
        group = min(
            movable, key=lambda each: ((places[each][0] == fullest) is not gives_lead, each)
        )
        leads.subtract(places[group][:1])
        places[group] = tuple(emptiest if node == fullest else node for node in places[group])
        leads.update(places[group][:1])
        counts.update({fullest: -1, emptiest: 1})
        moved[group] = places[group]
    return moved
