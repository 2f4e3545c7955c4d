"""Makes this node known to its cluster, and again when it has lost a replica.

The metadata keeps what it was told last. So one announcement is made at a time, and each says what
is true when it is sent: an older one that came later would bring back an incarnation under which
this node remembers nothing.
"""

import asyncio
from contextlib import suppress

import msgspec

from penstock.cluster.changes import MetadataChanges
from penstock.cluster.commands import RegisterNode
from penstock.cluster.described import Node
from penstock.cluster.identity import Identity
from penstock.errors import Unavailable


class Registration:
    """The announcements of one node."""

    def __init__(self, changes: MetadataChanges, identity: Identity) -> None:
        self._changes = changes
        self._identity = identity
        self._description: Node | None = None
        self._turn = asyncio.Lock()

    async def register(self, description: Node) -> None:
        """Say who this node is; returns when it has caught up with the metadata."""
        self._description = description
        await self.repeat()

    async def repeat(self) -> None:
        """Say it again, with the incarnations of now; before the first time, that one will do."""
        if self._description is None:
            return
        async with self._turn:
            while True:
                replaced = self._identity.replaced
                node = msgspec.structs.replace(self._description, replaced=replaced)
                with suppress(Unavailable):
                    await self._changes.change(RegisterNode(node))
                    return
