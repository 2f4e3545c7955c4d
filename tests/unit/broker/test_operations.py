"""What operators ask of a cluster while somebody else changes it, too.

One node runs; the others are known to the metadata and never up.
"""

import asyncio

import pytest
from msgspec import structs

from penstock.broker import Broker, NewTopic
from penstock.cluster import Leader, plan_moves
from penstock.cluster.commands import RegisterNode
from penstock.errors import Conflict, NotLeader, PreferredLeaderUnavailable, Unavailable
from penstock.ids import TopicPartition
from tests.unit.broker.brokers import started
from tests.unit.cluster.workplaces import run

TOPICS = [f"pair-{number}" for number in range(6)]
LAST = TopicPartition(TOPICS[-1], 0)


async def with_pairs() -> Broker:
    """Return a broker among three nodes, with topics that nodes 1 and 2 replicate."""
    broker = await started()
    (known,) = broker.metadata.nodes.values()
    for node_id in (2, 3):
        node = structs.replace(known, node_id=node_id, incarnation=node_id)
        await broker.cluster.change(RegisterNode(node))
    for name in TOPICS:
        await broker.topics.create(NewTopic(name, assignments=[[1, 2]]))
    return broker


def nodes_of(broker: Broker, name: str) -> tuple[int, ...]:
    return broker.metadata.topic(name).replicas[0].nodes


def test_a_drain_goes_on_when_a_topic_is_deleted_meanwhile() -> None:
    async def scene() -> None:
        broker = await with_pairs()

        moved, _ = await asyncio.gather(
            broker.operations.drain(2), broker.topics.delete(LAST.topic)
        )

        assert moved == len(TOPICS) - 1
        assert {nodes_of(broker, name) for name in TOPICS[:-1]} == {(1, 3)}

    run(scene())


def test_a_drain_leaves_alone_what_somebody_else_has_moved_meanwhile() -> None:
    async def scene() -> None:
        broker = await with_pairs()

        await asyncio.gather(broker.operations.drain(2), broker.operations.move(LAST, [1]))

        assert nodes_of(broker, LAST.topic) == (1,)

    run(scene())


def test_a_drain_stops_when_it_is_ended_meanwhile() -> None:
    async def scene() -> None:
        broker = await with_pairs()
        begun = asyncio.Event()
        broker.metadata.watch(begun.set)
        drain = asyncio.ensure_future(broker.operations.drain(2))
        await begun.wait()
        await broker.operations.end_drain(2)

        with pytest.raises(Conflict, match="the drain of node 2 was ended by somebody else"):
            await drain
        assert nodes_of(broker, LAST.topic) == (1, 2)

    run(scene())


def test_balancing_leaves_alone_what_somebody_else_has_moved_meanwhile() -> None:
    async def scene() -> None:
        broker = await with_pairs()
        broker.operations._reachable = lambda: {1, 2, 3}  # type: ignore[method-assign]
        planned = plan_moves(broker.metadata, {1, 2, 3})
        moved, deleted = [
            name
            for name, topic in broker.metadata.topics.items()
            if topic.replicas[0].group in planned
        ][-2:]
        place = TopicPartition(moved, 0)

        done, _, _ = await asyncio.gather(
            broker.operations.balance(),
            broker.operations.move(place, [2, 1]),
            broker.topics.delete(deleted),
        )

        assert len([each for each in done if "consumer groups" not in each]) == len(planned) - 2
        assert nodes_of(broker, moved) == (2, 1)

    run(scene())


def test_balancing_gives_consumer_groups_the_replicas_that_they_lack() -> None:
    async def scene() -> None:
        broker = await with_pairs()
        broker.operations._reachable = lambda: {1, 2, 3}  # type: ignore[method-assign]

        done = await broker.operations.balance()

        assert "consumer groups 0: from nodes 1 to 1, 2, 3" in done
        status = await broker.operations.status()
        assert "consumer groups 0" in status.changing
        assert "consumer groups 0" not in status.without_leader

    run(scene())


def test_consumer_groups_whose_leader_is_gone_are_told() -> None:
    async def scene() -> None:
        broker = await with_pairs()
        (shard,) = broker.metadata.shards
        broker.cluster.leaders.learn([Leader(shard.group, 99, 3)])

        assert "consumer groups 0" in (await broker.operations.status()).without_leader

    run(scene())


def test_a_node_that_still_holds_the_only_replica_is_not_removed_and_it_is_named() -> None:
    async def scene() -> None:
        broker = await with_pairs()
        await broker.topics.create(NewTopic("solo", assignments=[[2]]))

        with pytest.raises(
            Conflict, match=r"7 logs: solo-0 \(the only replica\), pair-0-0, .*drain"
        ):
            await broker.operations.remove_node(2)
        await broker.operations.drain(2)
        with pytest.raises(Conflict, match=r"solo-0 \(the only replica\), .*wait until they have"):
            await broker.operations.remove_node(2)

    run(scene())


def test_a_node_that_keeps_what_was_moved_away_is_to_be_drained_again() -> None:
    async def scene() -> None:
        broker = await with_pairs()
        await broker.operations.drain(2)
        await broker.operations.cancel_move(LAST)

        with pytest.raises(Conflict, match="drain it again, not all of them are being moved"):
            await broker.operations.remove_node(2)
        await broker.operations.drain(2)
        with pytest.raises(Conflict, match="wait until they have moved"):
            await broker.operations.remove_node(2)

    run(scene())


def test_a_node_that_is_cut_off_does_not_call_the_cluster_balanced() -> None:
    async def scene() -> None:
        broker = await with_pairs()
        assert not broker.is_cut_off
        broker.cluster._contact.leader_is(None, now_s=-60)

        with pytest.raises(Unavailable, match="node 1 is cut off and cannot say"):
            await broker.operations.balance()

    run(scene())


def test_leadership_goes_to_nobody_who_cannot_take_it() -> None:
    async def scene() -> None:
        broker = await with_pairs()
        place = TopicPartition("orders", 0)

        with pytest.raises(NotLeader, match="pair-0-0 has no leader"):
            await broker.operations.transfer_leader(TopicPartition(TOPICS[0], 0), 2)
        await broker.operations.move(place, [1, 2])
        with pytest.raises(PreferredLeaderUnavailable, match="node 2 has no replica of orders-0"):
            await broker.operations.transfer_leader(place, 2)
        log = broker.cluster.partition(place).log
        # Newcomers are admitted by rounds.
        await asyncio.sleep(1)
        assert log.raft.membership.learners
        with pytest.raises(PreferredLeaderUnavailable, match="node 2 is still being filled"):
            await broker.operations.transfer_leader(place, 2)

    run(scene())


def test_a_partition_is_handed_to_a_node_that_leads_it_by_now() -> None:
    async def scene() -> None:
        broker = await with_pairs()
        log = broker.cluster.partition(TopicPartition("orders", 0)).log

        await broker.cluster.leadership.transfer(log.identity.group, 1)

        assert log.is_serving
        assert log.raft.transferee is None

    run(scene())
