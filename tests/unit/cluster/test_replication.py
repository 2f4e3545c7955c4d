"""One log on three nodes: what is answered when, and what is left when the leader changes."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from penstock.cluster import ReplicatedLog
from penstock.cluster.pace import Pace
from penstock.errors import Corruption, NotLeader, StorageFailed, Unavailable
from penstock.ids import NodeId
from penstock.log import plan_compaction
from penstock.log.index import ROW_BYTES
from penstock.raft import Append, Role
from tests.unit.cluster.replica_groups import NODES, ReplicaGroup
from tests.unit.cluster.workplaces import (
    DIRECTORY,
    batch,
    numbered_batch,
    run,
    settle,
    turn,
    values,
)


def play(scene: Callable[[ReplicaGroup], Awaitable[None]], **settings: Any) -> None:
    """Run a scene with a group that node 1 leads; whatever the loop raises fails it."""

    faults: list[dict[str, Any]] = []

    async def scene_of_group() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context))
        group = ReplicaGroup(**settings)
        await group.elect(1)
        await scene(group)

    run(scene_of_group())
    assert faults == []


def test_what_is_published_is_stored_and_applied_everywhere_alike() -> None:
    async def scene(group: ReplicaGroup) -> None:
        assert await group[1].propose_records(batch(b"a", b"b")) == 0
        assert await group[1].propose_state(b"state") == 2
        assert await group[1].propose_records(batch(b"c")) == 2
        await group.tick()

        assert group.witnesses[2].events == [0, b"state", 2]
        assert group.values(3) == [b"a", b"b", b"c"]
        assert group[2].high_watermark == 3
        assert group.are_equal()

    play(scene)


def test_followers_neither_take_proposals_nor_serve_reads_and_know_who_does() -> None:
    async def scene(group: ReplicaGroup) -> None:
        await group[1].propose_records(batch(b"a"))
        await group.tick()

        assert [group[node].leader for node in NODES] == [1, 1, 1]
        with pytest.raises(NotLeader, match="led by node 1"):
            group[2].propose_records(batch(b"b"))
        with pytest.raises(NotLeader, match="led by node 1"):
            group[2].read(0, start_offset=0, bytes_max=1)

    play(scene)


def test_a_publish_is_answered_when_a_majority_has_it_on_disk_and_not_before() -> None:
    async def scene(group: ReplicaGroup) -> None:
        for node in (2, 3):
            group.machines[node].executor.hold()
        answer = group[1].propose_records(batch(b"a"))
        await turn()
        assert group[1].raft.persisted_index == 2
        assert not answer.done()
        assert group[1].high_watermark == 0
        assert group.witnesses[1].events == []

        group.machines[3].executor.release()

        assert await answer == 0
        assert group[1].high_watermark == 1
        group.machines[2].executor.release()

    play(scene)


def test_a_publish_is_answered_only_when_the_leader_has_it_on_disk_too() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.machines[1].executor.hold()
        answer = group[1].propose_records(batch(b"a"))
        await turn()
        assert group[2].raft.persisted_index == 2
        assert not answer.done()

        group.machines[1].executor.release()

        assert await answer == 0

    play(scene)


def test_a_leader_hands_over_what_nobody_waits_for_and_refuses_batches_that_wait() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.machines[1].executor.hold()
        first = group[1].propose_records(batch(b"a"))
        await turn()
        behind = group[1].propose_records(batch(b"b"))
        lease = group[1].propose_state_soon(b"lease")

        group[1].transfer_leader(NodeId(2))
        group.machines[1].executor.release()
        await turn(until=lambda: group[2].is_serving)
        await group.tick()

        assert group[2].is_serving
        assert group.witnesses[2].events == [0, b"lease"]
        with pytest.raises(NotLeader):
            await behind
        await asyncio.gather(first, lease, return_exceptions=True)
        assert group.are_equal()

    play(scene)


def test_one_follower_is_enough_and_none_is_not() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.isolate(3)
        assert await group[1].propose_records(batch(b"a")) == 0
        group.isolate(2)
        answer = await settle(group[1].propose_records(batch(b"b")))
        assert not answer.done()

        group.heal()
        await group.tick()

        assert await answer == 1
        await group.tick()
        assert group.are_equal()

    play(scene)


def test_without_waiting_for_the_commit_the_disk_of_the_leader_is_enough() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.isolate(1)
        group.machines[1].executor.hold()
        one = group[1].propose_records(batch(b"one"), waits_for_commit=False)
        all_ = group[1].propose_records(batch(b"all"))
        await turn()
        assert not one.done()

        group.machines[1].executor.release()

        assert await one == 0
        await turn()
        assert not all_.done()
        assert group[1].high_watermark == 0
        group.heal()
        await group.tick()
        assert await all_ == 1

    play(scene)


def test_an_acknowledged_publish_is_there_when_its_leader_is_gone() -> None:
    async def scene(group: ReplicaGroup) -> None:
        for number in range(5):
            await group[1].propose_records(batch(b"%d" % number))
        group.stop(1)

        leader = await group.new_leader(instead_of=1)

        assert leader.high_watermark == 5
        assert await leader.propose_records(batch(b"5")) == 5
        group.open(1)
        await group.tick(3)
        assert group.values(1) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert group.are_equal()

    play(scene)


def test_a_deposed_leader_fails_its_proposals_and_gives_up_what_was_not_committed() -> None:
    async def scene(group: ReplicaGroup) -> None:
        await group[1].propose_records(batch(b"kept"))
        group.isolate(1)
        written = group[1].propose_records(batch(b"lost", b"lost"))
        state = group[1].propose_state(b"lost")
        await turn()
        late = group[1].propose_records(batch(b"lost too"))
        await turn()
        assert b"lost too" in group.values(1)
        leader = await group.new_leader(instead_of=1)
        assert await leader.propose_records(batch(b"new")) == 1

        group.heal()
        await group.tick(3)

        for answer in (written, state, late):
            assert isinstance(answer.exception(), NotLeader)
        assert group.values(1) == [b"kept", b"new"]
        assert group.witnesses[1].events == [0, 1]
        assert group.are_equal()
        with pytest.raises(NotLeader):
            group[1].propose_records(batch(b"late"))

    play(scene)


def test_a_leader_without_a_majority_steps_down_and_tells_those_who_wait() -> None:
    async def scene(group: ReplicaGroup) -> None:
        woken: list[bool] = []
        group[1].watch(lambda: woken.append(group[1].is_serving))
        group.isolate(1)
        answer = group[1].propose_records(batch(b"lost"))

        await group.tick(30)

        assert group[1].raft.role is not Role.LEADER
        assert isinstance(answer.exception(), NotLeader)
        assert woken[-1] is False

    play(scene)


def test_a_proposal_that_was_failed_may_still_be_committed_by_the_next_leader() -> None:
    async def scene(group: ReplicaGroup) -> None:
        # The followers get the entry, their answers get lost.
        group.network.cuts |= {(2, 1), (3, 1)}
        answer = await settle(group[1].propose_records(batch(b"held")))
        assert not answer.done()
        group.isolate(1)

        leader = await group.new_leader(instead_of=1)
        group.heal()
        await group.tick(3)

        assert isinstance(answer.exception(), NotLeader)
        assert leader.high_watermark == 1
        assert group.values(1) == [b"held"]
        assert group.are_equal()

    play(scene)


def test_records_that_only_the_leader_had_make_room_for_those_of_the_next_one() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.isolate(1)
        assert await group[1].propose_records(batch(b"one"), waits_for_commit=False) == 0
        leader = await group.new_leader(instead_of=1)
        assert await leader.propose_records(batch(b"other")) == 0

        group.heal()
        await group.tick(3)

        assert [group.values(node) for node in NODES] == [[b"other"]] * 3

    play(scene)


@pytest.mark.parametrize("segment_bytes", [200, 1 << 20])
def test_a_cut_over_several_segments_survives_a_power_cut(segment_bytes: int) -> None:
    async def scene(group: ReplicaGroup) -> None:
        for number in range(3):
            await group[1].propose_records(batch(b"kept %d" % number))
        await group.tick()
        group.isolate(1)
        for number in range(10):
            group[1].propose_records(batch(b"lost %d" % number * 20)).add_done_callback(_ignore)
            group[1].propose_state(b"lost %d" % number).add_done_callback(_ignore)
            await turn(10)
        leader = await group.new_leader(instead_of=1)
        await leader.propose_records(batch(b"new"))
        group.heal()
        await group.tick(3)
        group.machines[1].disk.crash(Random(1))

        group.open(1)
        await group.tick(3)

        assert group.values(1) == [b"kept 0", b"kept 1", b"kept 2", b"new"]
        assert group.are_equal()

    play(scene, segment_bytes=segment_bytes)


def _ignore(answer: asyncio.Future[Any]) -> None:
    answer.exception()


def test_leadership_goes_round_and_every_acknowledged_record_stays_in_its_place() -> None:
    async def scene(group: ReplicaGroup) -> None:
        leader = group[1]
        expected: list[bytes] = []
        for number in range(12):
            value = b"%d" % number
            offset = await leader.propose_records(batch(value))
            assert offset == len(expected)
            expected.append(value)
            if number % 3 == 2:
                node = leader.identity.member.node
                group.isolate(node)
                leader.propose_records(batch(b"lost")).add_done_callback(_ignore)
                leader = await group.new_leader(instead_of=node)
                assert leader.high_watermark == len(expected)
                group.heal()
                await group.tick(2)
        await group.tick(2)

        assert [group.values(node) for node in NODES] == [expected] * 3
        assert group.are_equal()

    play(scene)


def test_a_follower_that_was_away_catches_up_from_what_the_leader_has_stored() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.stop(3)
        for number in range(30):
            await group[1].propose_records(batch(b"%d" % number))
            if number % 4 == 0:
                await group[1].propose_state(b"state %d" % number)

        group.open(3)
        await group.tick(3)

        assert group.values(3) == [b"%d" % number for number in range(30)]
        assert group.are_equal()

    play(scene, segment_bytes=500)


def test_a_follower_catches_up_over_batches_that_compaction_has_emptied() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.isolate(3)
        for number in range(12):
            key = b"key %d" % (number % 2)
            await group[1].propose_records(batch(b"%d" % number * 20, key=key))
        leader = group[1]
        await leader.save_snapshot()
        compaction = plan_compaction(
            leader.log.segments, leader.log.settings, 0, end_index=leader.snapshot_index
        )
        assert compaction is not None
        for old, new in compaction.run(group.machines[1].disk):
            leader.log.segments[leader.log.segments.index(old)] = new
        left = group.values(1)
        assert len(left) < 12

        group.heal()
        await group.tick(3)

        assert group.values(3) == left
        assert group[3].high_watermark == leader.high_watermark == 12
        assert group[3].log.next_offset == leader.log.next_offset
        group.stop(1)
        again = group.open(1)
        await group.tick(30)
        assert again.high_watermark == 12

    play(scene, segment_bytes=300, compacts=True, deletes=False, dirty_ratio_min=0)


def test_uncommitted_records_of_a_follower_replace_nothing_in_compaction() -> None:
    async def scene(group: ReplicaGroup) -> None:
        await group[1].propose_records(batch(b"committed", key=b"k"))
        await group.tick()
        group.isolate(1)
        for number in range(6):
            proposed = group[1].propose_records(batch(b"lost %d" % number * 20, key=b"k"))
            proposed.add_done_callback(_ignore)
            await turn()
        log = group[1].log
        assert len(log.segments) > 2
        await group[1].save_snapshot()

        planned = plan_compaction(log.segments, log.settings, 0, end_index=group[1].snapshot_index)

        assert planned is None or all(
            segment.next_index <= group[1].snapshot_index for segment in planned.segments
        )

    play(scene, segment_bytes=300, compacts=True, deletes=False, dirty_ratio_min=0)


def test_a_leader_whose_disk_fails_leaves_the_group_to_the_others() -> None:
    async def scene(group: ReplicaGroup) -> None:
        await group[1].propose_records(batch(b"kept"))
        group.machines[1].disk.fail_sync()
        answer = group[1].propose_records(batch(b"unsure"))
        await turn()
        assert isinstance(answer.exception(), StorageFailed)
        assert not group[1].is_serving

        leader = await group.new_leader(instead_of=1)

        assert group.values(int(leader.identity.member.node))[0] == b"kept"
        assert await leader.propose_records(batch(b"new")) == leader.high_watermark - 1

    play(scene)


def test_a_follower_that_has_failed_acknowledges_nothing_that_it_was_writing() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.isolate(3)
        group.machines[2].executor.hold()
        answer = await settle(group[1].propose_records(batch(b"a")))

        # A checkpoint has taken the kernel's report of a lost write, so the flush knows nothing.
        group[2].fail(StorageFailed("a checkpoint failed to sync"))
        group.machines[2].executor.release()
        await group.tick()

        assert not answer.done()
        assert group[1].high_watermark == 0

    play(scene)


def test_a_follower_whose_disk_is_full_holds_nobody_up_and_catches_up() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.machines[3].disk.capacity_bytes = 0
        for number in range(5):
            assert await group[1].propose_records(batch(b"%d" % number)) == number
        assert group.values(3) == []

        group.machines[3].disk.capacity_bytes = None
        await asyncio.sleep(1)
        await group.tick(3)

        assert group.are_equal()

    play(scene)


def test_a_batch_that_is_sent_again_to_the_next_leader_is_stored_once() -> None:
    async def scene(group: ReplicaGroup) -> None:
        old = group.partition(1)
        assert await old.publish(numbered_batch(0, b"a")) == 0
        group.network.cuts |= {(2, 1), (3, 1)}
        unsure = await settle(old.publish(numbered_batch(1, b"b")))
        group.isolate(1)
        leader = await group.new_leader(instead_of=1)
        new = group.partition(leader.identity.member.node)

        assert await new.publish(numbered_batch(1, b"b")) == 1
        assert await new.publish(numbered_batch(0, b"a")) == 0
        assert await new.publish(numbered_batch(2, b"c")) == 2

        assert values(new) == [b"a", b"b", b"c"]
        group.heal()
        await group.tick(3)
        assert isinstance(unsure.exception(), NotLeader)
        assert group.are_equal()

    play(scene)


def test_a_new_leader_serves_only_when_it_has_applied_what_was_committed_before() -> None:
    async def scene(group: ReplicaGroup) -> None:
        await group[1].propose_records(batch(b"a"))
        group.stop(1)
        group.network.lost_kinds = (Append,)
        leaders: list[ReplicatedLog] = []
        while not leaders:
            await group.tick()
            leaders = [group[node] for node in (2, 3) if group[node].raft.role is Role.LEADER]
        (leader,) = leaders

        # Until its own first entry is on a second disk it cannot know what is committed.
        await group.tick()
        assert not leader.is_serving
        with pytest.raises(NotLeader):
            leader.read(0, start_offset=0, bytes_max=1)
        with pytest.raises(NotLeader):
            leader.propose_records(batch(b"b"))
        group.network.lost_kinds = ()
        await group.tick(2)

        assert leader.is_serving
        assert leader.high_watermark == 1

    play(scene)


def test_a_follower_can_wait_until_it_has_applied_an_entry() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.isolate(3)
        await group[1].propose_state(b"one")
        index = group[1].applied_index
        waiting = await settle(group[3].wait_applied(index))
        assert not waiting.done()

        group.heal()
        await group.tick(2)

        assert waiting.done()
        assert group.witnesses[3].events == [b"one"]
        too_far = await settle(group[3].wait_applied(index + 10))
        await group[3].close()
        assert isinstance(too_far.exception(), Unavailable)
        with pytest.raises(Unavailable):
            await group[3].wait_applied(index + 10)

    play(scene)


def test_a_damaged_entry_closes_the_replica_that_finds_it_and_no_other() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.isolate(3)
        await group[1].propose_records(batch(b"a"))
        await group[1].propose_records(batch(b"b"))
        segment = group[1].log.segments[0]
        group.machines[1].disk.flip_bit(segment.path(".log"), 65)

        group.heal()
        await group.tick(3)

        assert group[1].failure is not None
        leader = await group.new_leader(instead_of=1)
        assert leader.identity.member.node == 2
        await group.tick(3)
        assert group.values(3) == [b"a", b"b"]

    play(scene)


@pytest.mark.parametrize("lose", ["removed", "cut"])
def test_a_replica_that_has_forgotten_its_vote_does_not_open(lose: str) -> None:
    async def scene(group: ReplicaGroup) -> None:
        await group[1].propose_records(batch(b"a"))
        await group.tick(3)
        group.stop(3)
        disk = group.machines[3].disk
        if lose == "removed":
            disk.remove(DIRECTORY / "vote")
        else:
            disk.put(DIRECTORY / "vote", b"")

        with pytest.raises(Corruption, match="vote is missing or damaged"):
            group.open(3)

    play(scene)


def test_a_rotten_row_closes_the_replica_that_asks_for_its_term_and_no_other() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.isolate(3)
        for value in (b"a", b"b", b"c"):
            await group[1].propose_records(batch(value))
        table = group[1].log.segments[0].table
        assert isinstance(table._rows, bytearray)
        # The row is damaged in memory, as it is in a file that a sealed segment maps.
        for number in range(table.count):
            table._rows[number * ROW_BYTES] ^= 64

        group.heal()
        await group.tick(3)

        assert isinstance(group[1].failure, Corruption)
        leader = await group.new_leader(instead_of=1)
        assert leader.identity.member.node == 2
        await group.tick(3)
        assert group.values(3) == [b"a", b"b", b"c"]

    play(scene)


def test_a_follower_whose_disk_is_full_still_votes() -> None:
    async def scene(group: ReplicaGroup) -> None:
        await group[1].propose_records(batch(b"first"))
        await group.tick()
        group.machines[3].disk.capacity_bytes = 1
        await group[1].propose_records(batch(b"x" * 2_000))
        await group.tick()

        # Node 3 holds back what it cannot store, and node 2 needs its vote.
        group.stop(1)
        await group.tick(20)

        assert group[2].raft.role is Role.LEADER
        assert group[3].leader == 2
        assert not group[2].is_serving, "its first entry is on one disk only"
        group.machines[3].disk.capacity_bytes = None
        await asyncio.sleep(1)
        await group[2].propose_records(batch(b"y" * 2_000))
        await group.tick(3)
        assert group.values(3) == [b"first", b"x" * 2_000, b"y" * 2_000]

    play(scene)


def test_a_learner_is_filled_at_its_pace_and_voters_are_not_kept_back() -> None:
    async def scene(group: ReplicaGroup) -> None:
        leader, megabyte = group[1], 1_000_000
        group.isolate(3)
        for _ in range(8):
            await leader.propose_records(batch(b"x" * megabyte))
        leader.change_membership(group.membership.without(NodeId(3)))
        await group.tick()
        leader.pace_learners(Pace(megabyte, asyncio.get_running_loop().time))
        leader.change_membership(leader.raft.membership.with_learner(group.member(3)))
        started_s = asyncio.get_running_loop().time()

        group.heal()
        while group[3].log.next_offset < 8:
            await group.tick()
            await asyncio.sleep(0.1)
            assert group[2].log.next_offset == leader.log.next_offset
        elapsed_s = asyncio.get_running_loop().time() - started_s

        # The last append may arrive at once; all before it were waited for.
        assert 6 <= elapsed_s <= 10
        assert await leader.propose_records(batch(b"y")) == 8
        await asyncio.sleep(2)
        await group.tick(3)
        assert group.are_equal()

    play(scene)
