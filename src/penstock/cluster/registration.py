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
        await self._announce(description, is_repeated=False)

    async def repeat(self) -> None:
        """Say it again, with the incarnations of now; before the first time, that one will do.

        It may cross with the removal of this node, which must not be undone by it.
        """
        if self._description is not None:
            await self._announce(self._description, is_repeated=True)

    async def _announce(self, description: Node, *, is_repeated: bool) -> None:
        async with self._turn:
            while True:
                replaced = self._identity.replaced
                node = msgspec.structs.replace(description, replaced=replaced)
                with suppress(Unavailable):
                    await self._changes.change(RegisterNode(node, is_repeated))
                    return
