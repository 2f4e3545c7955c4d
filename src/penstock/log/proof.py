"""Comparing batches with their checksums before they are sent as they are stored.

Whoever fetches is sent bytes of a file, and takes them for what was published. What this process
has put into the active segment comes out of the page cache. What an earlier process wrote, or what
is sealed by now, may have been away from memory for long: it is compared once, before it is sent
for the first time. From then on the scrub watches over it.

The event loop waits meanwhile, so a portion is compared at a time, and no more than that is sent.
"""

from penstock.errors import Corruption
from penstock.log.index import EntryKind
from penstock.log.scrub import fault_in_batch
from penstock.log.segment import FileRange, Segment

_PORTION_BYTES = 1 << 20
_PORTION_ROWS = 1_000


def prove(segment: Segment, found: FileRange) -> FileRange:
    """Return what is known to be as it was stored of a range, at least a batch.

    Raises `Corruption` when the first one is damaged.
    """
    start = found.position
    size_bytes = segment.proven.end_from(start) - start
    if not size_bytes:
        size_bytes = _compare(segment, found)
        segment.proven.add(start, start + size_bytes)
    return found._replace(size_bytes=min(size_bytes, found.size_bytes))


def _compare(segment: Segment, found: FileRange) -> int:
    """Return the size of the whole batches that a portion begins with."""
    table, start = segment.table, found.position
    # Rows without bytes in .log share their position with the batch behind them.
    first = number = table.number_past_position(start) - 1
    portion_bytes = min(max(_PORTION_BYTES, table.row(first).size), found.size_bytes)
    data = memoryview(found.file.read_at(start, portion_bytes))
    size_bytes = 0
    while size_bytes < portion_bytes and number - first < _PORTION_ROWS:
        row = table.row(number)
        end = row.log_end - start
        if end > portion_bytes:
            break
        if row.kind == EntryKind.RECORDS and row.size:
            reason = fault_in_batch(data[size_bytes:end], row)
            if reason is not None:
                if size_bytes:
                    break
                raise Corruption(
                    f"the batch at offset {row.first_offset} of {segment.directory} is damaged:"
                    f" {reason}"
                )
        size_bytes = end
        number += 1
    return size_bytes
