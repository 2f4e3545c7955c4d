"""Reads that wait until the leader has proved that it still leads (thesis 6.4, ReadIndex).

A leader may have been replaced without knowing it. To serve a current read it notes its commit
index, sends a round of heartbeats, and lets the read go when a majority has answered that round or
a later one: no newer leader can then have committed anything before the round began. All reads
that arrive between two rounds share one round.

A new leader does not know which entries are committed until it has committed one of its own term,
so until then reads wait without an index.
"""

from collections import deque

from penstock.ids import NodeId
from penstock.raft.values import Value


class PendingRead(Value, frozen=True):
    """A read of `requester`, which is the leader itself or a follower that passed it on."""

    requester: NodeId
    context: int
    index: int
    round: int


class ReadQueue:
    """Reads in order of arrival; rounds and indexes never fall along the queue."""

    __slots__ = ("_confirming", "_early", "is_round_wanted", "round")

    def __init__(self) -> None:
        self._early: list[tuple[NodeId, int]] = []
        self._confirming: deque[PendingRead] = deque()
        self.round = 0
        """The last round of heartbeats that went out."""
        self.is_round_wanted = False

    def __len__(self) -> int:
        return len(self._early) + len(self._confirming)

    def defer(self, requester: NodeId, context: int) -> None:
        """Keep a read until the leader has committed in its own term."""
        self._early.append((requester, context))

    def add(self, requester: NodeId, context: int, commit_index: int) -> None:
        """Let a read wait for the next round."""
        self._confirming.append(PendingRead(requester, context, commit_index, self.round + 1))
        self.is_round_wanted = True

    def begin(self, commit_index: int) -> None:
        """The leader has committed in its own term: deferred reads get their index."""
        early, self._early = self._early, []
        for requester, context in early:
            self.add(requester, context, commit_index)

    def start_round(self) -> int:
        """A round of heartbeats goes out now; returns its number."""
        self.round += 1
        self.is_round_wanted = False
        return self.round

    def confirm(self, round_acked: int) -> list[PendingRead]:
        """A majority has answered `round_acked`: take the reads that it proves."""
        confirmed = []
        while self._confirming and self._confirming[0].round <= round_acked:
            confirmed.append(self._confirming.popleft())
        return confirmed

    def abandon(self, requester: NodeId) -> list[int]:
        """Leadership is over: forget all reads and return the contexts of `requester`."""
        contexts = [context for node, context in self._early if node == requester]
        contexts += [read.context for read in self._confirming if read.requester == requester]
        self._early.clear()
        self._confirming.clear()
        self.is_round_wanted = False
        return contexts
