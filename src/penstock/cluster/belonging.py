"""Whether this node still belongs to its cluster.

A node that is removed is sent no more of the metadata, not even the entry that removes it. While it
runs it would go by what it knew and call itself cut off. So a node that hears of no leader asks its
peers whether they know it. A peer may lag behind, so it also tells how far it is: one that has
applied all that this node has, and does not know it, has seen it being removed.

A node that has not been heard by its cluster since it started asks nobody. It may be new, and after
a start nodes know each other again only when a leader tells them what is committed.
"""

import asyncio
import logging

import msgspec

from penstock.cluster.changes import MetadataChanges
from penstock.cluster.links import Links, RequestKind
from penstock.cluster.metadata import ClusterMetadata
from penstock.errors import PenstockError
from penstock.ids import NodeId

logger = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_ANSWER_TIMEOUT_S = 1.5


class _Knowledge(msgspec.Struct, frozen=True):
    """What a peer knows of the node that asks."""

    applied_index: int
    is_known: bool


_decode_node = msgspec.msgpack.Decoder(int).decode
_decode_knowledge = msgspec.msgpack.Decoder(_Knowledge).decode


class Belonging:
    """Asks whether this node was removed, and answers others."""

    def __init__(
        self, node: NodeId, metadata: ClusterMetadata, changes: MetadataChanges, links: Links
    ) -> None:
        self._node = node
        self._metadata = metadata
        self._changes = changes
        self._links = links
        self.was_removed = False
        """Whether the cluster goes on without this node. It comes back when it is started again."""

    async def rounds(self) -> None:
        """Look for as long as the node runs."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """Look once."""
        was_removed = await self._is_removed()
        if was_removed and not self.was_removed:
            logger.warning("this node was removed from its cluster")
        self.was_removed = was_removed

    def answer(self, body: bytes) -> bytes:
        """Tell a peer what this node knows of it."""
        log = self._changes.log
        applied_index = log.applied_index if log is not None else 0
        is_known = _decode_node(body) in self._metadata.nodes
        return msgspec.msgpack.encode(_Knowledge(applied_index, is_known))

    async def _is_removed(self) -> bool:
        log = self._changes.log
        if log is None or not self._metadata.is_current:
            return False
        if self._node not in self._metadata.nodes:
            return True
        if log.leader is not None:
            return False
        applied_index = log.applied_index
        answers = await asyncio.gather(*(self._ask(node) for node in self._links.connected))
        known = [each.is_known for each in answers if each and each.applied_index >= applied_index]
        return bool(known) and not any(known)

    async def _ask(self, node: NodeId) -> _Knowledge | None:
        body = msgspec.msgpack.encode(self._node)
        try:
            answer = await self._links.request(
                node, RequestKind.BELONGING, body, timeout_s=_ANSWER_TIMEOUT_S
            )
        except PenstockError:
            # It is gone, or does not know this kind of request.
            return None
        return _decode_knowledge(answer)
