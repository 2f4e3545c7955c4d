"""Mending damaged bytes with those of another replica.

Damage that a scrub finds in a committed entry is never served. The entry is the same on every
replica, so its bytes are asked for from the group's leader, checked, and written over the damaged
ones. Where compaction has left the leader with other bytes the replica stays marked; a leader that
is damaged itself hands over first.
"""

import logging
from collections.abc import Awaitable, Callable

from penstock.cluster.replicated_log import ReplicatedLog
from penstock.errors import Unavailable
from penstock.log import Damage, EntryKind, Segment, StateEntry
from penstock.record import checksum_matches, read_header

logger = logging.getLogger(__name__)

Ask = Callable[[int], Awaitable[bytes]]


def hand_over_if_leading(log: ReplicatedLog) -> bool:
    """Let a replica in step lead instead of this damaged one; True when that was begun."""
    if not log.is_serving:
        return False
    in_step = [follower for follower in log.followers() if follower.is_active and follower.is_voter]
    if in_step:
        best = max(in_step, key=lambda follower: follower.match)
        log.transfer_leader(best.node)
    return bool(in_step)


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
