"""Replicas that a node has closed because they are not to be there, until their files may go.

What the metadata says on a node may be past: one that was cut off hears of all that was decided
meanwhile, one thing after the other. It may have left a group and come back to it, and its replica
may have acknowledged records since that too few others hold. So a replica is closed first, and its
files stay until the cluster has answered the node once more. After that answer the node knows of
every decision that was made before it closed the replica, and a closed replica acknowledges
nothing. Only a replica that is unwanted even then goes, and with it what the node was in the group:
should it come back, it comes as a stranger.

A node that stops before that leaves the files where they are. The next start finds them, and they
go the same way: they are as good as just closed. A replica that comes back to its group before that
goes on with them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True, eq=False)
class UnwantedReplica:
    """The files of a closed replica."""

    directory: Path
    is_certain: bool = False
    """Whether the node has caught up with the metadata since the replica was closed."""


class UnwantedReplicas:
    """All of them, by the numbers of their groups."""

    def __init__(self) -> None:
        self._by_group: dict[int, UnwantedReplica] = {}

    def add(self, group: int, directory: Path) -> None:
        """Remember a replica that was just closed."""
        self._by_group[group] = UnwantedReplica(directory)

    def uncertain(self) -> list[UnwantedReplica]:
        """Return those of which the node may have heard too early."""
        return [each for each in self._by_group.values() if not each.is_certain]

    def forget(self, is_moot: Callable[[int], bool]) -> None:
        """Leave the files to others: to a replica that is opened again, or to a deleted topic."""
        for group in [group for group in self._by_group if is_moot(group)]:
            del self._by_group[group]

    def take_certain(self) -> dict[int, Path]:
        """Return the directories that may go, by group, and forget them."""
        certain = {
            group: each.directory for group, each in self._by_group.items() if each.is_certain
        }
        for group in certain:
            del self._by_group[group]
        return certain
