"""Histories in which old entries go, by compaction, retention or a copy, as in `scripts`."""

from dataclasses import replace

from penstock.log import EntryKind
from tests.simulation.node import LOG
from tests.simulation.referee import require
from tests.simulation.scripts import Stage

_COMPACTED = replace(LOG, segment_bytes=1_000, compacts=True, dirty_ratio_min=0.2)
_DELETED = replace(LOG, segment_bytes=1_000, deletes=True, retention_ms=-1, retention_bytes=1_000)
_FILLER = bytes(400)


def compaction_of_replaced_records() -> None:
    """Of each key the newest record stays, and whatever has no key."""
    stage = Stage(3, settings=_COMPACTED)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    for number in range(4):
        for value in (b"old", b"new"):
            stage.publish(1, value + _FILLER, key=b"key %d" % number)
            stage.tick(2)
    stage.publish(1, _FILLER)
    stage.until(1, 2, 3, leads=1)
    assert _compact(stage, 1) < 8
    stage.settle()


def compaction_beside_what_is_not_committed() -> None:
    """A leader that is alone has a newer record of a key, which will never be committed."""
    stage = Stage(3, settings=_COMPACTED)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    for _ in range(3):
        stage.publish(1, b"committed" + _FILLER, key=b"key")
        stage.tick(2)
    stage.until(1, 2, 3, leads=1)
    stage.cut({2, 3})
    for _ in range(4):
        stage.publish(1, b"alone" + _FILLER, key=b"key")
        stage.tick()
    _compact(stage, 1)
    stage.settle()


def retention_of_old_segments() -> None:
    """Old segments go, when a snapshot covers them, and no more than the topic gives up."""
    stage = Stage(3, settings=replace(_DELETED, retention_bytes=2_500))
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    for _ in range(12):
        stage.publish(1, _FILLER)
        stage.tick(2)
    stage.until(1, 2, 3, leads=1)
    stage[1].tidy()
    stage.tick(5)
    assert stage.log(1).log.first_index > 1
    stage.settle()


def power_cut_after_a_copied_snapshot() -> None:
    """A follower copies a snapshot and loses its power; what a cut takes is up to chance."""
    for seed in range(6):
        stage = _stage_with_a_copy(seed)
        stage.power_off(3)
        stage[3].start()
        require(stage[3].is_on, "a replica that was copied does not open again")
        stage.until(1, 2, 3, leads=1)
        stage.world._check_stored(stage[3], stage.log(3).log)
        stage.settle()


def election_after_a_copied_snapshot() -> None:
    """A follower copies a snapshot and has to save another term in the same life."""
    stage = _stage_with_a_copy(1)
    stage.win(2)
    stage.until(1, 2, 3, leads=2)
    stage.settle()


def deposed_leader_copies_a_snapshot() -> None:
    """Entries that only a former leader has lie behind the snapshot that replaces its log."""
    stage = Stage(3, settings=_DELETED)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    stage.cut({2, 3})
    for number in range(30):
        stage.publish(1, b"never agreed on %d" % number)
    stage.win(2)
    stage.until(2, 3, leads=2)
    _publish_and_delete(stage, leader=2, names=(2, 3))
    assert stage.log(2).log.first_index > stage.log(1).raft.commit_index + 1
    assert stage.log(1).raft.last_index > stage.log(2).raft.last_index
    stage.heal()
    stage.until(1, 2, 3, leads=2)
    assert stage[1].copies == 1
    stage.settle()


def _stage_with_a_copy(seed: int) -> Stage:
    """A group of which the third was away, and has copied what the others have deleted."""
    stage = Stage(3, seed=seed, settings=_DELETED)
    stage.win(1)
    stage.until(1, 2, 3, leads=1)
    stage.power_off(3)
    _publish_and_delete(stage, leader=1, names=(1, 2))
    stage[3].start()
    stage.until(1, 2, 3, leads=1)
    assert stage[3].copies == 1
    return stage


def _publish_and_delete(stage: Stage, *, leader: int, names: tuple[int, int]) -> None:
    """Let some nodes have more than they keep."""
    for sequence in range(8):
        stage.publish(leader, _FILLER, sequence)
        stage.tick(2)
    for name in names:
        stage[name].save_snapshot()
        stage.tick(3)
        stage[name].tidy()
        stage.tick(3)


def _compact(stage: Stage, name: int) -> int:
    """Let a node compact its log, compare it with what is committed, and count its records."""
    stage[name].save_snapshot()
    stage.tick(3)
    stage[name].tidy()
    stage.tick(3)
    log = stage.log(name).log
    stage.world._check_stored(stage[name], log)
    rows = [log.payload_at(entry.index)[0] for entry in stage.world.referee.committed]
    return sum(row.size > 0 for row in rows if row.kind == EntryKind.RECORDS)
