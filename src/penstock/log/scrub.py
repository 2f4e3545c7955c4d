"""Reading everything once more, to find damage before a reader does.

Rows of a sealed segment are read from their file, not through its memory map: a follower may cut
the segment meanwhile, and the process would end at the first row that is gone. Whoever asked sees
that the segment is not part of the log any more.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.log.disk import Buffer
from penstock.log.index import ROW_BYTES, EntryKind, Row, index_bytes, unpack_row
from penstock.log.segment import INDEX_SUFFIX, LOG_SUFFIX, STATE_SUFFIX, Segment
from penstock.log.state import read_state_entry
from penstock.record import read_header
from penstock.record.batch import MAGIC, checksum_matches


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that are not what was once written."""

    path: str
    index: int
    offset: int
    start: int
    end: int
    is_log: bool
    reason: str


def scrub_segment(segment: Segment, pause: Callable[[int], None]) -> Iterator[Damage]:
    """Yield what is damaged in the written part of a segment. Runs in a thread.

    `pause` is told the bytes of each entry read, so that the caller can keep a pace.
    """
    for number in range(segment.written_rows):
        damage = damage_of(segment, number, pause)
        if damage is not None:
            yield damage


def damage_of(segment: Segment, number: int, pause: Callable[[int], None]) -> Damage | None:
    """Return what is damaged of one entry, or None when it is whole. Runs in a thread."""
    row = _row_of(segment, number)
    if row is None:
        return _damaged_row(segment, number)
    if row.size == 0:
        return None
    pause(row.size)
    is_log = row.kind == EntryKind.RECORDS
    start = row.log_position if is_log else row.state_position
    file = segment.files.log if is_log else segment.files.state
    data = file.read_at(start, row.size)
    reason = fault_in_batch(data, row) if is_log else _fault_in_state(data)
    if not reason:
        return None
    return Damage(
        path=str(segment.path(LOG_SUFFIX if is_log else STATE_SUFFIX)),
        index=segment.first_index + number,
        offset=row.first_offset,
        start=start,
        end=start + row.size,
        is_log=is_log,
        reason=reason,
    )


def _row_of(segment: Segment, number: int) -> Row | None:
    if not segment.table.is_mapped:
        return segment.table.checked_row(number)
    return unpack_row(segment.files.index.read_at(index_bytes(number), ROW_BYTES))


def _damaged_row(segment: Segment, number: int) -> Damage:
    start = index_bytes(number)
    return Damage(
        path=str(segment.path(INDEX_SUFFIX)),
        index=segment.first_index + number,
        offset=segment.first_offset,
        start=start,
        end=start + ROW_BYTES,
        is_log=False,
        reason="the checksum of the row does not match",
    )


def fault_in_batch(data: Buffer, row: Row) -> str | None:
    """Say what is wrong with the bytes of a batch, its checksum and the fields outside it."""
    if len(data) < row.size:
        return f"the file ends {row.size - len(data)} bytes early"
    if not checksum_matches(data):
        return "the checksum of the batch does not match"
    header = read_header(data)
    if header.base_offset != row.first_offset:
        return f"the batch says offset {header.base_offset}, the index says {row.first_offset}"
    # Like the offset, these fields lie outside the checksum.
    if (header.size_bytes, header.leader_epoch, header.magic) != (row.size, row.term, MAGIC):
        return (
            f"the batch says {header.size_bytes} bytes, term {header.leader_epoch} and format"
            f" {header.magic}, the index says {row.size}, {row.term} and {MAGIC}"
        )
    return None


def _fault_in_state(data: bytes) -> str | None:
    return None if read_state_entry(data) else "the state entry is not whole"
