"""Histories of one log that end before every single disk operation.

A history is a random sequence of everything that an owner may do. It is run once to count its disk
operations, and then again from the start for each of them, with the machine stopped right before.
What is found after the crash is compared with what the owner was told.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from penstock.ids import Term
from penstock.log import EntryKind, Flush, LogSettings, PartitionLog, plan_compaction
from penstock.record import Record, decode_records
from penstock.testing import MachineStopped, SimDisk

from .entries import (
    DIRECTORY,
    Entry,
    batch_of_records,
    checkpoint,
    contents,
    records,
)

STEPS = 24
SEGMENT_BYTES = 2_000
KEYS = (b"a", b"b", b"c")


@dataclass
class Owner:
    """Drives a log and remembers what it was told."""

    disk: SimDisk
    settings: LogSettings
    random: Random
    log: PartitionLog = field(init=False)
    entries: dict[int, Entry] = field(default_factory=dict)
    # Entries below survive a power cut, and entries below survive `kill -9`.
    durable_end: int = 0
    written_end: int = 0
    # The index of the first entry lies in between: retention may be at work.
    first_min: int = 0
    first_max: int = 0
    # Compaction takes committed entries only, and those are never truncated.
    committed_end: int = 0
    term: int = 1
    now_ms: int = 1_000

    def open(self) -> None:
        self.log = PartitionLog(self.disk, DIRECTORY, self.settings)

    def live(self, steps: int) -> None:
        self.open()
        actions = (
            [self.append] * 8
            + [self.append_state] * 3
            + [self.append_both] * 3
            + [self.checkpoint] * 3
            + [self.seal, self.retire, self.retire, self.compact, self.compact]
            + [self.truncate, self.run_full, self.reopen]
        )
        for _ in range(steps):
            self.now_ms += self.random.choice((1, 10, 200))
            self.random.choice(actions)()

    # What an owner does.

    def append(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            self._add_records()
        self._flush()

    def append_state(self) -> None:
        for _ in range(self.random.randint(1, 2)):
            self._add_state()
        self._flush()

    def append_both(self) -> None:
        self._add_records()
        self._add_state()
        self._flush()

    def checkpoint(self) -> None:
        checkpoint(self.log)
        self.durable_end = max(self.durable_end, self.log.written_index)

    def seal(self) -> None:
        self.log.seal_if_due(self.now_ms)

    def retire(self) -> None:
        old = self.log.expired(now_ms=self.now_ms, deletable_index=self.log.written_index)
        self.log.forget(old)
        if old:
            self.first_max = self.log.first_index
            for segment in old:
                segment.remove_files()
            self.first_min = self.log.first_index

    def compact(self) -> None:
        if not self.settings.compacts:
            return
        compaction = plan_compaction(
            self.log.segments, self.settings, self.now_ms, end_index=self.log.next_index
        )
        if compaction is not None:
            self.committed_end = max(self.committed_end, compaction.segments[-1].next_index)
            for old, cleaned in compaction.run(self.disk):
                self.log.segments[self.log.segments.index(old)] = cleaned

    def truncate(self) -> None:
        lowest = max(self.log.first_index, self.committed_end)
        index = self.random.randint(min(lowest, self.log.next_index), self.log.next_index)
        if self.log.is_empty or index < self.log.next_index - 12:
            return
        self.durable_end = min(self.durable_end, index)
        self.written_end = min(self.written_end, index)
        self.log.truncate(index)
        self._forget_from(index)
        self.durable_end = self.written_end = index
        self.term += 1

    def run_full(self) -> None:
        start = self.log.next_index
        self._add_records()
        self._add_records()
        self._add_state()
        flush = self.log.take_flush()
        assert flush is not None
        used = sum(len(self.disk.content(DIRECTORY / n)) for n in self.disk.names(DIRECTORY))
        self.disk.capacity_bytes = used + self.random.randint(0, 400 * self.scale)
        self.disk.tears_when_full = self.random.random() < 0.5
        try:
            flush.run()
        except OSError:
            self.disk.capacity_bytes = None
            self.log.abandon(flush)
            self._forget_from(start)
        else:
            self.disk.capacity_bytes = None
            self._finish(flush)

    def reopen(self) -> None:
        self.log.close()
        self.durable_end = self.written_end
        self.open()

    @property
    def scale(self) -> int:
        """Entries grow with the segments, so that a segment holds a few in any case."""
        return self.settings.segment_bytes // SEGMENT_BYTES

    def _add_records(self) -> None:
        count = self.random.randint(1, 3)
        size = self.random.choice((1, 40, 700)) * self.scale
        batch = batch_of_records(
            *(
                Record(
                    number,
                    self.now_ms - self.random.choice((0, 0, 50)),
                    self.random.choice(KEYS),
                    self.random.randbytes(size),
                )
                for number in range(count)
            )
        )
        index = self.log.next_index
        offset = self.log.append_records(batch, term=Term(self.term), now_ms=self.now_ms)
        self.entries[index] = Entry(index, self.term, EntryKind.RECORDS, offset, bytes(batch.data))

    def _add_state(self) -> None:
        payload = self.random.randbytes(self.random.choice((0, 30, 600)) * self.scale)
        offset = self.log.next_offset
        index = self.log.append_state(payload, term=Term(self.term), now_ms=self.now_ms)
        self.entries[index] = Entry(index, self.term, EntryKind.STATE, offset, payload)

    def _flush(self) -> None:
        flush = self.log.take_flush()
        assert flush is not None
        flush.run()
        self._finish(flush)

    def _finish(self, flush: Flush) -> None:
        self.log.finish(flush)
        self.written_end = self.log.written_index
        if self.settings.sync_records or flush.has_state:
            self.durable_end = self.written_end

    def _forget_from(self, index: int) -> None:
        for gone in [found for found in self.entries if found >= index]:
            del self.entries[gone]

    # What an owner finds after a crash.

    def come_back(self, random: Random) -> None:
        """Crash, and start again until a start succeeds; a start may crash as well."""
        end = self._crash(random)
        for _ in range(random.choice((0, 0, 1, 3))):
            self.disk.stop_before(random.randrange(20))
            try:
                self.open()
            except MachineStopped:
                end = min(end, self._crash(random))
            else:
                # Everything that was found is durable from here on.
                end = max(end, self.log.next_index)
                self.disk.run_on()
                end = min(end, self._crash_after_recovery(random))
        self.open()
        self._check(end)

    def _crash(self, random: Random) -> int:
        self.disk.capacity_bytes = None
        if random.random() < 0.3:
            self.disk.kill()
            return self.written_end
        self.disk.crash(random, random.choice(("prefix", "subset")))
        return self.durable_end

    def _crash_after_recovery(self, random: Random) -> int:
        found = self.log.next_index
        self.disk.crash(random, "subset")
        return found

    def _check(self, end: int) -> None:
        log = self.log
        assert self.first_min <= log.first_index <= max(self.first_max, self.first_min)
        assert log.next_index >= end, "an entry that was acknowledged is gone"
        found = contents(log)
        assert [entry.index for entry in found] == list(range(log.first_index, log.next_index))
        newest = self._newest_of_each_key(found)
        for entry in found:
            self._check_entry(entry, self.entries[entry.index], newest)
        assert records(log) == [
            record
            for entry in found
            if entry.kind == EntryKind.RECORDS and entry.payload
            for record in decode_records(entry.payload)
        ]
        self._forget_from(log.next_index)
        self.durable_end = self.written_end = log.next_index
        self.first_min = self.first_max = log.first_index

    def _newest_of_each_key(self, found: list[Entry]) -> dict[bytes | None, int]:
        return {
            record.key: record.offset
            for entry in found
            if entry.kind == EntryKind.RECORDS
            for record in decode_records(self.entries[entry.index].payload)
        }

    def _check_entry(self, entry: Entry, told: Entry, newest: dict[bytes | None, int]) -> None:
        assert entry[:4] == told[:4], "an entry has another index, term, kind or offset"
        if entry.payload == told.payload:
            return
        assert self.settings.compacts
        kept = set(decode_records(entry.payload) if entry.payload else ())
        for record in decode_records(told.payload):
            assert record in kept or newest[record.key] > record.offset
            kept.discard(record)
        assert not kept


def settings_of(seed: int) -> LogSettings:
    # Zeros are written ahead of entries in files of more than a page.
    scale = 16 if seed % 5 < 2 else 1
    return LogSettings(
        segment_bytes=SEGMENT_BYTES * scale,
        segment_ms=1_500 * scale,
        retention_bytes=9_000 * scale if seed % 3 else -1,
        retention_ms=-1,
        sync_records=seed % 4 != 3,
        compacts=seed % 2 == 0,
        dirty_ratio_min=0.1,
        tombstone_retention_ms=10**9,
    )


def run_until(seed: int, operations: int | None) -> tuple[Owner, bool]:
    disk = SimDisk()
    owner = Owner(disk, settings_of(seed), Random(seed))
    if operations is not None:
        disk.stop_before(operations)
    try:
        owner.live(STEPS)
    except MachineStopped:
        return owner, True
    return owner, False


@pytest.mark.parametrize("seed", range(16))
def test_what_was_acknowledged_survives_a_crash_before_any_disk_operation(seed: int) -> None:
    whole, _ = run_until(seed, None)

    for operations in range(whole.disk.operations):
        owner, was_stopped = run_until(seed, operations)
        assert was_stopped
        random = Random(seed * 100_003 + operations)

        try:
            owner.come_back(random)
            # The log is as good as new: it takes entries, and they survive the next power cut.
            owner.live(2)
            owner.come_back(random)
        except Exception as error:
            error.add_note(f"seed {seed}, stopped before operation {operations}")
            raise
