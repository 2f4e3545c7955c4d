from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Corruption, StorageFailed
from penstock.ids import Term
from penstock.log import LogSettings, PartitionLog, Segment, plan_compaction
from penstock.log.index import HEADER_BYTES, ROW_BYTES, EntryKind
from penstock.record import Record

from .entries import (
    DIRECTORY,
    append,
    append_state,
    batch_of,
    batch_of_records,
    checkpoint,
    contents,
    decode,
    flush,
    new_log,
    open_log,
    records,
    split_stored,
    values,
)

# Appending and opening again.


def test_a_new_log_is_empty() -> None:
    _, log = new_log()

    assert log.is_empty
    assert (log.first_index, log.next_index, log.first_offset, log.next_offset) == (0, 0, 0, 0)
    assert (log.last_term, log.size_bytes, log.written_index) == (0, 0, 0)
    assert log.read(0, end_offset=0, bytes_max=100) is None
    assert log.find_newest(end_offset=0) is None
    assert log.find_time(0, end_offset=0) is None
    assert log.end_offset_of_term(5) is None
    assert log.take_checkpoint() is None
    assert not log.seal_if_due(10**15)


def test_offsets_count_records_and_indexes_count_entries() -> None:
    _, log = new_log()

    assert append(log, b"a", b"b") == 0
    assert append_state(log, b"s") == 1
    assert append(log, b"c", term=4) == 2

    assert (log.next_index, log.next_offset, log.last_term) == (3, 3, 4)
    assert [entry.offset for entry in contents(log)] == [0, 2, 2]
    assert list(log.batches(1)) == [contents(log)[2].payload]


def test_a_log_is_found_again_as_it_was() -> None:
    disk, log = new_log(segment_rows_max=3)
    for number in range(10):
        append(log, b"r%d" % number, term=number // 4 + 1)
        append_state(log, b"s%d" % number, term=number // 4 + 1)
    told = contents(log)
    log.close()

    found = open_log(disk, segment_rows_max=3)

    assert contents(found) == told
    assert found.cut_bytes == 0
    assert (found.next_index, found.next_offset, found.last_term) == (20, 10, 3)


@pytest.mark.parametrize(
    "limits", [{"segment_bytes": 300}, {"segment_rows_max": 3}, {"segment_ms": 30}]
)
def test_a_full_or_old_segment_is_followed_by_a_new_one(limits: dict[str, int]) -> None:
    _, log = new_log(**limits)

    for number in range(12):
        log.append_records(batch_of(b"x" * 20), term=Term(1), now_ms=number * 10)
        flush(log)

    assert len(log.segments) >= 4
    assert [segment.first_index for segment in log.segments[1:]] == [
        segment.next_index for segment in log.segments[:-1]
    ]
    assert values(log) == [b"x" * 20] * 12


def test_an_entry_larger_than_a_segment_has_one_of_its_own() -> None:
    _, log = new_log(segment_bytes=100)

    append(log, b"x" * 500)
    append(log, b"y" * 500)

    assert [segment.table.count for segment in log.segments] == [1, 1]


def test_entries_can_be_read_only_after_their_flush() -> None:
    _, log = new_log()
    log.append_records(batch_of(b"a"), term=Term(1), now_ms=0)
    taken = log.take_flush()
    assert taken is not None

    assert log.read(0, end_offset=1, bytes_max=100) is None
    taken.run()
    assert log.read(0, end_offset=1, bytes_max=100) is None
    log.finish(taken)
    assert values(log) == [b"a"]
    assert log.written_index == 1


# Lookups, compared with a walk over everything that was appended.


@dataclass
class Scene:
    """A log and the plain list of what it holds."""

    log: PartitionLog
    records: list[Record]
    ends: list[int]
    terms: list[int]


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    _, log = new_log(
        segment_rows_max=draw(st.integers(1, 6)),
        compacts=True,
        dirty_ratio_min=0.0,
        tombstone_retention_ms=10**9,
    )
    appended: list[Record] = []
    ends: list[int] = []
    terms: list[int] = []
    term = 1
    for _ in range(draw(st.integers(0, 14))):
        term += draw(st.sampled_from((0, 0, 0, 1, 2)))
        terms.append(term)
        if draw(st.integers(0, 3)) == 0:
            append_state(log, b"s", term=term)
            ends.append(len(appended))
            continue
        times = draw(st.lists(st.integers(0, 30), min_size=1, max_size=3))
        batch = [
            Record(number, time, draw(st.sampled_from((None, b"k", b"l"))), b"v")
            for number, time in enumerate(times)
        ]
        first = log.append_records(batch_of_records(*batch), term=Term(term), now_ms=0)
        flush(log)
        appended.extend(
            Record(first + record.offset, record.timestamp, record.key, b"v") for record in batch
        )
        ends.append(len(appended))
    if draw(st.booleans()):
        compact(log)
        appended = [r for r in appended if any(r == kept for kept in records(log))]
    return Scene(log, appended, ends, terms)


def compact(log: PartitionLog) -> None:
    compaction = plan_compaction(log.segments, log.settings, now_ms=1_000, end_index=log.next_index)
    if compaction is not None:
        for old, cleaned in compaction.run(log._disk):
            log.segments[log.segments.index(old)] = cleaned


@settings(max_examples=120, deadline=None)
@given(scene=scenes(), time=st.integers(-1, 32), data=st.data())
def test_lookups_by_time_agree_with_a_walk(scene: Scene, time: int, data: st.DataObject) -> None:
    end = data.draw(st.sampled_from([0, *scene.ends]))
    start = data.draw(st.integers(0, scene.log.next_offset))
    below = [record for record in scene.records if record.offset < end]

    expected = [r for r in below if r.timestamp >= time and r.offset >= start]
    found = scene.log.find_time(time, end_offset=end, start_offset=start)
    assert found == (expected[0] if expected else None)

    newest = max(below, key=lambda record: (record.timestamp, -record.offset), default=None)
    assert scene.log.find_newest(end_offset=end) == newest


@settings(max_examples=120, deadline=None)
@given(scene=scenes(), bytes_max=st.integers(0, 400), data=st.data())
def test_reads_agree_with_a_walk(scene: Scene, bytes_max: int, data: st.DataObject) -> None:
    log = scene.log
    offset = data.draw(st.integers(0, log.next_offset))
    end = data.draw(st.sampled_from([0, *scene.ends]))

    part = log.read(offset, end_offset=end, bytes_max=bytes_max)

    wanted = [record for record in scene.records if offset <= record.offset < end]
    if part is None:
        assert wanted == []
        return
    batches = split_stored(part.read())
    got = [record for batch in batches for record in decode(batch)]
    assert [record for record in got if record.offset >= offset] == wanted[
        : sum(record.offset >= offset for record in got)
    ]
    assert part.size_bytes <= bytes_max or len(batches) == 1
    assert all(batch.header.next_offset <= end for batch in batches)
    if wanted:
        assert got


@settings(max_examples=60, deadline=None)
@given(scene=scenes())
def test_terms_agree_with_a_walk(scene: Scene) -> None:
    log = scene.log
    for index, term in enumerate(scene.terms):
        assert log.term_at(index) == log.row_at(index).term == term

    for term in range(max(scene.terms, default=0) + 2):
        upto = [number for number, found in enumerate(scene.terms) if found <= term]
        expected = (scene.terms[upto[-1]], scene.ends[upto[-1]]) if upto else None
        assert log.end_offset_of_term(term) == expected


@settings(max_examples=60, deadline=None)
@given(scene=scenes(), data=st.data())
def test_bytes_from_an_index_on_agree_with_a_walk(scene: Scene, data: st.DataObject) -> None:
    log = scene.log
    start = data.draw(st.integers(0, len(scene.terms) + 1))

    rows = [row for row, _, _ in log.rows(start)]

    assert log.bytes_from(start) == (
        sum(row.size for row in rows if row.kind == EntryKind.RECORDS),
        sum(row.size for row in rows if row.kind != EntryKind.RECORDS),
    )


def test_a_record_that_is_not_written_yet_is_not_looked_at() -> None:
    _, log = new_log()
    append(log, b"a", timestamp=5)
    log.append_records(batch_of(b"b", timestamp=50), term=Term(1), now_ms=0)

    assert log.find_time(10, end_offset=1) is None
    assert log.find_time(10, end_offset=2) is None
    newest = log.find_newest(end_offset=1)
    assert newest is not None
    assert newest.value == b"a"
    assert log.segments[0].damage == []


def test_a_damaged_batch_is_reported_by_a_lookup_and_never_served_again() -> None:
    disk, log = new_log()
    append(log, b"a", timestamp=5)
    append(log, b"b", timestamp=9)
    disk.flip_bit(DIRECTORY / f"{0:020}.log", log.row_at(1).log_position + 65)

    with pytest.raises(Corruption, match="offset 1"):
        log.find_time(6, end_offset=2)

    part = log.read(0, end_offset=2, bytes_max=1 << 20)
    assert part is not None
    assert len(split_stored(part.read())) == 1
    with pytest.raises(Corruption):
        log.read(1, end_offset=2, bytes_max=1 << 20)


@pytest.mark.parametrize("position", range(17))
def test_a_payload_with_damage_outside_its_checksum_is_not_given_out(position: int) -> None:
    disk, log = new_log()
    append(log, b"a")
    append(log, b"b", term=2)
    disk.flip_bit(DIRECTORY / f"{0:020}.log", log.row_at(1).log_position + position)

    assert log.payload_at(0)[0].term == 1
    with pytest.raises(Corruption, match="entry 1"):
        log.payload_at(1)


@pytest.mark.parametrize("position", range(0, ROW_BYTES, 3))
def test_a_row_that_rots_in_a_sealed_segment_is_not_believed(position: int) -> None:
    disk, log = new_log(segment_rows_max=4)
    for value in b"abcdefgh":
        append(log, bytes([value]))
    disk.flip_bit(log.segments[0].path(".index"), HEADER_BYTES + 2 * ROW_BYTES + position, 6)

    assert log.term_at(1) == 1
    with pytest.raises(Corruption, match="row of entry 2"):
        log.term_at(2)
    with pytest.raises(Corruption):
        log.payload_at(2)


@pytest.mark.parametrize("damaged", range(8))
@pytest.mark.parametrize("bit", range(0, 64, 3))
def test_a_reader_is_never_led_past_records_by_a_row_that_rots(damaged: int, bit: int) -> None:
    disk, log = new_log(segment_rows_max=8)
    for value in b"abcdefghi":
        append(log, bytes([value]), bytes([value]))
    index = log.segments[0].path(".index")
    first_offset_at = HEADER_BYTES + damaged * ROW_BYTES + 16
    disk.flip_bit(index, first_offset_at + bit // 8, bit % 8)

    for offset in range(16):
        try:
            part = log.read(offset, end_offset=18, bytes_max=1)
        except Corruption:
            continue
        assert part is not None
        assert split_stored(part.read())[0].header.base_offset == offset // 2 * 2


def test_a_state_entry_that_is_being_written_is_not_taken_for_damage() -> None:
    _, log = new_log()
    append_state(log, b"s")
    log.append_state(b"t", term=Term(1), now_ms=0)

    assert [entry.payload for entry in log.state_entries(0)] == [b"s"]


def test_a_damaged_state_entry_is_reported() -> None:
    disk, log = new_log()
    append_state(log, b"s")
    append_state(log, b"t")
    disk.flip_bit(DIRECTORY / f"{0:020}.state", 40)

    assert next(log.state_entries(0)).payload == b"s"
    with pytest.raises(Corruption, match="state entry 1"):
        list(log.state_entries(0))


# Truncation.


@pytest.mark.parametrize("index", range(10))
def test_truncation_removes_all_entries_from_an_index_on_for_good(index: int) -> None:
    disk, log = new_log(segment_rows_max=3)
    fill(log, 9)
    told = contents(log)

    log.truncate(index)

    assert contents(log) == told[:index]
    assert log.next_index == log.written_index == index
    append_state(log, b"new", term=9)
    append(log, b"new", term=9)
    now = contents(log)
    assert now[:index] == told[:index]
    for seed in range(4):
        copy = disk.copy()
        copy.crash(Random(seed), "subset")
        assert contents(open_log(copy, segment_rows_max=3)) == now


def test_a_compacted_segment_never_becomes_the_active_one() -> None:
    disk, log = new_log(segment_rows_max=2, compacts=True, dirty_ratio_min=0.0)
    for value in (b"1", b"2", b"3", b"4", b"5"):
        append(log, value, key=b"k")
    compact(log)
    log.truncate(4)
    append(log, b"6", key=b"k")
    told = contents(log)

    for seed in range(20):
        copy = disk.copy()
        copy.crash(Random(seed), "subset")
        assert contents(open_log(copy)) == told


def test_a_checkpoint_is_taken_again_after_a_truncation() -> None:
    _, log = new_log()
    fill(log, 4)
    checkpoint(log)
    assert log.take_checkpoint() is None

    log.truncate(3)

    assert log.take_checkpoint() is not None


# Retention.


def fill(log: PartitionLog, count: int) -> None:
    for number in range(count):
        if number % 3 == 2:
            append_state(log, b"s%d" % number)
        else:
            append(log, b"r%d" % number, timestamp=number * 100)


def first_indexes(segments: list[Segment]) -> list[int]:
    return [segment.first_index for segment in segments]


def test_retention_by_time_takes_whole_segments_whose_newest_record_is_old() -> None:
    _, log = new_log(segment_rows_max=3, retention_ms=250)
    fill(log, 12)

    # The newest records of the segments are of 100, 400, 700 and 1000.
    assert first_indexes(log.expired(now_ms=350, deletable_index=99)) == []
    assert first_indexes(log.expired(now_ms=351, deletable_index=99)) == [0]
    assert first_indexes(log.expired(now_ms=700, deletable_index=99)) == [0, 3]
    assert first_indexes(log.expired(now_ms=10**9, deletable_index=99)) == [0, 3, 6]


def test_retention_by_bytes_keeps_at_least_the_limit() -> None:
    _, log = new_log(segment_rows_max=3, retention_ms=-1)
    fill(log, 12)
    sizes = [segment.size_bytes for segment in log.segments]

    for limit in range(0, sum(sizes) + 200, 25):
        log.settings = LogSettings(retention_ms=-1, retention_bytes=limit)
        taken = len(log.expired(now_ms=0, deletable_index=99))
        assert taken == 3 or sum(sizes[taken + 1 :]) < limit
        assert taken == 0 or sum(sizes[taken:]) >= limit


def test_retention_keeps_what_is_still_needed() -> None:
    _, log = new_log(segment_rows_max=3, retention_ms=0)
    fill(log, 12)

    for needed in range(13):
        taken = log.expired(now_ms=10**9, deletable_index=needed)
        assert first_indexes(taken) == [0, 3, 6][: needed // 3]
        below = log.below(10**9, deletable_index=needed)
        assert first_indexes(below) == [0, 3, 6][: needed // 3]


def test_a_topic_that_does_not_delete_keeps_everything() -> None:
    _, log = new_log(segment_rows_max=3, retention_ms=0, deletes=False)
    fill(log, 12)

    assert log.expired(now_ms=10**9, deletable_index=99) == []


def test_segments_below_an_offset_are_those_without_a_record_from_it_on() -> None:
    _, log = new_log(segment_rows_max=3)
    fill(log, 12)

    counts = [len(log.below(offset, deletable_index=99)) for offset in range(9)]

    assert counts == [0, 0, 1, 1, 2, 2, 3, 3, 3]


def test_forgotten_segments_are_gone_from_the_log_and_after_removal_from_the_disk() -> None:
    disk, log = new_log(segment_rows_max=3)
    fill(log, 12)
    told = contents(log)
    old = log.below(4, deletable_index=99)

    log.forget(old)

    assert (log.first_index, log.first_offset) == (6, 4)
    assert contents(log) == told[6:]
    for segment in old:
        segment.remove_files()
    assert contents(open_log(disk)) == told[6:]


@pytest.mark.parametrize(
    "choose",
    [
        lambda log: log.expired(now_ms=10**9, deletable_index=99),
        lambda log: log.below(10**9, deletable_index=99),
        lambda log: (
            plan_compaction(log.segments, log.settings, now_ms=10**9, end_index=log.next_index)
            or []
        ),
    ],
)
def test_the_last_segment_on_disk_is_left_alone_until_the_next_one_is_there(
    choose: Callable[[PartitionLog], list[object]],
) -> None:
    _, log = new_log(segment_rows_max=1, retention_ms=0, dirty_ratio_min=0.0)
    append(log, b"a", key=b"k")
    log.append_records(batch_of(b"b"), term=Term(1), now_ms=0)
    assert not choose(log)
    taken = log.take_flush()
    assert taken is not None
    assert not choose(log)

    taken.run()
    log.finish(taken)

    assert choose(log)


def test_an_old_segment_is_sealed_so_that_retention_can_take_it() -> None:
    disk, log = new_log(segment_ms=50, retention_ms=10)
    append(log, b"a", timestamp=0)

    assert not log.seal_if_due(49)
    assert log.expired(now_ms=49, deletable_index=99) == []
    assert log.seal_if_due(50)
    assert not log.seal_if_due(10**6), "an empty segment is not sealed"

    assert first_indexes(log.expired(now_ms=50, deletable_index=99)) == [0]
    append(log, b"b")
    assert values(log) == values(open_log(disk)) == [b"a", b"b"]


def test_a_full_disk_while_sealing_leaves_the_log_as_it_was() -> None:
    disk, log = new_log(segment_ms=50)
    append(log, b"a")
    disk.capacity_bytes = log.size_bytes

    with pytest.raises(OSError, match="full"):
        log.seal_if_due(50)

    disk.capacity_bytes = None
    append(log, b"b")
    assert values(log) == values(open_log(disk)) == [b"a", b"b"]


def test_a_new_segment_that_cannot_be_taken_back_ends_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, log = new_log(segment_ms=50)
    append(log, b"a")
    disk.capacity_bytes = log.size_bytes

    def refuse(*_: object) -> None:
        raise OSError("input/output error")

    monkeypatch.setattr(Segment, "remove_files", refuse)
    with pytest.raises(StorageFailed, match="could not be taken back: input/output error"):
        log.seal_if_due(50)


# Checkpoints.


def test_a_checkpoint_is_taken_only_when_something_is_new() -> None:
    disk, log = new_log()
    append(log, b"a")

    checkpoint(log)

    assert log.take_checkpoint() is None
    append(log, b"b")
    assert log.take_checkpoint() is not None
    log.close()
    assert open_log(disk).take_checkpoint() is None


def test_a_checkpoint_speaks_only_of_what_was_written_when_it_was_taken() -> None:
    for seed in range(30):
        disk, log = new_log(sync_records=False)
        append(log, b"a" * 600)
        run = log.take_checkpoint()
        assert run is not None
        append(log, b"b" * 600)
        run.run()
        log.finish_checkpoint(run)
        append(log, b"c" * 600)
        told = contents(log)

        disk.crash(Random(seed), "subset")

        found = contents(open_log(disk))
        assert found == told[: len(found)]
        assert len(found) >= 2, "the sync covered the entry that was written meanwhile"


def test_entries_below_the_checkpoint_are_not_scanned() -> None:
    disk, log = new_log()
    for number in range(5):
        append(log, b"%d" % number)
    log.close()
    disk.flip_bit(DIRECTORY / f"{0:020}.log", 70)

    # Damage below is for reads and scrub to find; a start does not read it.
    assert open_log(disk).next_index == 5


def test_a_checkpoint_whose_sync_failed_is_not_made_good_by_one_beside_it() -> None:
    disk, log = new_log()
    append(log, b"a")
    failing, other = log.take_checkpoint(), log.take_checkpoint()
    assert failing is not None
    assert other is not None
    disk.fail_sync()
    with pytest.raises(StorageFailed):
        failing.run()

    with pytest.raises(StorageFailed, match="failed before"):
        other.run()

    disk.crash(Random(1))
    assert values(open_log(disk)) == [b"a"]
