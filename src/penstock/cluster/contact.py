"""Whether a node is in touch with the rest of its cluster.

A node that is cut off still answers its clients, but what it knows about leaders grows old. Clients
like to ask the node that they asked before, so such a node must be able to tell that it had better
send them away.
"""

from collections.abc import Collection

from penstock.raft import Membership

# Far above what an election of the metadata's leader takes.
_LEADERLESS_S_MAX = 3.0


class Contact:
    """What is known about the leader of the metadata."""

    def __init__(self) -> None:
        self._has_joined = False
        self._leaderless_since_s: float | None = None

    def joined(self) -> None:
        """The node has caught up with the metadata of its cluster."""
        self._has_joined = True

    def leader_is(self, leader: int | None, now_s: float) -> None:
        """Take note of the leader of the metadata; None when there is none to be heard."""
        if leader is not None:
            self._leaderless_since_s = None
        elif self._leaderless_since_s is None:
            self._leaderless_since_s = now_s

    def is_lost(self, membership: Membership, reachable: Collection[int], now_s: float) -> bool:
        """True for a node that has not joined yet, or without leader and hope for one.

        Without links to a majority there is no hope. Links that are up and silent are given the
        time of a few elections.
        """
        if not self._has_joined:
            return True
        if self._leaderless_since_s is None:
            return False
        reached = sum(member.node in reachable for member in membership.voters)
        is_minority = 2 * reached <= len(membership.voters)
        return is_minority or now_s - self._leaderless_since_s > _LEADERLESS_S_MAX
