"""Where the replicas of a new partition go: balanced, first replicas first."""

from collections import Counter

from penstock.cluster.metadata import ClusterMetadata
from penstock.errors import InvalidReplication


def choose_replicas(
    metadata: ClusterMetadata, partitions: int, replication_factor: int
) -> list[tuple[tuple[int, int], ...]]:
    """Return the members of each new partition.

    The first member of each is meant to lead it. Nodes with the fewest leads, then the fewest
    replicas, come first, so that both stay balanced within one.
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
        first = min(nodes, key=lambda node: (leads[node], counts[node], node))
        others = sorted(
            (node for node in nodes if node != first),
            key=lambda node: (counts[node], leads[node], node),
        )
        chosen = [first, *others[: replication_factor - 1]]
        leads[first] += 1
        counts.update(chosen)
        placement.append(tuple((node, metadata.nodes[node].incarnation) for node in chosen))
    return placement
