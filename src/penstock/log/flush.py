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

import msgspec

from penstock.log.ahead import SMALL_BYTES
from penstock.log.disk import Buffer
from penstock.log.index import HEADER_BYTES, ROW_BYTES
from penstock.log.segment import Segment, SegmentFiles
from penstock.log.settings import LogSettings

# More state entries come from so many clients that the loop is better left to them.
_SLIGHT_ENTRIES_MAX = 4


class Flush(msgspec.Struct, eq=False):
    """Bytes on their way to the files of one segment, from these positions on.

    Nothing is appended to the segment from when the flush is taken until it has run.
    """

    segment: Segment
    settings: LogSettings
    first_row: int
    log_position: int
    state_position: int
    follows_unsynced: bool = False
    """Whether records of earlier flushes may be lost in a power cut."""
    size_bytes: int = 0
    """Bytes of .log and .state that the flush writes."""
    creates_segment: bool = False
    """Whether the flush puts its segment on disk first, after sealing the one before."""
    sealed: Segment | None = None
    log_buffers: list[Buffer] = []
    state_buffers: list[Buffer] = []
    rows: list[bytes] = []

    @property
    def has_state(self) -> bool:
        """True when a state entry is part of this flush."""
        return bool(self.state_buffers)

    @property
    def is_slight(self) -> bool:
        """True for one batch of records, or for a few state entries and no records.

        A consumer that acks what it received writes two of these: its lease and its ack. The first
        flush of a segment is none: it has files to create.
        """
        most = 1 if self.log_buffers else _SLIGHT_ENTRIES_MAX
        return len(self.rows) <= most and not self.creates_segment

    @property
    def is_synced(self) -> bool:
        """True when the end of `run` means that a power cut keeps the entries."""
        return self.settings.sync_records or bool(self.state_buffers)

    def add_records(self, batch: memoryview, row: bytes) -> None:
        """Add a stamped batch and its row."""
        assert not self.state_buffers, "records go before the state entries of a flush"
        self.log_buffers.append(batch)
        self.size_bytes += len(batch)
        self.rows.append(row)

    def add_state(self, entry: bytes, row: bytes) -> None:
        """Add a packed state entry and its row."""
        self.state_buffers.append(entry)
        self.size_bytes += len(entry)
        self.rows.append(row)

    def run(self) -> None:
        """Write and sync; runs in a thread and touches nothing but files.

        An `OSError` means that a write failed and the flush can be abandoned; `StorageFailed`
        means that a sync failed and the log must not be used any more.
        """
        if self.creates_segment:
            if self.sealed is not None:
                # Recovery scans only the last segment, so this one must be durable, rows included.
                files = self.sealed.files
                self.sealed.cut_ahead()
                self.sealed.sync(files.log, files.state, files.index)
            self.segment.create_files()
        files = self.segment.files
        if self.log_buffers:
            files.log.write_at(self.log_position, self.log_buffers)
        if self.state_buffers:
            files.state.write_at(self.state_position, self.state_buffers)
        files.index.write_at(HEADER_BYTES + self.first_row * ROW_BYTES, [b"".join(self.rows)])
        if self.size_bytes <= SMALL_BYTES:
            self._write_ahead(files)
        if self.is_synced and (self.log_buffers or self.follows_unsynced):
            self.segment.sync(files.log)
        if self.state_buffers:
            self.segment.sync(files.state)

    def _write_ahead(self, files: SegmentFiles) -> None:
        segment, settings = self.segment, self.settings
        if self.log_buffers and settings.sync_records:
            segment.log_ahead.extend(files.log, segment.log_bytes, settings.segment_bytes)
        if self.state_buffers:
            segment.state_ahead.extend(files.state, segment.state_bytes, settings.segment_bytes)
