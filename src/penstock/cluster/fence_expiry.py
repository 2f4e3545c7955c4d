"""Lifts fences that nobody renews, so that a job that died does not keep writers out for ever.

Only the leader of the metadata does it, by its own steady clock; who leads next begins to count
anew. See `resharding` for why that cannot lose a write.
"""

import uuid

from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.resharding import LiftFence

FENCE_LEASE_S = 60.0


class FenceExpiry:
    """Remembers since when each fence has not been renewed."""

    def __init__(self, metadata: ClusterMetadata, lease_s: float = FENCE_LEASE_S) -> None:
        self._metadata = metadata
        self._lease_s = lease_s
        self._seen: dict[tuple[uuid.UUID, int, int], float] = {}
        self._version = -1
        self._last_s = 0.0

    def overdue(self, now_s: float) -> list[LiftFence]:
        """Return what is to be lifted; called every moment while this node leads the metadata."""
        if now_s - self._last_s > self._lease_s / 2:
            # This node did not lead, or was held up: a renewal may be on its way.
            self._seen.clear()
            self._version = -1
        self._last_s = now_s
        if self._version != self._metadata.version:
            self._version = self._metadata.version
            self._seen = {fence: self._seen.get(fence, now_s) for fence in self._fences()}
        return [
            LiftFence(*fence)
            for fence, since_s in self._seen.items()
            if now_s - since_s > self._lease_s
        ]

    def _fences(self) -> list[tuple[uuid.UUID, int, int]]:
        return [
            (topic.topic_id, topic.resharding.fence, topic.resharding.renewals)
            for topic in self._metadata.topics.values()
            if topic.resharding and topic.resharding.fence and not topic.resharding.is_switched
        ]
