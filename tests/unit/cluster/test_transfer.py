"""A copied snapshot takes the place of a log, whole or not at all."""

import itertools
from pathlib import Path
from random import Random

import pytest

from penstock.cluster.transfer import (
    ChunkRequest,
    IncomingCopy,
    finish_interrupted_transfer,
    manifest_of,
    read_chunk,
    swap_in,
)
from penstock.errors import Corruption, InvalidRequest
from penstock.ids import EntryIndex, Offset, Term
from penstock.log import (
    HardStateFile,
    IndexHeader,
    LogSettings,
    PartitionLog,
    Snapshot,
    load_snapshot,
    save_snapshot,
)
from penstock.log.doubt import Doubt, load_doubt, save_doubt
from penstock.record import Record, RecordBatch, encode_batch, split_batches
from penstock.testing import MachineStopped, SimDisk

DIRECTORY = Path("/data/topics/orders/0")
SETTINGS = LogSettings(segment_bytes=400)


def batch_of(value: bytes) -> RecordBatch:
    (batch,) = split_batches(encode_batch([Record(0, 0, None, value)]))
    return batch


def append(log: PartitionLog, value: bytes, term: int) -> None:
    log.append_records(batch_of(value), term=Term(term), now_ms=0)
    flush = log.take_flush()
    assert flush is not None
    flush.run()
    log.finish(flush)


def log_with(disk: SimDisk, values: list[bytes], term: int) -> PartitionLog:
    log = PartitionLog(disk, DIRECTORY, SETTINGS)
    if log.is_empty:
        log.begin_at(index=EntryIndex(1), offset=Offset(0), term=Term(0))
    for value in values:
        append(log, value, term)
    return log


def entries_of(disk: SimDisk) -> list[tuple[int, int, bytes]]:
    """Index, term and payload of every entry, as the next start finds them."""
    log = PartitionLog(disk, DIRECTORY, SETTINGS)
    return [(index, row.term, log.payload_at(index)[1]) for row, _, index in log.rows(0)]


class Leader:
    """A log of several segments with a snapshot that stands for its first entries."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.log = log_with(self.disk, [b"value-%d" % number for number in range(12)], term=2)
        self.index = 9
        snapshot = Snapshot(EntryIndex(self.index + 1), Term(2), b"state")
        save_snapshot(self.disk, DIRECTORY, snapshot)
        self.manifest = manifest_of(self.disk, self.log, self.index)
        self.entries = [entry for entry in entries_of(self.disk) if entry[0] <= self.index]

    def copy_to(self, disk: SimDisk) -> None:
        """What a follower does, in one go."""
        copy = IncomingCopy(disk, DIRECTORY)
        copy.begin()
        for file in self.manifest.files:
            request = ChunkRequest(1, self.index, file.name, 0, file.size_bytes)
            copy.write(file.name, 0, read_chunk(self.disk, DIRECTORY, request))
        copy.check(self.index)
        header = IndexHeader(self.index + 1, self.manifest.next_offset, self.manifest.term, 0)
        copy.complete([file.name for file in self.manifest.files], header)
        swap_in(disk, DIRECTORY)


def old_follower() -> SimDisk:
    disk = SimDisk()
    log_with(disk, [b"other-%d" % number for number in range(5)], term=1).close()
    save_snapshot(disk, DIRECTORY, Snapshot(EntryIndex(2), Term(1), b"old state"))
    return disk


def test_a_copied_log_holds_the_same_entries_and_goes_on_after_them() -> None:
    leader = Leader()
    disk = old_follower()

    leader.copy_to(disk)

    assert entries_of(disk) == leader.entries
    snapshot = load_snapshot(disk, DIRECTORY)
    assert snapshot is not None
    assert snapshot.payload == b"state"
    log = log_with(disk, [b"next"], term=3)
    assert log.row_at(leader.index + 1).first_offset == leader.index
    assert log.row_at(leader.index + 1).term == 3


def test_vote_and_doubt_are_the_replicas_own_and_stay() -> None:
    disk = old_follower()
    HardStateFile(disk, DIRECTORY).save(term=7, vote=2, commit=0)
    save_doubt(disk, DIRECTORY, Doubt(Term(6), EntryIndex(90)))

    Leader().copy_to(disk)

    assert HardStateFile(disk, DIRECTORY).newest.term == 7
    assert load_doubt(disk, DIRECTORY) == (6, 90)


def test_damage_on_the_leader_does_not_spread_to_a_copy() -> None:
    names = [file.name for file in Leader().manifest.files]
    for name in names:
        leader = Leader()
        size_bytes = next(each.size_bytes for each in leader.manifest.files if each.name == name)
        if size_bytes == 0:
            continue
        leader.disk.flip_bit(DIRECTORY / name, size_bytes // 2)

        with pytest.raises(Corruption):
            leader.copy_to(old_follower())


def test_a_file_that_was_replaced_while_it_was_copied_is_noticed() -> None:
    leader = Leader()
    log_name = next(each.name for each in leader.manifest.files if each.name.endswith(".log"))
    content = leader.disk.content(DIRECTORY / log_name)
    first = split_batches(bytearray(content))[0]
    leader.disk.put(DIRECTORY / log_name, content[len(first.data) :] + content[: len(first.data)])

    with pytest.raises(Corruption):
        leader.copy_to(old_follower())


@pytest.mark.parametrize("order", ["prefix", "subset"])
def test_a_crash_before_any_step_leaves_the_old_or_the_new_log_whole(order: str) -> None:
    leader = Leader()
    old = entries_of(old_follower())
    found = set()
    for steps in itertools.count():
        disk = old_follower()
        disk.stop_before(steps)
        try:
            leader.copy_to(disk)
        except MachineStopped:
            disk.crash(Random(steps), order)  # type: ignore[arg-type]
        else:
            break
        finish_interrupted_transfer(disk, DIRECTORY)
        entries = entries_of(disk)
        assert entries in (old, leader.entries), f"stopped before step {steps}"
        snapshot = load_snapshot(disk, DIRECTORY)
        assert snapshot is not None
        assert snapshot.payload == (b"state" if entries == leader.entries else b"old state")
        found.add(entries == leader.entries)
    assert found == {False, True}


def test_a_crash_while_a_stopped_swap_is_finished_changes_nothing() -> None:
    leader = Leader()
    for first, second in itertools.product(range(20), range(12)):
        disk = old_follower()
        disk.stop_before(first + _steps_until_complete(leader))
        try:
            leader.copy_to(disk)
            break
        except MachineStopped:
            disk.crash(Random(first), "subset")
        disk.stop_before(second)
        try:
            finish_interrupted_transfer(disk, DIRECTORY)
        except MachineStopped:
            disk.crash(Random(second), "subset")
        disk.run_on()
        finish_interrupted_transfer(disk, DIRECTORY)
        assert entries_of(disk) == leader.entries


def _steps_until_complete(leader: Leader) -> int:
    """The first step before which a crash leaves a copy that is complete."""
    for steps in itertools.count():
        disk = old_follower()
        disk.stop_before(steps)
        with pytest.raises(MachineStopped):
            leader.copy_to(disk)
        disk.crash(Random(0))
        finish_interrupted_transfer(disk, DIRECTORY)
        if entries_of(disk) == leader.entries:
            return steps
    raise AssertionError


def test_only_files_of_a_snapshot_are_handed_out() -> None:
    leader = Leader()

    with pytest.raises(InvalidRequest, match=r"\.\./vote"):
        read_chunk(leader.disk, DIRECTORY, ChunkRequest(1, leader.index, "../vote", 0, 10))
