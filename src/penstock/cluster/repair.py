"""Mending damaged bytes with those of another replica.

Damage that a scrub finds in a committed entry is never served. The entry is the same on every
replica, so its bytes are asked for from the group's leader, checked, and written over the damaged
ones. Where compaction has left the leader with other bytes the replica stays marked; a leader that
is damaged itself hands over first.

The answer may take its time, and the files may be others when it comes: entries were cut, or the
log was replaced by a snapshot. So it is looked again before the bytes are written, and nothing else
is written meanwhile. A sync that fails closes the replica: it may have lost what a flush wrote.
"""

import logging
from collections.abc import Awaitable, Callable

import msgspec

from penstock.cluster.leadership import hand_over
from penstock.cluster.links import RequestKind
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.snapshot_exchange import Requester
from penstock.errors import Corruption, Unavailable
from penstock.ids import NodeId
from penstock.log import INDEX_SUFFIX, Damage, EntryKind, Segment, StateEntry
from penstock.record import checksum_matches, read_header

logger = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 5.0

Ask = Callable[[int], Awaitable[bytes]]


class Mender:
    """Mends what this node holds with what others do."""

    def __init__(self, node: NodeId, links: Requester) -> None:
        self._node = node
        self._links = links

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
            return bool(await log.run_exclusive(lambda: _mend_here(log, segment, damage, data)))
        except (Unavailable, Corruption) as error:
            # The leader may be away, or have the same damage.
            logger.warning("damage not mended", extra={"log": log.name, "reason": str(error)})
            return False


def _mend_here(log: ReplicatedLog, segment: Segment, damage: Damage, data: bytes) -> bool:
    """Put the right bytes in place, unless the place is gone. Runs in a thread."""
    is_there = segment in log.log.segments
    if is_there:
        write_mended(segment, damage, data)
    return is_there


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
    segment.sync(file)
    if (damage.start, damage.end) in segment.damage:
        segment.damage.remove((damage.start, damage.end))
    logger.warning("damage mended", extra={"path": damage.path, "index": damage.index})
