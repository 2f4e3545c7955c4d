"""Opening a partition's files after a crash.

Sealed segments were synced whole before the next one was created, so they are taken as they are.
The last one is scanned from its checkpoint on. Rows are derived from the payloads:

- a state entry says its own index and the offset of the record after it;
- record batches ascend by offset without a gap and take the indexes that state entries leave free;
- `flush` sees to it that no record is on disk whose preceding state entries are not.

The scan ends at the first payload that is missing, torn or out of place; zeros that were written
`ahead` are no payload. What follows is cut, unless it was acknowledged: a row that was written by a
later flush says how many entries before it were not yet durable then, and so proves that all others
were. If such a row speaks for an entry that the scan cannot find, bytes that were once durable are
damaged. The same is true of a row that describes another entry than the scan finds in its place.
Nothing is cut then; `Corruption` is raised, and the partition stays closed until a replica repairs
it.

Nothing proves that the entries of the last flush were durable, so rot there looks like a torn write
and is cut. What the rows claim that are cut with it is remembered as a `Doubt`, which elections
respect. After `kill -9` every row is there, and proof and doubt are exact. After a power cut the
rows of the last second may be missing too, and damage inside that second leaves no doubt behind.
"""

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import Corruption
from penstock.ids import EntryIndex, Term
from penstock.log.ahead import torn_bytes
from penstock.log.checkpoint import CheckpointFile
from penstock.log.disk import Buffer, Disk, DiskFile, cut_anew
from penstock.log.doubt import Doubt, save_doubt
from penstock.log.index import (
    HEADER_BYTES,
    ROW_BYTES,
    EntryKind,
    IndexHeader,
    IndexTable,
    Row,
    read_index_header,
    read_row,
)
from penstock.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    STATE_SUFFIX,
    Segment,
    segment_path,
)
from penstock.log.state import StateEntry, read_state_entry
from penstock.record import HEADER_BYTES as BATCH_HEADER_BYTES
from penstock.record import batch_size, read_header
from penstock.record.batch import MAGIC, MAGIC_POSITION, checksum_matches


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found on disk."""

    segments: list[Segment]
    cut_log_bytes: int
    cut_state_bytes: int


def recover(disk: Disk, directory: Path, checkpoint: CheckpointFile) -> Recovered:
    """Open all segments; cut the torn tail of the last one and make the rest durable."""
    first_indexes = _existing_segments(disk, directory, checkpoint)
    if not first_indexes:
        return Recovered([], 0, 0)
    # A killed process may have created or removed files without making their names durable.
    disk.sync_directory(directory)
    segments = [_open_sealed(disk, directory, first) for first in first_indexes[:-1]]
    for segment, following in zip(segments, first_indexes[1:], strict=True):
        if segment.next_index != following:
            raise Corruption(
                f"{segment.path(INDEX_SUFFIX)} ends before entry {segment.next_index},"
                f" the next segment begins with entry {following}"
            )
    last, cut_log, cut_state = _recover_last(disk, directory, first_indexes[-1], checkpoint)
    return Recovered([*segments, last], cut_log, cut_state)


def _existing_segments(disk: Disk, directory: Path, checkpoint: CheckpointFile) -> list[int]:
    """Return the first index of every whole segment; finish creations and removals cut short."""
    names = set(disk.names(directory))
    suffixes = (LOG_SUFFIX, STATE_SUFFIX, INDEX_SUFFIX)
    stems = {name.split(".")[0] for name in names if name.endswith(suffixes)}
    found = sorted(int(stem) for stem in stems if stem.isdigit())
    whole = [first for first in found if _is_whole(disk, directory, first, names)]
    broken = sorted(set(found) - set(whole))
    for first_index in broken:
        if whole and whole[0] < first_index < whole[-1]:
            path = segment_path(directory, first_index, LOG_SUFFIX)
            raise Corruption(f"{path} is missing, but segments before and after it are there")
    _check_newest(directory, whole, checkpoint)
    # As in `Segment.remove_files`, .log is durably gone before the others go.
    for gone in ((LOG_SUFFIX,), (STATE_SUFFIX, INDEX_SUFFIX)) if broken else ():
        for first_index in broken:
            for suffix in gone:
                disk.remove(segment_path(directory, first_index, suffix))
        disk.sync_directory(directory)
    return whole


def _check_newest(directory: Path, whole: list[int], checkpoint: CheckpointFile) -> None:
    """Raise `Corruption` when the segment is gone in which entries were durable last.

    A cut withdraws the checkpoint durably before it removes the last segment, and a copy that takes
    the place of a log is swapped in with all its files, this one included, before the log is
    opened. Retention and compaction leave the last segment alone, so one may be gone that a later
    one has followed. A checkpoint speaks of a segment only after it is durable with its name. So no
    crash leads here: a file was lost. To go on without it would give its offsets to other records,
    and let a replica vote as if it had never acknowledged what was in it.
    """
    newest = checkpoint.newest
    if newest is not None and newest.rows and newest.first_index > max(whole, default=-1):
        path = segment_path(directory, newest.first_index, LOG_SUFFIX)
        raise Corruption(
            f"{path} is missing or empty, but {newest.rows} entries of it were durable"
        )


def _is_whole(disk: Disk, directory: Path, first_index: int, names: set[str]) -> bool:
    log, state, index = (
        segment_path(directory, first_index, suffix)
        for suffix in (LOG_SUFFIX, STATE_SUFFIX, INDEX_SUFFIX)
    )
    if log.name not in names:
        return False
    if index.name in names and state.name in names and _has_header(disk, index):
        return True
    # No entry is written into a segment before its header is durable; `cut_anew` may leave a zero.
    holds_payload = torn_bytes(disk.open(log), 0) > 0 or (
        state.name in names and torn_bytes(disk.open(state), 0) > 0
    )
    if holds_payload:
        raise Corruption(
            f"{index} or its .state file is missing or damaged, but {log} is not empty"
        )
    return False


def _has_header(disk: Disk, path: Path) -> bool:
    try:
        read_index_header(disk.open(path).read_at(0, HEADER_BYTES), str(path))
    except Corruption:
        return False
    return True


def _open_sealed(disk: Disk, directory: Path, first_index: int) -> Segment:
    path = segment_path(directory, first_index, INDEX_SUFFIX)
    data = disk.open(path).view()
    header = read_index_header(data, str(path))
    count = (len(data) - HEADER_BYTES) // ROW_BYTES
    if count and read_row(data, count - 1) is None:
        raise Corruption(f"row {count - 1} of {path} is damaged")
    segment = Segment(disk, directory, IndexTable.mapped(header, data, count))
    log_bytes = segment.files.log.size()
    state_bytes = segment.files.state.size()
    segment.drop_files()
    if (log_bytes, state_bytes) != (segment.log_bytes, segment.state_bytes):
        raise Corruption(
            f"segment {first_index} in {directory} has {log_bytes} bytes of records and"
            f" {state_bytes} of state, its index says {segment.log_bytes} and {segment.state_bytes}"
        )
    return segment


def _recover_last(
    disk: Disk, directory: Path, first_index: int, checkpoint: CheckpointFile
) -> tuple[Segment, int, int]:
    path = segment_path(directory, first_index, INDEX_SUFFIX)
    index = disk.open(path)
    rows = index.view()
    header = read_index_header(rows, str(path))
    table = _trusted_table(header, rows, checkpoint, path)
    log = disk.open(segment_path(directory, first_index, LOG_SUFFIX))
    state = disk.open(segment_path(directory, first_index, STATE_SUFFIX))
    trusted = table.count
    log_bytes, state_bytes = log.size(), state.size()
    _check_trusted_sizes(table, log_bytes, state_bytes, directory)
    _derive_rows(table, log.view(), state.view())
    _refuse_to_contradict(table, rows, trusted, path)
    _refuse_to_cut_durable(table, rows, path)

    segment = Segment(disk, directory, table)
    cut_log = torn_bytes(log, segment.log_bytes)
    cut_state = torn_bytes(state, segment.state_bytes)
    newest = checkpoint.newest
    is_clean = (
        # Without a checkpoint even the header may sit in the page cache only.
        newest is not None
        and newest.first_index == first_index
        and trusted == table.count
        and cut_log == cut_state == 0
        and len(rows) == HEADER_BYTES + table.count * ROW_BYTES
    )
    if not is_clean:
        claim = _last_claim(table, rows)
        if claim is not None:
            save_doubt(disk, directory, claim)
        del rows
        # What a killed process wrote or cut may sit in the page cache only, so the order matters. A
        # record that came back after a state entry before it was cut would take its index. And what
        # is found counts as durable from now on; the derived rows say so and go last.
        last_trusted = table.row(trusted - 1) if trusted else None
        _make_durable(log, last_trusted.log_end if last_trusted else 0, segment.log_bytes)
        _make_durable(state, last_trusted.state_end if last_trusted else 0, segment.state_bytes)
        derived = b"".join(table.row(number).pack() for number in range(trusted, table.count))
        if trusted == 0:
            index.write_at(0, [header.pack()])
        index.write_at(HEADER_BYTES + trusted * ROW_BYTES, [derived])
        cut_anew(index, HEADER_BYTES + table.count * ROW_BYTES)
        index.sync()
        checkpoint.write(
            first_index=first_index,
            rows=table.count,
            log_bytes=segment.log_bytes,
            state_bytes=segment.state_bytes,
        )
    return segment, cut_log, cut_state


def _make_durable(file: DiskFile, start: int, end: int) -> None:
    """Cut a file at `end` and make what it holds from `start` on durable.

    The bytes are written again: after a sync that failed, the page cache shows them and calls them
    clean, so a sync alone would not bring them to the disk. So it is with the cut.
    """
    cut_anew(file, end)
    if start < end:
        file.write_at(start, [file.read_at(start, end - start)])
    file.sync()


def _trusted_table(
    header: IndexHeader, rows: Buffer, checkpoint: CheckpointFile, path: Path
) -> IndexTable:
    """Return the rows that the checkpoint vouches for."""
    newest = checkpoint.newest
    count = newest.rows if newest and newest.first_index == header.first_index else 0
    if HEADER_BYTES + count * ROW_BYTES > len(rows):
        raise Corruption(f"{path} has {len(rows)} bytes, {count} rows were once durable")
    # The scan begins where the last trusted row ends; a damaged row would have it cut entries.
    if count and read_row(rows, count - 1) is None:
        raise Corruption(f"row {count - 1} of {path} is damaged, and it was once durable")
    return IndexTable.growing(header, rows, count)


def _check_trusted_sizes(
    table: IndexTable, log_bytes: int, state_bytes: int, directory: Path
) -> None:
    last = table.last()
    if last and (log_bytes < last.log_end or state_bytes < last.state_end):
        raise Corruption(
            f"segment {table.header.first_index} in {directory} has {log_bytes} bytes of records"
            f" and {state_bytes} of state, {last.log_end} and {last.state_end} were once durable"
        )


def _derive_rows(table: IndexTable, log: Buffer, state: Buffer) -> None:
    """Append a row for each whole entry that follows the trusted ones."""
    last = table.last()
    log_position = last.log_end if last else 0
    state_position = last.state_end if last else 0
    term = last.term if last else table.header.previous_term
    while True:
        offset = table.next_offset
        entry = read_state_entry(state, state_position)
        if entry and _is_next(entry, table, term):
            row = Row(
                entry.term,
                entry.kind,
                0,
                entry.size_bytes,
                offset,
                log_position,
                state_position,
                table.max_timestamp,
                0,
            )
        else:
            found = _row_of_batch(log, log_position, offset=offset, term=term)
            if found is None:
                return
            row = found._replace(
                state_position=state_position,
                max_timestamp=max(found.max_timestamp, table.max_timestamp),
            )
        table.append(row)
        log_position, state_position, term = row.log_end, row.state_end, row.term


def _is_next(entry: StateEntry, table: IndexTable, term: int) -> bool:
    return (
        entry.index == table.next_index
        and entry.next_offset == table.next_offset
        and entry.term >= term
    )


def _row_of_batch(log: Buffer, position: int, *, offset: int, term: int) -> Row | None:
    """Return the row of the batch at `position`, or None when it is not whole or out of place."""
    if position + BATCH_HEADER_BYTES > len(log):
        return None
    size = batch_size(log, position)
    if size == 0 or position + size > len(log) or log[position + MAGIC_POSITION] != MAGIC:
        return None
    header = read_header(log, position)
    if header.base_offset != offset or header.leader_epoch < term:
        return None
    if not checksum_matches(memoryview(log)[position : position + size]):
        return None
    return Row(
        header.leader_epoch,
        EntryKind.RECORDS,
        header.offsets,
        size,
        offset,
        position,
        0,
        header.max_timestamp,
        0,
    )


def _refuse_to_contradict(table: IndexTable, rows: Buffer, trusted: int, path: Path) -> None:
    """Raise `Corruption` when a surviving row describes another entry than the one derived for it.

    No crash leaves that: rows are cut before payloads. Damage does, when it hides a state entry so
    that the record after it seems to have its index, or changes the term of a batch.
    """
    for number in range(trusted, table.count):
        row = read_row(rows, number)
        if row is not None and row._replace(unsynced=0) != table.row(number):
            raise Corruption(
                f"row {number} of {path} does not describe what is stored for entry"
                f" {table.header.first_index + number}: one of them is damaged"
            )


def _refuse_to_cut_durable(table: IndexTable, rows: Buffer, path: Path) -> None:
    """Raise `Corruption` when a surviving row proves that a missing entry was once durable."""
    for number in range(table.count, (len(rows) - HEADER_BYTES) // ROW_BYTES):
        row = read_row(rows, number)
        if row is not None and number - row.unsynced > table.count:
            raise Corruption(
                f"entry {table.next_index} beside {path} was acknowledged but cannot be read:"
                f" its bytes are damaged or missing"
            )


def _last_claim(table: IndexTable, rows: Buffer) -> Doubt | None:
    """Return what the last row says whose entry is about to be cut."""
    for number in range((len(rows) - HEADER_BYTES) // ROW_BYTES - 1, table.count - 1, -1):
        row = read_row(rows, number)
        if row is not None:
            return Doubt(Term(row.term), EntryIndex(table.header.first_index + number))
    return None
