"""Mending damaged bytes with those of another replica.

Damage that a scrub finds in a committed entry is never served. The entry is the same on every
replica, so its bytes are asked for from the group's leader, checked, and written over the damaged
ones. Where compaction has left the leader with other bytes the replica stays marked; a leader that
is damaged itself hands over first.
"""

import logging
from collections.abc import Awaitable, Callable

import msgspec

from penstock.cluster.leadership import hand_over
from penstock.cluster.links import Links, RequestKind
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.workplace import Workplace
from penstock.errors import Unavailable
from penstock.ids import NodeId
from penstock.log import INDEX_SUFFIX, Damage, EntryKind, Segment, StateEntry
from penstock.record import checksum_matches, read_header

logger = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 5.0

Ask = Callable[[int], Awaitable[bytes]]


class Mender:
    """Mends what this node holds with what others do."""

    def __init__(self, node: NodeId, links: Links, workplace: Workplace) -> None:
        self._node = node
        self._links = links
        self._workplace = workplace

    async def mend(self, log: ReplicatedLog, segment: Segment, damage: Damage) -> bool:
        """Replace damaged bytes by those of the group's leader; False when that is not possible."""
        if damage.path.endswith(INDEX_SUFFIX):
            return False
        leader = log.leader
        if hand_over(log) or leader is None or leader == self._node:
            return False

        async def ask(index: int) -> bytes:
            body = msgspec.msgpack.encode((log.identity.group, index))
            return await self._links.request(
                leader, RequestKind.ENTRY, body, timeout_s=_REQUEST_TIMEOUT_S
            )

        try:
            data = await mended_bytes(segment, damage, ask)
        except Unavailable as error:
            logger.warning("damage not mended", extra={"log": log.name, "reason": str(error)})
            return False
        await self._workplace.in_thread(lambda: write_mended(segment, damage, data))
        return True


async def mended_bytes(segment: Segment, damage: Damage, ask: Ask) -> bytes:
    """Return what belongs in the place of damaged bytes, or raise `Unavailable`."""
    row = segment.table.row(damage.index - segment.first_index)
    payload = await ask(damage.index)
    if row.kind == EntryKind.RECORDS:
        is_whole = len(payload) == row.size and checksum_matches(payload)
        if not is_whole or read_header(payload).base_offset != row.first_offset:
            raise Unavailable(f"entry {damage.index} has other bytes on the leader")
        return payload
    entry = StateEntry(damage.index, row.term, row.first_offset, payload, row.kind)
    if entry.size_bytes != row.size:
        raise Unavailable(f"entry {damage.index} has other bytes on the leader")
    return entry.pack()


def write_mended(segment: Segment, damage: Damage, data: bytes) -> None:
    """Put the right bytes in place, durably. Runs in a thread."""
    file = segment.files.log if damage.is_log else segment.files.state
    file.write_at(damage.start, [data])
    file.sync()
    if (damage.start, damage.end) in segment.damage:
        segment.damage.remove((damage.start, damage.end))
    logger.warning("damage mended", extra={"path": damage.path, "index": damage.index})
