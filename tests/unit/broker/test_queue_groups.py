"""Groups as a whole: where they stand, and how they begin anew."""

import pytest

from penstock.broker import NewMessage, NewTopic
from penstock.errors import GroupNotFound, InvalidRequest, LeaseExpired, NotLeader
from tests.unit.broker.test_operations import with_pairs
from tests.unit.broker.test_queues import GROUP, TOPIC, publish, receive, started_with, values
from tests.unit.cluster.workplaces import run


def test_the_status_counts_messages_by_what_they_wait_for() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b", b"c")
        first, _ = await receive(broker, 2)
        await broker.queues.ack(TOPIC, GROUP, [first.receipt])

        status = await broker.queues.status(TOPIC, GROUP)

        assert (status.unsettled, status.in_flight) == (2, 1)
        partition = status.partitions[0]
        assert (partition.floor, partition.end, partition.oldest_unsettled_ms) == (1, 3, 0)
        with pytest.raises(GroupNotFound):
            await broker.queues.status(TOPIC, "nobody")

    run(scene())


def test_the_oldest_message_is_found_behind_duplicates_that_were_left_out() -> None:
    async def scene() -> None:
        broker = await started_with()
        one, two, three = (
            NewMessage(value=b"v", partition=0, idempotency_key=key, timestamp=at, priority=level)
            for key, at, level in (("one", 1_000, 4), ("two", 2_000, 9), ("three", 3_000, 4))
        )
        await broker.messages.publish(TOPIC, [one])
        (first,) = await receive(broker)
        await broker.messages.publish(TOPIC, [one, two, three])
        (urgent,) = await receive(broker, 1)
        await broker.queues.ack(TOPIC, GROUP, [first.receipt, urgent.receipt])

        (partition, *_) = (await broker.queues.status(TOPIC, GROUP)).partitions

        assert (urgent.offset, partition.floor) == (2, 1)
        assert partition.oldest_unsettled_ms == 3_000

    run(scene())


def test_the_status_names_the_message_that_blocks_a_key() -> None:
    async def scene() -> None:
        broker = await started_with()
        await broker.queues.configure_group(TOPIC, GROUP, {"delivery.order": "key"})
        await publish(broker, b"1", b"2", b"3", key=b"k")
        await receive(broker)

        status = await broker.queues.status(TOPIC, GROUP)

        (blocked,) = status.partitions[0].blocked_keys
        assert (blocked.key, blocked.blocker, blocked.waiting) == (b"k", "0-0", 2)

    run(scene())


def test_messages_in_flight_are_listed_with_their_consumer() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        messages = await receive(broker, consumer="me")
        await broker.queues.extend(TOPIC, GROUP, [messages[1].receipt], lease_ms=90_000)

        listed = await broker.queues.in_flight(TOPIC, GROUP, count_max=10)

        assert [(each.id, each.consumer, each.attempt) for each in listed] == [
            ("0-0", "me", 1),
            ("0-1", "me", 1),
        ]
        assert listed[1].lease_until_ms > listed[0].lease_until_ms
        with pytest.raises(InvalidRequest):
            await broker.queues.in_flight(TOPIC, GROUP, count_max=0)

    run(scene())


def test_a_reset_group_begins_anew_and_receipts_that_are_out_hold_no_more() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b", b"c")
        first, second = await receive(broker, 2)
        await broker.queues.ack(TOPIC, GROUP, [first.receipt])

        planned = await broker.queues.reset_group(TOPIC, GROUP, to="earliest", is_dry_run=True)
        assert [(each.floor, each.target) for each in planned] == [(1, 0), (0, 0)]
        await broker.queues.reset_group(TOPIC, GROUP, to="earliest")
        (refused,) = await broker.queues.ack(TOPIC, GROUP, [second.receipt])

        assert isinstance(refused, LeaseExpired)
        assert values(await receive(broker)) == [b"a", b"b", b"c"]
        await broker.queues.reset_group(TOPIC, GROUP, to="offset", value=2, partition=0)
        assert values(await receive(broker)) == [b"c"]
        with pytest.raises(InvalidRequest, match="offset 9 lies outside 0 to 3"):
            await broker.queues.reset_group(TOPIC, GROUP, to="offset", value=9, partition=0)

    run(scene())


def test_a_purged_group_is_done_with_everything_that_was_there() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        await receive(broker, 1, lease_ms=1_000)

        await broker.queues.purge(TOPIC, GROUP)
        await publish(broker, b"c")

        assert values(await receive(broker, wait_ms=5_000)) == [b"c"]
        assert await receive(broker, wait_ms=5_000) == []

    run(scene())


def test_a_deleted_group_is_forgotten() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        (message,) = await receive(broker)
        await broker.queues.ack(TOPIC, GROUP, [message.receipt])

        await broker.queues.delete_group(TOPIC, GROUP)

        assert await broker.queues.groups(TOPIC) == []
        with pytest.raises(GroupNotFound):
            await broker.queues.delete_group(TOPIC, GROUP)
        assert values(await receive(broker)) == [b"a"]

    run(scene())


def test_a_group_stays_to_be_deleted_as_long_as_a_partition_keeps_books_of_it() -> None:
    async def scene() -> None:
        broker = await with_pairs()
        # Node 2 is never up.
        await broker.topics.create(NewTopic("apart", assignments=[[1], [2]]))
        await broker.queues.create_group("apart", GROUP)

        with pytest.raises(NotLeader, match="apart-1 has no leader"):
            await broker.queues.delete_group("apart", GROUP)

        assert await broker.queues.groups("apart") == [GROUP]
        await broker.topics.delete("apart")

    run(scene())


def test_nothing_is_told_of_a_group_that_no_partition_is_there_to_tell_of() -> None:
    async def scene() -> None:
        broker = await with_pairs()
        for name, nodes in (("apart", [[1], [2]]), ("away", [[2], [2]])):
            await broker.topics.create(NewTopic(name, assignments=nodes))
            await broker.queues.create_group(name, GROUP)

        status = await broker.queues.status("apart", GROUP)
        assert [each.partition for each in status.partitions] == [0]
        with pytest.raises(NotLeader, match="away-0 has no leader"):
            await broker.queues.status("away", GROUP)

    run(scene())


def test_a_topic_that_is_deleted_and_created_again_has_no_groups() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        await receive(broker)

        await broker.topics.delete(TOPIC)
        await broker.topics.create(NewTopic(TOPIC, partitions=1))

        assert await broker.queues.groups(TOPIC) == []
        assert await receive(broker) == []

    run(scene())


def test_a_group_receives_from_partitions_that_are_added_later() -> None:
    async def scene() -> None:
        broker = await started_with()
        await broker.queues.create_group(TOPIC, GROUP, {"delivery.start": "latest"})
        await broker.topics.grow(TOPIC, 3)

        await publish(broker, b"a", partition=2)

        assert values(await receive(broker)) == [b"a"]

    run(scene())


def test_what_retention_removed_is_settled() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b", b"c")
        first, *_ = await receive(broker, 1)
        partition = broker.partitions[0]
        await partition.delete_records(2)  # type: ignore[arg-type]

        (refused,) = await broker.queues.ack(TOPIC, GROUP, [first.receipt])

        assert isinstance(refused, LeaseExpired)
        assert values(await receive(broker)) == [b"c"]
        assert (await broker.queues.status(TOPIC, GROUP)).partitions[0].floor == 2

    run(scene())
