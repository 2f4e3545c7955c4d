"""Who leads which group, as far as this node has heard.

Replicas on this node learn it from consensus; for groups that have none here, the leader's node
announces it to everyone when it is elected and to each peer that connects.
"""

from collections.abc import Callable, Iterable

from penstock.cluster.links import Leader


class LeaderTable:
    """The newest leader of each group; `version` changes with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._leaders: dict[int, Leader] = {}
        self._watchers: list[Callable[[], None]] = []

    def watch(self, notify: Callable[[], None]) -> None:
        """Call `notify` whenever a leader was heard of."""
        self._watchers.append(notify)

    def learn(self, leaders: Iterable[Leader]) -> None:
        """Take over what is newer than what is known."""
        before = self.version
        for leader in leaders:
            known = self._leaders.get(leader.group)
            if known is None or (leader.term, leader.node) > (known.term, known.node):
                self._leaders[leader.group] = leader
                self.version += 1
        if self.version != before:
            for notify in self._watchers:
                notify()

    def leader_of(self, group: int) -> Leader | None:
        """Return the newest leader of a group that was heard of."""
        return self._leaders.get(group)

    def led_by(self, node: int) -> list[Leader]:
        """Return all groups that a node leads."""
        return [leader for leader in self._leaders.values() if leader.node == node]

    def deposed(self, group: int, node: int) -> None:
        """A node does not lead a group any more, and nobody knows yet who does."""
        leader = self._leaders.get(group)
        if leader is not None and leader.node == node:
            self._leaders[group] = Leader(group, leader.term, -1)
            self.version += 1

    def lost(self, node: int) -> None:
        """A node cannot be reached: whatever it led has no known leader until one is announced."""
        for leader in self.led_by(node):
            self.deposed(leader.group, node)
