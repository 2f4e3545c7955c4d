"""The log of one partition.

Entries are appended in memory and written by a `Flush`, one at a time:

    log.append_records(...); log.append_state(...)
    flush = log.take_flush()
    flush.run()                     # in a thread
    log.finish(flush)               # or log.abandon(flush) when nothing was synced

One owner calls these; nothing here waits or locks. An entry may be read once its flush is finished.
An `OSError` from a write can be abandoned: nobody was told of the entries, and the files are cut
back. A failed sync (`StorageFailed`) cannot: the owner must stop using the log.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import Corruption, NotFound, StorageFailed
from penstock.ids import EntryIndex, Offset, Term
from penstock.log.checkpoint import CheckpointFile
from penstock.log.compaction import finish_interrupted_swap
from penstock.log.disk import Disk, cut_anew
from penstock.log.doubt import load_doubt
from penstock.log.flush import Flush
from penstock.log.index import (
    HEADER_BYTES,
    ROW_BYTES,
    EntryKind,
    IndexHeader,
    IndexTable,
    Row,
    make_row,
)
from penstock.log.proof import prove
from penstock.log.recovery import recover
from penstock.log.scrub import fault_in_batch
from penstock.log.segment import (
    FileRange,
    Segment,
    new_segment,
    sealed_segments,
    sync_file,
)
from penstock.log.settings import LogSettings
from penstock.log.state import StateEntry, read_state_entry
from penstock.record import Record, RecordBatch, decode_records, stamp

# Looking a member up in its enum costs as much as a call.
_RECORDS: Final = EntryKind.RECORDS


@dataclass(frozen=True, slots=True)
class CheckpointRun:
    """Sizes of the active segment that are about to become durable."""

    file: CheckpointFile
    segment: Segment
    rows: int
    log_bytes: int
    state_bytes: int
    syncs_records: bool

    def run(self) -> None:
        """Sync the rows, and the records where flushes do not; then note the sizes."""
        if self.syncs_records:
            self.segment.sync(self.segment.files.log)
        self.segment.sync(self.segment.files.index)
        self.file.write(
            first_index=self.segment.first_index,
            rows=self.rows,
            log_bytes=self.log_bytes,
            state_bytes=self.state_bytes,
        )


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a log without entries begins."""

    index: EntryIndex
    offset: Offset
    term: Term


class PartitionLog:
    """An append-only sequence of entries in segments; offsets count its records."""

    def __init__(self, disk: Disk, directory: Path, settings: LogSettings) -> None:
        """Open the log in `directory`, recovering it when a crash cut it short."""
        self.settings = settings
        self.directory = directory
        self._disk = disk
        self._open()

    def _open(self) -> None:
        disk, directory = self._disk, self.directory
        disk.make_directory(directory)
        finish_interrupted_swap(disk, directory)
        self._checkpoint = CheckpointFile(disk, directory)
        recovered = recover(disk, directory, self._checkpoint)
        self.cut_bytes = recovered.cut_log_bytes + recovered.cut_state_bytes
        self.segments = recovered.segments
        self.doubt = load_doubt(disk, directory)
        self._origin = Origin(EntryIndex(0), Offset(0), Term(0))
        self._open_flush: Flush | None = None
        self._running_flush: Flush | None = None
        # Entries below are on disk (`written`) and survive a power cut (`synced`).
        self.written_index = EntryIndex(self.next_index)
        self._synced_index = self.next_index
        newest = self._checkpoint.newest
        is_current = bool(newest and newest.first_index == self._active_first_index)
        self._checkpointed_index = self.next_index if is_current else EntryIndex(0)

    def reopen(self) -> None:
        """Read the files anew, after others have taken their place. Runs file operations."""
        assert self._running_flush is None
        self._checkpoint.close()
        for segment in self.segments:
            segment.drop_files()
        self._open()

    @property
    def is_empty(self) -> bool:
        """True before the first entry was appended or received."""
        return not self.segments

    def begin_at(self, *, index: EntryIndex, offset: Offset, term: Term) -> None:
        """Say where an empty log begins, and the term of the entry before."""
        assert self.is_empty, "a log that has entries begins with the first of them"
        self._origin = Origin(index, offset, term)
        self.written_index = index
        self._synced_index = index

    @property
    def first_index(self) -> EntryIndex:
        """The index of the oldest entry that is kept."""
        return EntryIndex(self.segments[0].first_index if self.segments else self._origin.index)

    @property
    def next_index(self) -> EntryIndex:
        """The index that the next entry gets."""
        segments = self.segments
        return EntryIndex(segments[-1].table.next_index if segments else self._origin.index)

    @property
    def first_offset(self) -> Offset:
        """The offset of the oldest record that is kept."""
        return Offset(self.segments[0].first_offset if self.segments else self._origin.offset)

    @property
    def next_offset(self) -> Offset:
        """The offset that the next record gets."""
        return Offset(self.segments[-1].table.next_offset if self.segments else self._origin.offset)

    @property
    def last_term(self) -> Term:
        """The term of the last entry, or of the one before the first."""
        if not self.segments:
            return self._origin.term
        active = self.segments[-1].table
        last = active.last()
        return Term(last.term if last else active.header.previous_term)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def _active_first_index(self) -> int:
        return self.segments[-1].first_index if self.segments else 0

    # Appending.

    def append_records(self, batch: RecordBatch, *, term: Term, now_ms: int) -> Offset:
        """Stamp the batch with the next offset and queue it for the next flush."""
        header, data = batch.header, batch.data
        size_bytes = len(data)
        flush = self._open_flush or self._begin_flush(size_bytes, now_ms)
        segment = flush.segment
        table = segment.table
        offset = table.next_offset
        if header.base_offset != offset or header.leader_epoch != term:
            stamp(data, offset, term)
        row = make_row(
            (
                term,
                _RECORDS,
                header.last_offset_delta + 1,
                size_bytes,
                offset,
                segment.log_bytes,
                segment.state_bytes,
                max(table.max_timestamp, header.max_timestamp),
                table.next_index - self._synced_index,
            )
        )
        flush.add_records(data, table.append(row))
        segment.log_bytes += size_bytes
        return Offset(offset)

    def append_state(
        self, payload: bytes, *, term: Term, now_ms: int, kind: EntryKind = EntryKind.STATE
    ) -> EntryIndex:
        """Queue an entry that is not a record for the next flush."""
        flush = self._open_flush or self._begin_flush(len(payload), now_ms)
        segment = flush.segment
        table = segment.table
        index, next_offset = table.next_index, table.next_offset
        packed = StateEntry(index, term, next_offset, payload, kind).pack()
        row = make_row(
            (
                term,
                kind,
                0,
                len(packed),
                next_offset,
                segment.log_bytes,
                segment.state_bytes,
                table.max_timestamp,
                index - self._synced_index,
            )
        )
        flush.add_state(packed, table.append(row))
        segment.state_bytes += len(packed)
        return EntryIndex(index)

    def _begin_flush(self, size_bytes: int, now_ms: int) -> Flush:
        assert self._running_flush is None, "a flush is still running"
        active = self.segments[-1] if self.segments else None
        if active is not None and not self._is_full(active, size_bytes, now_ms):
            table = active.table
            flush = self._open_flush = Flush(
                active,
                self.settings,
                table.count,
                active.log_bytes,
                active.state_bytes,
                self._synced_index < table.next_index,
            )
            return flush
        header = IndexHeader(self.next_index, self.next_offset, self.last_term, now_ms)
        segment = new_segment(self._disk, self.directory, header)
        self.segments.append(segment)
        flush = self._open_flush = Flush(
            segment, self.settings, 0, 0, 0, creates_segment=True, sealed=active
        )
        return flush

    def _is_full(self, segment: Segment, size_bytes: int, now_ms: int) -> bool:
        table, settings = segment.table, self.settings
        return table.count > 0 and (
            segment.log_bytes + segment.state_bytes + size_bytes > settings.segment_bytes
            or table.count >= settings.segment_rows_max
            or now_ms - table.header.created_ms >= settings.segment_ms
        )

    def take_flush(self) -> Flush | None:
        """Return what was appended, to be run in a thread, or None when there is nothing."""
        flush, self._open_flush = self._open_flush, None
        self._running_flush = flush
        return flush

    def finish(self, flush: Flush) -> None:
        """Take note that a flush has run: its entries may be read."""
        assert flush is self._running_flush
        self._running_flush = None
        segment = flush.segment
        table = segment.table
        segment.written_log_bytes = segment.log_bytes
        segment.written_rows = table.count
        self.written_index = next_index = EntryIndex(table.next_index)
        if flush.is_synced:
            self._synced_index = next_index
        if flush.first_row == 0 and len(self.segments) > 1:
            self._map_sealed(self.segments[-2])

    def abandon(self, flush: Flush) -> None:
        """Take back a flush that failed to write. Runs file operations; raises `OSError`.

        The cuts are synced: an abandoned state entry that came back after a power cut would take
        the index of a record that was appended, and acknowledged, in its place.
        """
        assert flush is self._running_flush
        self._running_flush = None
        segment = flush.segment
        if flush.creates_segment:
            segment.remove_files()
            self.segments.remove(segment)
            return
        segment.table.truncate(flush.first_row)
        segment.log_bytes = flush.log_position
        segment.state_bytes = flush.state_position
        self._withdraw_checkpoint()
        _cut(segment)

    def _map_sealed(self, segment: Segment) -> None:
        """Read the rows of a segment that has just been sealed from its file."""
        table = segment.table
        view = segment.files.index.view()
        segment.table = IndexTable.mapped(table.header, view, table.count)
        segment.unproven_end = segment.log_bytes

    # Checkpoints.

    @property
    def needs_checkpoint(self) -> bool:
        """True when something was written since the last checkpoint."""
        segment = self.segments[-1] if self.segments else None
        return (
            segment is not None
            and segment.written_rows > 0
            and segment.first_index + segment.written_rows > self._checkpointed_index
        )

    def take_checkpoint(self) -> "CheckpointRun | None":
        """Return what is written since the last checkpoint, to be synced in a thread.

        The sizes are taken now and the sync comes later, so that they never lead. A flush may run
        at the same time, a truncation may not.
        """
        if not self.needs_checkpoint:
            return None
        segment = self.segments[-1]
        next_index = segment.first_index + segment.written_rows
        return CheckpointRun(
            file=self._checkpoint,
            segment=segment,
            rows=segment.written_rows,
            log_bytes=segment.written_log_bytes,
            state_bytes=segment.table.row(segment.written_rows - 1).state_end,
            syncs_records=self._synced_index < next_index,
        )

    def finish_checkpoint(self, run: "CheckpointRun") -> None:
        """Take note that a checkpoint has run."""
        next_index = run.segment.first_index + run.rows
        self._checkpointed_index = EntryIndex(next_index)
        self._synced_index = EntryIndex(max(self._synced_index, next_index))

    # Reading.

    def read(self, offset: int, *, end_offset: int, bytes_max: int) -> FileRange | None:
        """Return batches from the one that holds `offset`, at most up to `end_offset`.

        None is a normal answer: there is nothing to read yet. At least one whole batch is
        returned otherwise, whatever its size.
        """
        for segment in self._segments_from(offset):
            found = segment.range_from(offset=offset, end_offset=end_offset, bytes_max=bytes_max)
            if found is not None:
                is_proven = found.position >= segment.unproven_end
                return found if is_proven else prove(segment, found)
        return None

    def _segments_from(self, offset: int) -> Iterator[Segment]:
        """Yield the segment that holds `offset` and those after it.

        The next one matters when compaction has emptied the rest of a segment.
        """
        number = bisect_right(self.segments, offset, key=_first_offset) - 1
        yield from self.segments[max(number, 0) :]

    def find_time(self, timestamp: int, *, end_offset: int, start_offset: int = 0) -> Record | None:
        """Return the first record at or after `timestamp`, in log order."""
        for segment in self.segments:
            found = self._find_time_in(segment, timestamp, start_offset, end_offset)
            if found is not None:
                return found
        return None

    def find_newest(self, *, end_offset: int) -> Record | None:
        """Return the record with the largest timestamp; the first one when several share it."""
        bounds = [(_newest_ms(segment, end_offset), segment) for segment in self.segments]
        newest: Record | None = None
        for bound_ms, segment in sorted(bounds, key=lambda pair: pair[0], reverse=True):
            if bound_ms < 0 or (newest is not None and bound_ms < newest.timestamp):
                break
            # Compaction may have removed the record that the rows remember as the newest.
            found = self._find_time_in(segment, bound_ms, 0, end_offset) or max(
                self._records_from(segment, 0, end_offset), key=_by_time, default=None
            )
            newest = max(filter(None, (newest, found)), key=_by_time, default=None)
        return newest

    def _find_time_in(
        self, segment: Segment, timestamp: int, start_offset: int, end_offset: int
    ) -> Record | None:
        if segment.table.max_timestamp < timestamp:
            return None
        table = segment.table
        first_row = max(table.number_of_time(timestamp), table.number_of_offset(start_offset))
        for record in self._records_from(segment, first_row, end_offset):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return record
        return None

    def _records_from(self, segment: Segment, first_row: int, end_offset: int) -> Iterator[Record]:
        """Yield the written records of a segment from a row on, up to `end_offset`."""
        for number in range(first_row, segment.written_rows):
            row = segment.table.row(number)
            if row.first_offset >= end_offset:
                return
            if row.kind == EntryKind.RECORDS and row.size:
                for record in self._records(segment, row):
                    if record.offset >= end_offset:
                        return
                    yield record

    def _records(self, segment: Segment, row: Row) -> Iterator[Record]:
        batch = segment.files.log.read_at(row.log_position, row.size)
        if reason := fault_in_batch(batch, row):
            segment.damage.append((row.log_position, row.log_end))
            raise Corruption(
                f"the batch at offset {row.first_offset} of {self.directory} is damaged: {reason}"
            )
        return decode_records(batch)

    def term_at(self, index: int) -> Term:
        """Return the term of an entry, or of the one before the first that is kept."""
        if not self.segments:
            assert index == self._origin.index - 1, "the log is empty"
            return self._origin.term
        segment = self._segment_of(index)
        if index < segment.first_index:
            assert index == segment.first_index - 1, "older entries are gone"
            return Term(segment.table.header.previous_term)
        return Term(segment.table.row(index - segment.first_index).term)

    def offset_before(self, index: int) -> Offset:
        """Return the offset that the first record at or after entry `index` has or would get."""
        if index >= self.next_index:
            return self.next_offset
        if index < self.first_index:
            return self.first_offset
        return Offset(self.row_at(index).first_offset)

    def row_at(self, index: int) -> Row:
        """Return the row of an entry."""
        segment = self._segment_of(index)
        return segment.table.row(index - segment.first_index)

    def end_offset_of_term(self, term: int) -> tuple[Term, Offset] | None:
        """Return the largest term up to `term` and the offset after its last record."""
        for segment in reversed(self.segments):
            table = segment.table
            number = bisect_right(range(table.count), term, key=lambda n: table.row(n).term)
            if number:
                row = table.row(number - 1)
                return Term(row.term), Offset(row.next_offset)
        return None

    def state_entries(self, start: int) -> Iterator[StateEntry]:
        """Yield the state entries from index `start` on; raise `Corruption` on a damaged one.

        What is still being written is left out: it would look like damage.
        """
        for row, segment, index in self.rows(start):
            if index >= self.written_index:
                return
            if row.kind == EntryKind.STATE:
                data = segment.files.state.read_at(row.state_position, row.size)
                entry = read_state_entry(data)
                if entry is None or entry.index != index:
                    raise Corruption(f"state entry {index} of {self.directory} is damaged")
                yield entry

    def payload_at(self, index: int) -> tuple[Row, bytes]:
        """Return an entry's row and its payload, checked; raise `Corruption` when it is damaged.

        Raises `NotFound` when retention has taken it.
        """
        segment = self._segment_of(index)
        if index < segment.first_index:
            raise NotFound(f"entry {index} of {self.directory} is gone")
        row = segment.table.row(index - segment.first_index)
        if row.kind == EntryKind.RECORDS:
            batch = segment.files.log.read_at(row.log_position, row.size)
            if row.size and (reason := fault_in_batch(batch, row)):
                raise Corruption(f"entry {index} of {self.directory} is damaged: {reason}")
            return row, batch
        entry = read_state_entry(segment.files.state.read_at(row.state_position, row.size))
        if entry is None or (entry.index, entry.term) != (index, row.term):
            raise Corruption(f"state entry {index} of {self.directory} is damaged")
        return row, entry.payload

    def batches(self, start: int) -> Iterator[bytes]:
        """Yield the record batches from index `start` on, unchecked."""
        for row, segment, _ in self.rows(start):
            if row.kind == EntryKind.RECORDS and row.size:
                yield segment.files.log.read_at(row.log_position, row.size)

    def bytes_from(self, start: int) -> tuple[int, int]:
        """Return how many bytes of records and of other entries there are from `start` on."""
        log_bytes = state_bytes = 0
        for segment in reversed(self.segments):
            if segment.next_index <= start:
                break
            log_bytes += segment.log_bytes
            state_bytes += segment.state_bytes
            if segment.first_index < start:
                row = segment.table.row(start - segment.first_index)
                log_bytes -= row.log_position
                state_bytes -= row.state_position
        return log_bytes, state_bytes

    def rows(self, start: int) -> Iterator[tuple[Row, Segment, int]]:
        """Yield row, segment and index of every entry from `start` on."""
        for segment in self.segments:
            for number in range(max(0, start - segment.first_index), segment.table.count):
                yield segment.table.row(number), segment, segment.first_index + number

    def _segment_of(self, index: int) -> Segment:
        number = bisect_right(self.segments, index, key=_first_index) - 1
        return self.segments[max(number, 0)]

    # Giving up entries.

    def truncate(self, index: int) -> None:
        """Remove all entries from `index` on, durably, before others take their place.

        Entries that were replaced must not come back after a crash, so the cut is synced before
        anything is appended, and the checkpoint is withdrawn before the cut. A segment that begins
        with `index` stays, empty: the one before it may have been compacted, and the rows of such a
        segment cannot be derived, so it must not become the last one.
        """
        assert self._open_flush is None
        assert self._running_flush is None
        kept = max(1, bisect_right(self.segments, index, key=_first_index))
        self._withdraw_checkpoint()
        while len(self.segments) > kept:
            self.segments.pop().remove_files()
        segment = self.segments[-1]
        rows = max(0, index - segment.first_index)
        table = IndexTable.growing(segment.table.header, segment.files.index.view(), rows)
        self.segments[-1] = reopened = Segment(self._disk, self.directory, table)
        _cut(reopened)
        self.written_index = self.next_index
        self._synced_index = self.next_index

    def _withdraw_checkpoint(self) -> None:
        """Forget the checkpoint before a cut, so that recovery finishes one that a crash stops."""
        self._checkpoint.withdraw()
        self._checkpointed_index = EntryIndex(0)

    def is_seal_due(self, now_ms: int) -> bool:
        """Whether the active segment is old enough to be sealed."""
        return bool(self.segments) and self._is_full(self.segments[-1], 0, now_ms)

    def seal_if_due(self, now_ms: int) -> bool:
        """Begin a new segment when the active one is old, so that retention can take it.

        Runs file operations; must not run beside a flush. An `OSError` means that nothing has
        changed, `StorageFailed` that the log must not be used any more.
        """
        assert self._open_flush is None
        assert self._running_flush is None
        if not self.is_seal_due(now_ms):
            return False
        flush = self._begin_flush(0, now_ms)
        self.take_flush()
        try:
            flush.run()
        except OSError:
            try:
                self.abandon(flush)
            except OSError as second:
                raise StorageFailed(f"a new segment could not be taken back: {second}") from second
            raise
        self.finish(flush)
        return True

    def expired(self, *, now_ms: int, deletable_index: int) -> list[Segment]:
        """Return the oldest segments that retention gives up; never the active one.

        Entries from `deletable_index` on are still needed to rebuild state.
        """
        settings = self.settings
        found: list[Segment] = []
        if not settings.deletes:
            return found
        excess = self.size_bytes - settings.retention_bytes if settings.retention_bytes >= 0 else 0
        for segment in sealed_segments(self.segments):
            newest_ms = segment.table.max_timestamp
            is_old = 0 <= settings.retention_ms < now_ms - newest_ms
            is_excess = settings.retention_bytes >= 0 and excess >= segment.size_bytes
            if not (is_old or is_excess) or segment.next_index > deletable_index:
                break
            excess -= segment.size_bytes
            found.append(segment)
        return found

    def below(self, offset: int, *, deletable_index: int) -> list[Segment]:
        """Return the oldest segments whose records all lie below `offset`."""
        found = []
        for segment in sealed_segments(self.segments):
            if segment.table.next_offset > offset or segment.next_index > deletable_index:
                break
            found.append(segment)
        return found

    def forget(self, segments: list[Segment]) -> None:
        """Take the oldest segments out of the log; their files are still to be removed."""
        for segment in segments:
            assert segment is self.segments[0], "segments go from the oldest on"
            self.segments.pop(0)

    def close(self) -> None:
        """Checkpoint and release the files; no flush may be running."""
        active = self.segments[-1] if self.segments else None
        if active is not None and active.may_end_with_zeros:
            active.cut_ahead()
        checkpoint = self.take_checkpoint()
        if checkpoint is not None:
            checkpoint.run()
        self._checkpoint.close()
        for segment in self.segments:
            segment.drop_files()


def _cut(segment: Segment) -> None:
    """Cut the files of a segment down to the entries in its table, durably, in this order.

    A row that outlived its payload would look like damage. A record that outlived a state entry
    before it would take its index.
    """
    files = segment.files
    cut_anew(files.index, HEADER_BYTES + segment.table.count * ROW_BYTES)
    sync_file(files.index)
    segment.log_ahead.cut(files.log, segment.log_bytes)
    sync_file(files.log)
    segment.state_ahead.cut(files.state, segment.state_bytes)
    sync_file(files.state)


def _newest_ms(segment: Segment, end_offset: int) -> int:
    """Return the largest timestamp written below `end_offset`, or -1."""
    if segment.written_rows == 0 or segment.first_offset >= end_offset:
        return -1
    number = segment.table.number_of_offset(end_offset - 1)
    return segment.table.row(min(number, segment.written_rows - 1)).max_timestamp


def _by_time(record: Record) -> tuple[int, int]:
    return record.timestamp, -record.offset


def _first_offset(segment: Segment) -> int:
    return segment.first_offset


def _first_index(segment: Segment) -> int:
    return segment.first_index
