"""Small logs for the tests of this room, and a plain account of what they hold."""

from pathlib import Path
from typing import Any, NamedTuple

from penstock.ids import Term
from penstock.log import Disk, EntryKind, LogSettings, PartitionLog
from penstock.record import (
    Record,
    RecordBatch,
    decode_records,
    encode_batch,
    read_header,
    split_batches,
)
from penstock.testing import SimDisk

DIRECTORY = Path("/data/topics/orders/0")


class Entry(NamedTuple):
    """One entry as a reader finds it."""

    index: int
    term: int
    kind: EntryKind
    offset: int
    payload: bytes


def batch_of(
    *values: bytes | None, key: bytes | None = None, timestamp: int = 0, codec: int = 0
) -> RecordBatch:
    """Return a batch with one record for each value, all at the same time."""
    return batch_of_records(
        *(Record(number, timestamp, key, value) for number, value in enumerate(values)), codec=codec
    )


def batch_of_records(*records: Record, codec: int = 0) -> RecordBatch:
    (batch,) = split_batches(encode_batch(records, codec=codec))
    return batch


def open_log(disk: Disk, directory: Path = DIRECTORY, **settings: Any) -> PartitionLog:
    return PartitionLog(disk, directory, LogSettings(**settings))  # type: ignore[arg-type]


def new_log(**settings: Any) -> tuple[SimDisk, PartitionLog]:
    disk = SimDisk()
    return disk, open_log(disk, **settings)


def append(log: PartitionLog, *values: bytes | None, term: int = 1, **options: Any) -> int:
    """Append one batch and flush it; return its first offset."""
    batch = batch_of(*values, **options)
    offset = log.append_records(batch, term=Term(term), now_ms=0)
    flush(log)
    return offset


def append_state(log: PartitionLog, payload: bytes, term: int = 1) -> int:
    """Append one state entry and flush it; return its index."""
    index = log.append_state(payload, term=Term(term), now_ms=0)
    flush(log)
    return index


def flush(log: PartitionLog) -> None:
    """Write what was appended."""
    taken = log.take_flush()
    assert taken is not None
    taken.run()
    log.finish(taken)


def checkpoint(log: PartitionLog) -> None:
    """Run a checkpoint when there is something new."""
    run = log.take_checkpoint()
    if run is not None:
        run.run()
        log.finish_checkpoint(run)


def contents(log: PartitionLog) -> list[Entry]:
    """Return every entry; the payload of a batch that compaction emptied is empty."""
    states = {entry.index: entry for entry in log.state_entries(log.first_index)}
    found = []
    for row, segment, index in log.rows(log.first_index):
        if row.kind == EntryKind.STATE:
            assert states[index].term == row.term
            assert states[index].next_offset == row.first_offset
            payload = states[index].payload
        else:
            payload = segment.files.log.read_at(row.log_position, row.size)
        found.append(Entry(index, row.term, EntryKind(row.kind), row.first_offset, payload))
    return found


def values(log: PartitionLog) -> list[bytes | None]:
    """Return the values of all records, as a reader of the whole log gets them."""
    return [record.value for record in records(log)]


def records(log: PartitionLog, bytes_max: int = 1 << 30) -> list[Record]:
    """Return all records through `read`."""
    found: list[Record] = []
    offset: int = log.first_offset
    while True:
        part = log.read(offset, end_offset=log.next_offset, bytes_max=bytes_max)
        if part is None:
            return found
        for batch in split_stored(part.read()):
            found.extend(decode(batch))
            offset = batch.header.next_offset


def split_stored(data: bytes) -> list[RecordBatch]:
    """Split stored batches; unlike a producer's they may have lost records to compaction."""
    batches = []
    view = memoryview(data)
    while view:
        header = read_header(view)
        batches.append(RecordBatch(header, view[: header.size_bytes]))
        assert header.size_bytes <= len(view)
        view = view[header.size_bytes :]
    return batches


def decode(batch: RecordBatch) -> list[Record]:
    return list(decode_records(batch.data))
