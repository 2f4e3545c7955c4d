from dataclasses import replace
from random import Random

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Corruption
from penstock.ids import Term
from penstock.log import Compaction, LogSettings, PartitionLog, compaction, plan_compaction
from penstock.record import Codec, Record, RecordBatch, encode_batch, read_header
from penstock.testing import MachineStopped, SimDisk

from .entries import (
    DIRECTORY,
    append,
    append_state,
    batch_of,
    batch_of_records,
    contents,
    flush,
    new_log,
    open_log,
    records,
    split_stored,
    values,
)

SETTINGS = LogSettings(
    segment_rows_max=3, compacts=True, dirty_ratio_min=0.0, tombstone_retention_ms=1_000
)


def compacted_log() -> tuple[SimDisk, PartitionLog]:
    disk = SimDisk()
    return disk, PartitionLog(disk, DIRECTORY, SETTINGS)


def put(log: PartitionLog, key: bytes | None, value: bytes | None) -> None:
    append(log, value, key=key)


def plan(log: PartitionLog, now_ms: int = 100) -> Compaction:
    found = plan_compaction(log.segments, log.settings, now_ms, end_index=log.next_index)
    assert found is not None
    return found


def compact(disk: SimDisk, log: PartitionLog, now_ms: int = 100) -> None:
    for old, cleaned in plan(log, now_ms).run(disk):
        log.segments[log.segments.index(old)] = cleaned


def history(log: PartitionLog) -> None:
    """Three segments: two sealed, one active; `b` is removed by a tombstone."""
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3")):
        put(log, key, value)
    put(log, b"b", None)
    append_state(log, b"s")
    put(log, b"c", b"5")
    put(log, b"a", b"6")


def pairs(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records(log)]


def test_the_latest_value_of_each_key_is_kept_at_its_offset() -> None:
    disk, log = compacted_log()
    history(log)

    compact(disk, log)

    # The active segment is not touched and does not count, so `a` keeps its value in offset 2.
    kept = [(2, b"a", b"3"), (3, b"b", None), (4, b"c", b"5"), (5, b"a", b"6")]
    assert pairs(log) == kept
    assert (log.next_index, log.next_offset) == (7, 6)
    assert [entry.payload for entry in contents(log) if entry.index == 4] == [b"s"]
    assert pairs(open_log(disk)) == kept


def test_the_terms_and_offsets_of_emptied_entries_stay() -> None:
    disk, log = compacted_log()
    history(log)
    told = [entry[:4] for entry in contents(log)]

    compact(disk, log)

    assert [entry[:4] for entry in contents(log)] == told
    assert [entry[:4] for entry in contents(open_log(disk))] == told


def test_records_without_a_key_are_kept() -> None:
    disk, log = compacted_log()
    for value in (b"1", b"2", b"3", b"4"):
        put(log, None, value)

    compact(disk, log)

    assert values(log) == [b"1", b"2", b"3", b"4"]


def test_a_tombstone_goes_when_readers_had_time_to_see_it() -> None:
    disk, log = compacted_log()
    history(log)
    compact(disk, log, now_ms=100)

    for now_ms, has_tombstone in ((1_099, True), (1_100, False)):
        for value in (b"x", b"y", b"z"):
            put(log, b"d", value)
        compact(disk, log, now_ms)
        assert ((3, b"b", None) in pairs(log)) == has_tombstone
        assert not [value for _, key, value in pairs(log) if key == b"b" and value is not None]


def test_a_batch_that_loses_some_records_keeps_the_others_and_its_codec() -> None:
    for codec in Codec:
        disk, log = compacted_log()
        log.append_records(
            batch_of_records(
                *(Record(n, n, key, b"v" * 50) for n, key in enumerate((b"a", b"b", b"a", b"c"))),
                codec=codec,
            ),
            term=Term(1),
            now_ms=0,
        )
        flush(log)
        for _ in range(3):
            put(log, b"b", b"new")

        compact(disk, log)

        assert [offset for offset, _, _ in pairs(log)] == [2, 3, 5, 6]
        part = log.read(0, end_offset=1 << 30, bytes_max=1)
        assert part is not None
        (batch,) = split_stored(part.read())
        assert (batch.header.codec, batch.header.next_offset) == (codec, 4)


def test_an_emptied_stretch_is_read_past() -> None:
    disk, log = compacted_log()
    for number in range(6):
        put(log, b"a", b"%d" % number)
    put(log, b"b", b"last")

    compact(disk, log)

    part = log.read(0, end_offset=7, bytes_max=1 << 20)
    assert part is not None
    assert [batch.header.base_offset for batch in split_stored(part.read())] == [5]


def test_transactional_and_control_batches_stay_whole() -> None:
    for flag in (0x10, 0x20):
        disk, log = compacted_log()
        batch = batch_of(b"1", key=b"a")
        batch.data[22] |= flag
        _fix_checksum(batch)
        log.append_records(RecordBatch(read_header(batch.data), batch.data), term=1, now_ms=0)
        flush(log)
        for value in (b"2", b"3", b"4"):
            put(log, b"a", value)

        compact(disk, log)

        assert values(log) == [b"1", b"3", b"4"]


def test_a_batch_that_holds_no_records_is_kept_and_does_not_stop_the_others() -> None:
    disk, log = compacted_log()
    batch = batch_of(b"1", key=b"a")
    batch.data[61] = 0x7F
    _fix_checksum(batch)
    log.append_records(batch, term=Term(1), now_ms=0)
    flush(log)
    put(log, b"a", b"2")
    put(log, b"a", b"3")
    put(log, b"a", b"4")

    compact(disk, log)

    found = contents(log)
    assert found[0].payload == bytes(batch.data)
    assert found[1].payload == b""


def test_damage_stops_a_pass_and_leaves_the_files_alone() -> None:
    disk, log = compacted_log()
    history(log)
    path = DIRECTORY / f"{0:020}.log"
    disk.flip_bit(path, 65)
    before = disk.content(path)

    with pytest.raises(Corruption, match="offset 0"):
        plan(log).run(disk)

    assert disk.content(path) == before


def test_readers_of_the_old_file_keep_reading_the_old_bytes() -> None:
    disk, log = compacted_log()
    history(log)
    part = log.read(0, end_offset=6, bytes_max=1 << 20)
    assert part is not None
    before = part.read()
    old = log.segments[0]

    compact(disk, log)

    assert part.read() == before
    # A reader that holds the old segment but had not opened its files yet.
    again = old.range_from(offset=0, end_offset=3, bytes_max=1 << 20)
    assert again is not None
    assert again.read() == before
    assert log.read(0, end_offset=6, bytes_max=1 << 20) != part


def test_nothing_is_planned_when_nothing_is_dirty_or_ripe() -> None:
    disk, log = compacted_log()
    assert plan_compaction(log.segments, SETTINGS, 100, end_index=log.next_index) is None
    history(log)

    lagging = replace(SETTINGS, compaction_lag_ms=200)
    assert plan_compaction(log.segments, lagging, now_ms=199, end_index=log.next_index) is None
    assert plan_compaction(log.segments, lagging, now_ms=200, end_index=log.next_index) is not None
    compact(disk, log)
    assert plan_compaction(log.segments, SETTINGS, 100, end_index=log.next_index) is None


def test_a_pass_waits_until_enough_is_dirty() -> None:
    disk, log = compacted_log()
    for number in range(10):
        put(log, b"k%d" % number, b"x" * 100)
    compact(disk, log)
    for _ in range(3):
        put(log, b"new", b"x")
    dirty = sum(s.log_bytes for s in log.segments[:-1] if not s.table.header.cleaned_ms)
    total = sum(s.log_bytes for s in log.segments[:-1])

    def is_planned(ratio: float) -> bool:
        wanted = replace(SETTINGS, dirty_ratio_min=ratio)
        return plan_compaction(log.segments, wanted, 100, end_index=log.next_index) is not None

    assert is_planned(dirty / total - 0.01)
    assert not is_planned(dirty / total + 0.01)


def test_a_pass_ends_when_its_table_of_keys_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "KEYS_MAX", 3)
    disk, log = compacted_log()
    for number in range(13):
        put(log, b"k%d" % (number % 4), b"%d" % number)

    for _ in range(8):
        if plan_compaction(log.segments, SETTINGS, 100, end_index=log.next_index) is None:
            break
        compact(disk, log)

    assert [offset for offset, _, _ in pairs(log)] == [8, 9, 10, 11, 12]


keyed = st.tuples(
    st.sampled_from((None, b"a", b"b", b"c")), st.sampled_from((None, b"1", b"2", b"3"))
)


@settings(max_examples=60, deadline=None)
@given(rounds=st.lists(st.lists(keyed, min_size=1, max_size=12), min_size=1, max_size=3))
def test_a_reader_of_the_whole_log_learns_the_same_table_before_and_after(
    rounds: list[list[tuple[bytes | None, bytes | None]]],
) -> None:
    disk, log = compacted_log()
    now_ms = 100
    for entries in rounds:
        for key, value in entries:
            put(log, key, value)
        before = pairs(log)
        if plan_compaction(log.segments, SETTINGS, now_ms, end_index=log.next_index) is None:
            continue
        compact(disk, log, now_ms)
        after = pairs(log)
        assert table_of(after) == table_of(before)
        assert set(after) <= set(before)
        assert pairs(open_log(disk)) == after
        now_ms += 700


def table_of(found: list[tuple[int, bytes | None, bytes | None]]) -> dict[bytes, bytes]:
    latest = {key: value for _, key, value in found if key is not None}
    return {key: value for key, value in latest.items() if value is not None}


def test_a_crash_at_any_step_leaves_the_old_or_the_new_files_whole() -> None:
    disk, log = compacted_log()
    history(log)
    log.close()
    told = [entry[:4] for entry in contents(open_log(disk))]
    table = table_of(pairs(open_log(disk)))
    steps = _count_steps(disk)
    assert steps > 20

    for step in range(steps):
        for seed in range(12):
            copy = disk.copy()
            found = PartitionLog(copy, DIRECTORY, SETTINGS)
            copy.stop_before(step)
            with pytest.raises(MachineStopped):
                compact(copy, found)
            _crash_again_and_again(copy, Random(step * 100 + seed))

            again = PartitionLog(copy, DIRECTORY, SETTINGS)
            assert [entry[:4] for entry in contents(again)] == told
            assert table_of(pairs(again)) == table
            assert not [n for n in copy.names(DIRECTORY) if n.endswith((".clean", ".swap"))]


def test_a_swap_that_a_killed_process_announced_survives_a_power_cut_while_it_is_finished() -> None:
    disk, log = compacted_log()
    history(log)
    log.close()
    told = table_of(pairs(log))
    steps = _steps_up_to(disk, f"create {0:020}.swap")

    for step in range(6):
        for seed in range(20):
            copy = disk.copy()
            found = PartitionLog(copy, DIRECTORY, SETTINGS)
            copy.stop_before(steps)
            with pytest.raises(MachineStopped):
                compact(copy, found)
            copy.kill()
            copy.stop_before(step)
            with pytest.raises(MachineStopped):
                PartitionLog(copy, DIRECTORY, SETTINGS)
            copy.crash(Random(seed), "subset")

            assert table_of(pairs(PartitionLog(copy, DIRECTORY, SETTINGS))) == told


def _steps_up_to(disk: SimDisk, operation: str) -> int:
    """Return how many operations a pass makes up to and including one."""
    copy = disk.copy()
    log = PartitionLog(copy, DIRECTORY, SETTINGS)
    copy.trace = []
    compact(copy, log)
    return copy.trace.index(operation) + 1


def _count_steps(disk: SimDisk) -> int:
    copy = disk.copy()
    log = PartitionLog(copy, DIRECTORY, SETTINGS)
    before = copy.operations
    compact(copy, log)
    return copy.operations - before


def _crash_again_and_again(disk: SimDisk, random: Random) -> None:
    for _ in range(3):
        if random.random() < 0.5:
            disk.kill()
        else:
            disk.crash(random, "subset")
        disk.stop_before(random.randrange(8))
        try:
            PartitionLog(disk, DIRECTORY, SETTINGS)
        except MachineStopped:
            continue
        disk.run_on()
    disk.crash(random, "subset")


def _fix_checksum(batch: RecordBatch) -> None:
    batch.data[17:21] = crc32c(batch.data[21:]).to_bytes(4, "big")


def test_the_log_opened_after_compaction_takes_entries() -> None:
    disk, log = new_log(segment_rows_max=2, compacts=True, dirty_ratio_min=0.0)
    for number in range(5):
        put(log, b"k", b"%d" % number)
    compact(disk, log)
    log.close()

    found = open_log(disk)
    put(found, b"k", b"5")

    assert values(found) == values(open_log(disk)) == [b"3", b"4", b"5"]


def test_a_batch_that_is_remembered_keeps_its_header_until_it_is_forgotten() -> None:
    disk, log = compacted_log()
    for sequence in range(4):
        log.append_records(sequenced(sequence), term=Term(1), now_ms=0)
        flush(log)

    for remembered, left in (({0, 2}, [0]), ({2}, [])):
        for segment in log.segments:
            segment.table.header = replace(segment.table.header, cleaned_ms=0)
        for old, cleaned in replace(plan(log), remembered=remembered).run(disk):
            log.segments[log.segments.index(old)] = cleaned

        headers = [read_header(entry.payload) for entry in contents(log)[:2] if entry.payload]
        assert [(each.base_sequence, each.records) for each in headers] == [
            (sequence, 0) for sequence in left
        ]
        assert all((each.producer_id, each.next_offset) == (7, 1) for each in headers)


def sequenced(sequence: int) -> RecordBatch:
    """One record of an idempotent producer; all have the same key."""
    data = encode_batch(
        [Record(0, 0, b"a", b"%d" % sequence)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
    )
    return RecordBatch(read_header(data), memoryview(data))
