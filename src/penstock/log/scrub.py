"""Reading everything once more, to find damage before a reader does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.log.index import EntryKind
from penstock.log.segment import LOG_SUFFIX, STATE_SUFFIX, Segment
from penstock.log.state import read_state_entry
from penstock.record import read_header
from penstock.record.batch import checksum_matches


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
        row = segment.table.row(number)
        if row.size == 0:
            continue
        pause(row.size)
        is_log = row.kind == EntryKind.RECORDS
        start = row.log_position if is_log else row.state_position
        file = segment.files.log if is_log else segment.files.state
        data = file.read_at(start, row.size)
        reason = (
            _fault_in_batch(data, row.size, row.first_offset) if is_log else _fault_in_state(data)
        )
        if reason:
            yield Damage(
                path=str(segment.path(LOG_SUFFIX if is_log else STATE_SUFFIX)),
                index=segment.first_index + number,
                offset=row.first_offset,
                start=start,
                end=start + row.size,
                is_log=is_log,
                reason=reason,
            )


def _fault_in_batch(data: bytes, size: int, offset: int) -> str | None:
    if len(data) < size:
        return f"the file ends {size - len(data)} bytes early"
    if not checksum_matches(data):
        return "the checksum of the batch does not match"
    if read_header(data).base_offset != offset:
        return f"the batch says offset {read_header(data).base_offset}, the index says {offset}"
    return None


def _fault_in_state(data: bytes) -> str | None:
    return None if read_state_entry(data) else "the state entry is not whole"
