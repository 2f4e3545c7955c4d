"""Snapshots between nodes: what a leader hands out, and what a follower copies.

The leader keeps the files of an offered snapshot while somebody copies them; the follower copies at
the pace that the options allow. What is done with the copy is told in `transfer`.

One copy at a time is made for a log. When a newer leader offers another snapshot, the copy under
way ends with the part that it waits for, before the new one begins: both have the same places on
disk. A copy that cannot be used is thrown away at once, so that a disk on which it did not fit has
room again.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec

from penstock.cluster.links import RequestKind
from penstock.cluster.pace import Pace
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.transfer import (
    CHUNK_BYTES,
    ChunkRequest,
    FileCopy,
    IncomingCopy,
    Manifest,
    manifest_of,
    read_chunk,
)
from penstock.cluster.workplace import Workplace
from penstock.errors import PenstockError, Unavailable
from penstock.ids import NodeId
from penstock.log import IndexHeader
from penstock.raft import InstallSnapshot

logger = logging.getLogger(__name__)

# A follower that copies a snapshot asks for more of it within this time.
_HOLD_S = 30.0
_REQUEST_TIMEOUT_S = 5.0


class Requester(Protocol):
    """Asks other nodes, as `Links` does."""

    async def request(self, node: NodeId, kind: int, body: bytes, *, timeout_s: float) -> bytes:
        """Ask a peer; raise what it raised, or `Unavailable` when it does not answer."""


class SnapshotExchange:
    """Both halves of copying, for all replicas of a node."""

    def __init__(
        self,
        links: Requester,
        workplace: Workplace,
        pace: Pace,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        hold_s: float = _HOLD_S,
    ) -> None:
        self._links = links
        self._workplace = workplace
        self._pace = pace
        self._chunk_bytes = chunk_bytes
        self._hold_s = hold_s
        # The newest offer that is followed in each directory, and whose turn it is there.
        self._newest: dict[Path, InstallSnapshot] = {}
        self._turns: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    # The leader's half.

    def offer_manifest(self, log: ReplicatedLog, index: int) -> bytes:
        """Name the files of the snapshot at `index`, and keep them for a while."""
        if log.snapshot_index != index + 1:
            raise Unavailable(f"{log.name} has a newer snapshot than the one at {index}")
        self._hold(log)
        try:
            manifest = manifest_of(self._workplace.disk, log.log, index)
        except OSError as error:
            # A newer one is being saved at this moment, and has taken its place on disk already.
            raise Unavailable(f"the snapshot of {log.name} at {index} is gone: {error}") from error
        return msgspec.msgpack.encode(manifest)

    async def offer_chunk(self, log: ReplicatedLog, request: ChunkRequest) -> bytes:
        """Return a part of a file of a snapshot."""
        self._hold(log)
        try:
            chunk: bytes = await self._workplace.in_thread(
                lambda: read_chunk(self._workplace.disk, log.log.directory, request)
            )
        except OSError as error:
            raise Unavailable(f"{request.name} of {log.name} is gone: {error}") from error
        return chunk

    def _hold(self, log: ReplicatedLog) -> None:
        log.held_until_s = self._workplace.loop.time() + self._hold_s

    # The follower's half.

    async def copy(self, log: ReplicatedLog, offer: InstallSnapshot) -> None:
        """Copy what a leader offers, and tell consensus whether that went well."""
        directory = log.log.directory
        self._newest[directory] = offer
        turn = self._turns.setdefault(directory, asyncio.Lock())
        try:
            async with turn:
                await self._copy_in_turn(log, offer)
        finally:
            if self._newest.get(directory) is offer:
                del self._newest[directory]

    async def _copy_in_turn(self, log: ReplicatedLog, offer: InstallSnapshot) -> None:
        copy = IncomingCopy(self._workplace.disk, log.log.directory)
        try:
            complete = await self._copy_files(log, offer, copy)
        except (OSError, PenstockError) as error:
            logger.warning("snapshot not copied", extra={"log": log.name, "reason": str(error)})
            await self._throw_away(log, offer, copy)
            log.snapshot_failed(offer)
        else:
            log.snapshot_fetched(offer, complete)
            await self._throw_away(log, offer, copy)

    async def _throw_away(
        self, log: ReplicatedLog, offer: InstallSnapshot, copy: IncomingCopy
    ) -> None:
        """Remove what was copied in vain, where nobody else has the directory by now."""
        try:
            self._check_wanted(log, offer)
            await self._workplace.in_thread(copy.begin)
        except (OSError, PenstockError) as error:
            # The next copy or the next start begins with that.
            logger.debug("copied files stay", extra={"log": log.name, "reason": str(error)})

    def _check_wanted(self, log: ReplicatedLog, offer: InstallSnapshot) -> None:
        """Raise when the files of a copy are to be left alone."""
        log.check_open()
        if log.is_installing:
            raise Unavailable(f"{log.name} is about to install a snapshot")
        if self._newest.get(log.log.directory) is not offer:
            raise Unavailable(f"another snapshot is offered to {log.name}")

    async def _copy_files(
        self, log: ReplicatedLog, offer: InstallSnapshot, copy: IncomingCopy
    ) -> Callable[[], None]:
        """Copy all files; return what makes the copy final."""
        self._check_wanted(log, offer)
        index = offer.snapshot.index
        request = msgspec.msgpack.encode((log.identity.group, index))
        answer = await self._links.request(
            offer.sender, RequestKind.MANIFEST, request, timeout_s=_REQUEST_TIMEOUT_S
        )
        manifest = msgspec.msgpack.decode(answer, type=Manifest)
        self._check_wanted(log, offer)
        await self._workplace.in_thread(copy.begin)
        for file in manifest.files:
            await self._copy_file(log, offer, file, copy)
        await self._workplace.in_thread(lambda: copy.check(index))
        names = [file.name for file in manifest.files]
        now_ms = self._workplace.clock.now_ms()
        active = IndexHeader(index + 1, manifest.next_offset, manifest.term, now_ms)
        return lambda: copy.complete(names, active)

    async def _copy_file(
        self, log: ReplicatedLog, offer: InstallSnapshot, file: FileCopy, copy: IncomingCopy
    ) -> None:
        position = 0
        while position < file.size_bytes or position == 0:
            size_bytes = min(self._chunk_bytes, file.size_bytes - position)
            request = ChunkRequest(
                log.identity.group, offer.snapshot.index, file.name, position, size_bytes
            )
            chunk = await self._fetch_chunk(offer.sender, request)
            self._check_wanted(log, offer)
            await self._workplace.in_thread(partial(copy.write, file.name, position, chunk))
            position += len(chunk)
            if not chunk:
                return
            await asyncio.sleep(self._pace.take(len(chunk)))

    async def _fetch_chunk(self, node: NodeId, request: ChunkRequest) -> bytes:
        body = msgspec.msgpack.encode(request)
        chunk = await self._links.request(
            node, RequestKind.CHUNK, body, timeout_s=_REQUEST_TIMEOUT_S
        )
        if len(chunk) != request.size_bytes:
            raise Unavailable(f"{request.name} ended {request.size_bytes - len(chunk)} bytes early")
        return chunk
