"""Keeps the filling of learners to a speed.

Consensus sends a learner one append for each bundle of effects. After each, the learner is held
until the share of the node is free again, so that a move leaves disk and network to the traffic.
Voters are never held.
"""

import asyncio
from collections.abc import Callable

from penstock.cluster.pace import Pace
from penstock.ids import NodeId
from penstock.raft import Append, RaftNode


class LearnerPace:
    """Holds the learners of one group; `pump` goes on with what consensus wants."""

    def __init__(
        self,
        raft: RaftNode,
        pace: Pace,
        loop: asyncio.AbstractEventLoop,
        pump: Callable[[], None],
    ) -> None:
        self._raft = raft
        self._pace = pace
        self._loop = loop
        self._pump = pump

    def sent(self, message: Append) -> None:
        """Let the receiver wait after what it was sent, when it is a learner."""
        learners = self._raft.membership.learners
        if learners and message.entries and any(each.node == message.to for each in learners):
            wait_s = self._pace.take(sum(entry.size_bytes for entry in message.entries))
            if wait_s > 0:
                self._raft.hold(message.to)
                self._loop.call_later(wait_s, self._go_on_with, message.to)

    def _go_on_with(self, learner: NodeId) -> None:
        self._raft.release(learner)
        self._pump()
