"""Compaction: keep the latest record of each key.

Only sealed segments are cleaned. The latest offset of each key is gathered from the segments that
were never cleaned, and then each segment up to there is written anew without the records that a
later one replaces. A tombstone (a record without value) stays until its segment has been clean for
the topic's tombstone retention, so that readers can learn of the deletion.

Entries keep their index and records their offset: a batch that lost all its records leaves a row of
size 0. Where the state still remembers the batch, as one of the last that its producer sent, the
header stays: a replica that gets its entries from here must come to remember it, too. Rows can then
no longer be derived from the payloads, so both files are swapped in together:

1. write and sync `<name>.log.clean` and `<name>.index.clean`, then the directory; after a crash
   here the next start removes them;
2. create `<name>.swap` and sync the directory; from here on the next start finishes the swap;
3. rename both, sync the directory;
4. remove `<name>.swap`, sync the directory.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from penstock.errors import Corruption, InvalidRequest
from penstock.log.disk import Disk
from penstock.log.index import EntryKind, IndexTable, Row
from penstock.log.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment, sealed_segments
from penstock.log.settings import LogSettings
from penstock.record import Record, decode_records, read_header, rewrite_batch
from penstock.record.batch import checksum_matches

_CLEAN = ".clean"
_SWAP = ".swap"
# 16 bytes of digest and an offset for each key: a quarter of a gigabyte at most.
KEYS_MAX = 2_000_000


@dataclass(frozen=True, slots=True)
class Compaction:
    """The segments of one pass, oldest first, and when it began."""

    segments: list[Segment]
    now_ms: int
    tombstone_retention_ms: int
    remembered: Collection[int] = ()

    def run(self, disk: Disk) -> list[tuple[Segment, Segment]]:
        """Clean the segments on disk; return pairs of old and new. Runs in a thread.

        Readers of the old segments go on with the files that they have open.
        """
        latest, covered = self._latest_offsets()
        swapped = []
        for segment in covered:
            cleaned = self._rewrite(disk, segment, latest)
            _swap_in(disk, cleaned)
            swapped.append((segment, cleaned))
        return swapped

    def _latest_offsets(self) -> tuple[dict[bytes, int], list[Segment]]:
        latest: dict[bytes, int] = {}
        covered: list[Segment] = []
        for segment in self.segments:
            if covered and len(latest) >= KEYS_MAX:
                break
            covered.append(segment)
            if segment.table.header.cleaned_ms == 0:
                for _, batch in _checked_batches(segment):
                    for record in _decoded(batch):
                        if record.key is not None:
                            latest[_digest(record.key)] = record.offset
        return latest, covered

    def _rewrite(self, disk: Disk, segment: Segment, latest: dict[bytes, int]) -> Segment:
        header = segment.table.header
        table = IndexTable.empty(replace(header, cleaned_ms=header.cleaned_ms or self.now_ms))
        log = disk.create(_clean_path(segment, LOG_SUFFIX))
        position = 0
        for row, batch in _checked_batches(segment, with_state_rows=True):
            kept = self._kept_bytes(segment, batch, latest) if batch else b""
            size = len(kept) if row.kind == EntryKind.RECORDS else row.size
            table.append(row._replace(log_position=position, size=size, unsynced=0))
            if kept:
                log.write_at(position, [kept])
                position += len(kept)
        log.sync()
        index = disk.create(_clean_path(segment, INDEX_SUFFIX))
        rows = b"".join(table.row(number).pack() for number in range(table.count))
        index.write_at(0, [table.header.pack(), rows])
        index.sync()
        return Segment(disk, segment.directory, table)

    def _kept_bytes(
        self, segment: Segment, batch: bytes, latest: dict[bytes, int]
    ) -> bytes | bytearray:
        header = read_header(batch)
        if header.is_control or header.is_transactional or header.is_release:
            # A replica that is behind learns from a release who has left the stage: a record that
            # is missing there would be released again.
            return batch
        records = _decoded(batch)
        kept = [record for record in records if self._is_kept(segment, record, latest)]
        if header.records and len(kept) == len(records):
            return batch
        if kept or header.base_offset in self.remembered:
            return rewrite_batch(header, kept)
        return b""

    def _is_kept(self, segment: Segment, record: Record, latest: dict[bytes, int]) -> bool:
        if record.key is None:
            return True
        if latest.get(_digest(record.key), -1) > record.offset:
            return False
        cleaned_ms = segment.table.header.cleaned_ms
        is_old = cleaned_ms > 0 and self.now_ms - cleaned_ms >= self.tombstone_retention_ms
        return record.value is not None or not is_old


def plan_compaction(
    segments: list[Segment],
    settings: LogSettings,
    now_ms: int,
    *,
    end_index: int,
    remembered: Collection[int] = (),
) -> Compaction | None:
    """Return a pass over the sealed segments when enough of them was never cleaned.

    Entries from `end_index` on may still be cut, and then nothing that they replace may be gone.
    Batches that begin at a `remembered` offset keep at least their header.
    """
    ripe = []
    for segment in sealed_segments(segments):
        is_young = segment.table.max_timestamp > now_ms - settings.compaction_lag_ms
        if is_young or segment.next_index > end_index:
            break
        ripe.append(segment)
    dirty_bytes = sum(s.log_bytes for s in ripe if s.table.header.cleaned_ms == 0)
    total_bytes = sum(s.log_bytes for s in ripe)
    if dirty_bytes == 0 or dirty_bytes < settings.dirty_ratio_min * total_bytes:
        return None
    for segment in ripe:
        # Readers must find the old files open when the new ones take their names.
        assert segment.files
    return Compaction(ripe, now_ms, settings.tombstone_retention_ms, remembered)


def finish_interrupted_swap(disk: Disk, directory: Path) -> None:
    """Complete or undo what a crash left of a compaction."""
    names = disk.names(directory)
    markers = [name for name in names if name.endswith(_SWAP)]
    if markers:
        # A killed process may have left a marker whose name is not durable yet.
        disk.sync_directory(directory)
    for marker in markers:
        stem = marker.removesuffix(_SWAP)
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX):
            clean = directory / (stem + suffix + _CLEAN)
            if disk.exists(clean):
                disk.rename(clean, directory / (stem + suffix))
        disk.sync_directory(directory)
        disk.remove(directory / marker)
    for name in disk.names(directory):
        if name.endswith(_CLEAN):
            disk.remove(directory / name)
    if markers:
        disk.sync_directory(directory)


def _swap_in(disk: Disk, cleaned: Segment) -> None:
    # The marker must not be on disk without both files: the next start would swap in only one.
    disk.sync_directory(cleaned.directory)
    marker = cleaned.path(_SWAP)
    disk.create(marker).close()
    disk.sync_directory(cleaned.directory)
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX):
        disk.rename(_clean_path(cleaned, suffix), cleaned.path(suffix))
    disk.sync_directory(cleaned.directory)
    disk.remove(marker)
    disk.sync_directory(cleaned.directory)


def _clean_path(segment: Segment, suffix: str) -> Path:
    return segment.path(suffix + _CLEAN)


def _checked_batches(
    segment: Segment, *, with_state_rows: bool = False
) -> Iterator[tuple[Row, bytes]]:
    """Yield rows with their batches; rows without a batch come with empty bytes when asked for."""
    for number in range(segment.table.count):
        row = segment.table.row(number)
        if row.kind != EntryKind.RECORDS or row.size == 0:
            if with_state_rows:
                yield row, b""
            continue
        batch = segment.files.log.read_at(row.log_position, row.size)
        if len(batch) < row.size or not checksum_matches(batch):
            raise Corruption(
                f"{segment.path(LOG_SUFFIX)} is damaged at offset {row.first_offset};"
                " compaction leaves the partition alone"
            )
        yield row, batch


def _decoded(batch: bytes) -> list[Record]:
    """Return the records, or none when a producer sent bytes that are not records.

    Such a batch is as durable as any other and stays as it is.
    """
    try:
        return list(decode_records(batch))
    except InvalidRequest:
        return []


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()
