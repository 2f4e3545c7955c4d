"""Where the replicas of a new partition go: balanced, first replicas first."""

from collections import Counter

from penstock.cluster.metadata import ClusterMetadata
from penstock.errors import InvalidReplication


def choose_replicas(
    metadata: ClusterMetadata, partitions: int, replication_factor: int
) -> list[tuple[tuple[int, int], ...]]:
    """Return the members of each new partition.

    The first member of each is meant to lead it. Replicas go to the nodes that have the fewest,
    leads to those of them that have the fewest. Replicas stay balanced within one; leads do while
    all partitions have the same replication factor, and within two otherwise.
    """
    nodes = [node for node in metadata.nodes if node not in metadata.draining]
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
    placement = []
    for _ in range(partitions):
        chosen = _next_replicas(nodes, leads, counts, replication_factor)
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
