"""Which moves are carried out, and which wait for others to the same node.

Filling a replica costs its node disk, network and memory, so no node is filled with more than a few
at a time. Every node reads the same order from the metadata, the one in which moves were asked for,
so leaders need not talk about it. A group without a leader cannot move and takes nobody's turn.
"""

from collections import Counter

from penstock.cluster.described import Replicas
from penstock.cluster.leaders import LeaderTable
from penstock.cluster.metadata import ClusterMetadata


class MoveQueue:
    """The moves of all groups."""

    def __init__(self, metadata: ClusterMetadata, leaders: LeaderTable, per_node_max: int) -> None:
        self._metadata = metadata
        self._leaders = leaders
        self._per_node_max = per_node_max

    def waiting(self) -> frozenset[int]:
        """Return the groups whose move has to wait."""
        moving = [each for each in self._metadata.all_replicas() if self._takes_turn(each)]
        filled: Counter[int] = Counter()
        waiting: set[int] = set()
        for replicas in sorted(moving, key=lambda each: each.asked_at):
            newcomers = _newcomers(replicas)
            if any(filled[node] >= self._per_node_max for node in newcomers):
                waiting.add(replicas.group)
            else:
                filled.update(newcomers)
        return frozenset(waiting)

    def _takes_turn(self, replicas: Replicas) -> bool:
        if not replicas.former:
            return False
        leader = self._leaders.leader_of(replicas.group)
        return leader is not None and leader.node >= 0


def _newcomers(replicas: Replicas) -> list[int]:
    return [member[0] for member in replicas.members if member not in replicas.former]
