"""Ids of idempotent producers, none of which is ever given twice."""

import asyncio

from penstock.cluster.changes import MetadataChanges
from penstock.cluster.commands import AllocateProducerIds
from penstock.ids import ProducerId

_BLOCK = 1_000


class ProducerIds:
    """Takes ids from blocks that the metadata reserves for this node."""

    def __init__(self, changes: MetadataChanges) -> None:
        self._changes = changes
        self._free: list[int] = []
        self._refill = asyncio.Lock()

    async def take(self) -> ProducerId:
        """Return an id that no producer ever had."""
        async with self._refill:
            if not self._free:
                first = await self._changes.change(AllocateProducerIds(_BLOCK))
                self._free = list(range(first + _BLOCK - 1, first - 1, -1))
            return ProducerId(self._free.pop())
