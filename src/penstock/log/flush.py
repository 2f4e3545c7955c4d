"""One group commit: everything that was appended while the one before ran.

A flush is prepared by the owner of the log, run in a thread, and then reported back. The order
inside is what recovery relies on:

    records of this flush, then state entries of this flush, then the rows, then zeros ahead of
    the entries (`ahead` says why, and what a crash leaves of them); then the syncs

and the next flush writes nothing before this one's syncs have returned. So a record on disk implies
that every state entry before it is on disk, and no crash can make recovery give an entry the index
of another. A crash between any two steps leaves a prefix of the entries, or tails that recovery
cuts because nobody was told of them:

- some records and no state entries: the records are a prefix and have their own indexes;
- state entries without their records: their `next_offset` gives them away, they are cut;
- rows without payloads: they are cut;
- payloads without rows: the rows are derived again.

Records of a topic with `durability=os` are not synced here but by the next checkpoint. State
entries always are, and then the records before them are too, those of earlier flushes included: a
state entry whose preceding records are lost has lost its place and is cut.
"""

from penstock.log.ahead import SMALL_BYTES
from penstock.log.disk import Buffer
from penstock.log.index import HEADER_BYTES, ROW_BYTES
from penstock.log.segment import Segment, SegmentFiles
from penstock.log.settings import LogSettings

# More state entries come from so many clients that the loop is better left to them.
_SLIGHT_ENTRIES_MAX = 4


class Flush:
    """Bytes on their way to the files of one segment."""

    __slots__ = (
        "_creates",
        "_follows_unsynced",
        "_log_buffers",
        "_rows",
        "_seals",
        "_settings",
        "_state_buffers",
        "end_log_bytes",
        "first_row",
        "log_position",
        "next_index",
        "segment",
        "size_bytes",
        "state_position",
    )

    def __init__(
        self, segment: Segment, settings: LogSettings, *, follows_unsynced: bool = False
    ) -> None:
        self.segment = segment
        self.first_row = segment.table.count
        self.log_position = segment.log_bytes
        self.state_position = segment.state_bytes
        self.end_log_bytes = segment.log_bytes
        self.size_bytes = 0
        """Bytes of .log and .state that the flush writes."""
        self.next_index = segment.table.next_index
        self._settings = settings
        self._follows_unsynced = follows_unsynced
        self._log_buffers: list[Buffer] = []
        self._state_buffers: list[Buffer] = []
        self._rows: list[Buffer] = []
        self._creates = False
        self._seals: Segment | None = None

    def begin_segment(self, sealed: Segment | None) -> None:
        """Let the flush put its segment on disk first, after sealing the one before."""
        self._creates = True
        self._seals = sealed

    @property
    def creates_segment(self) -> bool:
        """True when the flush puts its segment on disk first."""
        return self._creates

    @property
    def has_state(self) -> bool:
        """True when a state entry is part of this flush."""
        return bool(self._state_buffers)

    @property
    def is_empty(self) -> bool:
        """True when nothing was appended."""
        return not self._rows

    @property
    def is_slight(self) -> bool:
        """True for one batch of records, or for a few state entries and no records.

        A consumer that acks what it received writes two of these: its lease and its ack. The first
        flush of a segment is none: it has files to create.
        """
        most = 1 if self._log_buffers else _SLIGHT_ENTRIES_MAX
        return len(self._rows) <= most and not self._creates

    @property
    def is_synced(self) -> bool:
        """True when the end of `run` means that a power cut keeps the entries."""
        return self._settings.sync_records or self.has_state

    def add_records(self, batch: memoryview, row: bytes) -> None:
        """Add a stamped batch and its row."""
        assert not self._state_buffers, "records go before the state entries of a flush"
        self._log_buffers.append(batch)
        size_bytes = len(batch)
        self.end_log_bytes += size_bytes
        self.size_bytes += size_bytes
        self._rows.append(row)
        self.next_index += 1

    def add_state(self, entry: bytes, row: bytes) -> None:
        """Add a packed state entry and its row."""
        self._state_buffers.append(entry)
        self.size_bytes += len(entry)
        self._rows.append(row)
        self.next_index += 1

    def run(self) -> None:
        """Write and sync; runs in a thread and touches nothing but files.

        An `OSError` means that a write failed and the flush can be abandoned; `StorageFailed`
        means that a sync failed and the log must not be used any more.
        """
        if self._creates:
            if self._seals is not None:
                # Recovery scans only the last segment, so this one must be durable, rows included.
                sealed = self._seals.files
                self._seals.cut_ahead()
                self._seals.sync(sealed.log, sealed.state, sealed.index)
            self.segment.create_files()
        files = self.segment.files
        if self._log_buffers:
            files.log.write_at(self.log_position, self._log_buffers)
        if self._state_buffers:
            files.state.write_at(self.state_position, self._state_buffers)
        files.index.write_at(HEADER_BYTES + self.first_row * ROW_BYTES, [b"".join(self._rows)])
        if self.size_bytes <= SMALL_BYTES:
            self._write_ahead(files)
        if self.is_synced and (self._log_buffers or self._follows_unsynced):
            self.segment.sync(files.log)
        if self._state_buffers:
            self.segment.sync(files.state)

    def _write_ahead(self, files: SegmentFiles) -> None:
        segment, settings = self.segment, self._settings
        if self._log_buffers and settings.sync_records:
            segment.log_ahead.extend(files.log, self.end_log_bytes, settings.segment_bytes)
        if self._state_buffers:
            end = self.state_position + sum(map(len, self._state_buffers))
            segment.state_ahead.extend(files.state, end, settings.segment_bytes)
