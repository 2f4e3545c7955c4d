"""The tail, and which writes vouch for which entries."""

from penstock.ids import EntryIndex
from penstock.raft import Snapshot, Write
from penstock.raft.replica_log import ReplicaLog

from .group import StoredLog, entry, voters


def written(log: ReplicaLog) -> Write:
    assert log.has_write
    return log.take_write(None)


def store(stored: StoredLog, write: Write) -> None:
    if write.truncate_from is not None:
        stored.truncate(write.truncate_from)
    for one in write.entries:
        stored.append(one)


def filled(*terms: int) -> tuple[ReplicaLog, StoredLog]:
    """A log whose entries have these terms and are all persisted."""
    stored = StoredLog()
    for index, term in enumerate(terms, start=1):
        stored.append(entry(index, term))
    return ReplicaLog(stored), stored


def test_entries_are_given_out_once() -> None:
    log, _ = filled()
    log.append(entry(1, 1))
    first = written(log)
    log.append(entry(2, 1))
    second = written(log)

    assert [one.index for one in first.entries] == [1]
    assert [one.index for one in second.entries] == [2]
    assert not log.has_write


def test_terms_are_known_before_and_after_entries_are_persisted() -> None:
    log, stored = filled(1, 1)
    log.append(entry(3, 2))
    log.append(entry(4, 3))
    write = written(log)
    assert [log.term_at(index) for index in range(6)] == [0, 1, 1, 2, 3, None]

    store(stored, write)
    log.persist(write.mark)

    assert [log.term_at(index) for index in range(6)] == [0, 1, 1, 2, 3, None]
    assert log.tail_bytes == 0


def test_a_later_mark_stands_for_earlier_ones() -> None:
    log, stored = filled()
    for index in (1, 2, 3):
        log.append(entry(index, 1))
        write = written(log)
        store(stored, write)

    assert log.persist(write.mark)
    assert log.persisted_index == 3


def test_an_earlier_mark_after_a_later_one_changes_nothing() -> None:
    log, _ = filled()
    log.append(entry(1, 1))
    first = written(log)
    log.append(entry(2, 1))
    second = written(log)
    log.persist(second.mark)

    assert not log.persist(first.mark)
    assert log.persisted_index == 2


def test_a_cut_of_entries_that_were_not_given_out_is_not_written() -> None:
    log, _ = filled(1)
    log.append(entry(2, 1))
    log.truncate(2)
    log.append(entry(2, 2))

    write = written(log)

    assert write.truncate_from is None
    assert [one.term for one in write.entries] == [2]


def test_a_cut_below_the_persisted_entries_is_written() -> None:
    log, _ = filled(1, 1, 1)
    log.truncate(2)
    assert (log.last_index, log.persisted_index, log.last_term) == (1, 1, 1)
    log.append(entry(2, 2))

    write = written(log)

    assert write.truncate_from == 2
    assert [one.index for one in write.entries] == [2]


def test_the_lowest_of_several_cuts_is_written() -> None:
    log, _ = filled(1, 1, 1)
    log.truncate(3)
    log.append(entry(3, 2))
    log.truncate(2)
    log.append(entry(2, 3))

    write = written(log)

    assert write.truncate_from == 2
    assert [(one.index, one.term) for one in write.entries] == [(2, 3)]


def test_a_write_of_the_same_entry_before_a_cut_vouches_for_nothing() -> None:
    """A, then B, then A again: the first sync of A may be undone by the write of B."""
    log, stored = filled()
    log.append(entry(1, 2))
    first = written(log)
    log.truncate(1)
    log.append(entry(1, 3))
    second = written(log)
    log.truncate(1)
    log.append(entry(1, 2))
    third = written(log)

    assert not log.persist(first.mark)
    assert not log.persist(second.mark)
    assert log.persisted_index == 0
    for write in (first, second, third):
        store(stored, write)
    assert log.persist(third.mark)
    assert log.persisted_index == 1


def test_a_snapshot_makes_marks_of_the_old_log_void() -> None:
    log, _ = filled(1)
    log.append(entry(2, 1))
    old = written(log)
    log.restore(Snapshot(EntryIndex(2), entry(2, 5).term, voters(1)), commit_index=1)

    assert not log.persist(old.mark)
    assert log.persisted_index == 1
    assert log.persist(written(log).mark)
    assert log.persisted_index == 2


def test_the_tail_is_sent_in_pieces_of_limited_size() -> None:
    log, _ = filled()
    for index in range(1, 5):
        log.append(entry(index, 1, bytes(10)))

    prev_index, prev_term, entries, size_bytes = log.stretch_from(2, bytes_max=25)

    assert [one.index for one in entries] == [2, 3]
    assert size_bytes == 20
    assert (prev_index, prev_term) == (1, 1)


def test_the_tail_is_sent_behind_the_last_entry_that_is_stored() -> None:
    log, _ = filled(3)
    log.append(entry(2, 4, bytes(10)))

    prev_index, prev_term, entries, _ = log.stretch_from(2, bytes_max=25)

    assert (prev_index, prev_term) == (1, 3)
    assert [one.index for one in entries] == [2]


def test_the_newest_common_entry_is_found_by_term_5_3() -> None:
    log, _ = filled(1, 1, 2, 2, 2, 5, 5)

    assert log.newest_common(7, 5, floor=0) == (7, 5)
    assert log.newest_common(7, 4, floor=0) == (5, 2)
    assert log.newest_common(7, 1, floor=0) == (2, 1)
    assert log.newest_common(7, 0, floor=0) == (0, 0)
    assert log.newest_common(7, 0, floor=2) == (2, 1)
