"""Reads on the leader of three nodes that must not be older than what others were told."""

import asyncio

import pytest

from penstock.cluster import ReplicatedLog
from penstock.errors import NotLeader, OutOfOrderSequence, Unavailable
from tests.unit.cluster.replica_groups import ReplicaGroup
from tests.unit.cluster.test_replication import play
from tests.unit.cluster.workplaces import batch, numbered_batch, turn


def test_a_leader_that_is_heard_answers_at_once() -> None:
    async def scene(group: ReplicaGroup) -> None:
        await group[1].propose_records(batch(b"a"))

        await group[1].wait_current()

        assert group[1].high_watermark == 1

    play(scene)


def test_one_follower_is_enough_to_answer() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.isolate(3)

        await group[1].wait_current()

    play(scene)


def test_a_leader_that_was_replaced_does_not_answer_from_what_it_knew() -> None:
    async def scene(group: ReplicaGroup) -> None:
        await group[1].propose_records(batch(b"a"))
        group.isolate(1)
        leader = await _elected_while_the_first_hears_nothing(group)
        await leader.propose_records(batch(b"b"))
        assert group[1].is_serving
        assert group[1].high_watermark == 1

        reading = asyncio.ensure_future(group[1].wait_current())
        await turn()
        assert not reading.done()
        group.heal()
        await group.tick(3)

        assert isinstance(reading.exception(), NotLeader)
        await leader.wait_current()
        assert leader.high_watermark == 2

    play(scene)


def test_a_leader_that_was_replaced_does_not_tell_a_producer_that_a_batch_is_missing() -> None:
    async def scene(group: ReplicaGroup) -> None:
        stale = group.partition(1)
        await stale.publish(numbered_batch(0, b"known to all"))
        group.isolate(1)
        leader = await _elected_while_the_first_hears_nothing(group)
        await leader.propose_records(numbered_batch(1, b"unknown to the first"))

        refusal = stale.publish(numbered_batch(2, b"the next in line"))
        await turn()
        assert not refusal.done()
        group.heal()
        await group.tick(3)

        assert isinstance(refusal.exception(), NotLeader)

    play(scene)


def test_a_leader_that_is_heard_tells_a_producer_that_a_batch_is_missing() -> None:
    async def scene(group: ReplicaGroup) -> None:
        partition = group.partition(1)
        await partition.publish(numbered_batch(0, b"a"))

        with pytest.raises(OutOfOrderSequence):
            await partition.publish(numbered_batch(2, b"a gap"))

    play(scene)


async def _elected_while_the_first_hears_nothing(group: ReplicaGroup) -> ReplicatedLog:
    """Let time pass for the others alone, as if the process of the leader was suspended."""
    suspended = group.network.replicas.pop(1)
    leader = await group.new_leader(instead_of=1)
    group.network.replicas[1] = suspended
    return leader


def test_a_leader_that_hears_nobody_gives_up() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.isolate(1)

        with pytest.raises(Unavailable, match="no majority has answered within 4 s"):
            await group[1].wait_current()

    play(scene)


def test_a_leader_that_steps_down_tells_those_who_wait() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.isolate(1)
        reading = asyncio.ensure_future(group[1].wait_current())

        await group.tick(30)

        assert isinstance(reading.exception(), NotLeader)

    play(scene)


def test_a_replica_that_is_closed_tells_those_who_wait() -> None:
    async def scene(group: ReplicaGroup) -> None:
        group.isolate(1)
        reading = asyncio.ensure_future(group[1].wait_current())
        await turn()

        await group[1].close()
        await turn()

        assert isinstance(reading.exception(), NotLeader)

    play(scene)


def test_a_follower_refuses() -> None:
    async def scene(group: ReplicaGroup) -> None:
        with pytest.raises(NotLeader, match="led by node 1"):
            await group[2].wait_current()

    play(scene)
