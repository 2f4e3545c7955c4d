"""Acks that bring the next messages along."""

import asyncio

import pytest
from msgspec import structs

from penstock.broker import Message, NewTopic, TopicReceipt
from penstock.cluster import replicated_log
from penstock.delivery import parse_receipt
from penstock.errors import DiskFull, InvalidReceipt, TopicNotFound
from penstock.ids import TopicPartition
from penstock.record import Record, encode_batch
from tests.unit.broker.brokers import started
from tests.unit.broker.test_queues import GROUP, TOPIC, publish, receive, started_with, values
from tests.unit.cluster.workplaces import LoopClock, SimMachine, run


def test_messages_come_in_exchange_for_acks() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b", b"c")
        first = await receive(broker, 2)
        receipts = [each.receipt for each in first]

        outcomes, messages = await broker.queues.ack_and_receive(
            TOPIC, GROUP, [receipts[0], "nonsense"], count_max=10
        )
        status = await broker.queues.status(TOPIC, GROUP)

        assert outcomes[0] is None
        assert isinstance(outcomes[1], InvalidReceipt)
        assert values(messages) == [b"c"]
        assert (status.unsettled, status.in_flight) == (2, 2)

    run(scene())


def test_messages_of_several_topics_come_in_exchange_for_acks_of_any() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        await broker.topics.create(NewTopic("payments", 1))
        place = TopicPartition("payments", 0)
        paid = memoryview(encode_batch([Record(0, 0, None, b"c")]))
        await broker.publisher.publish(place, paid).offset
        hour_ms = 3_600_000
        (first,) = await receive(broker, 1, lease_ms=hour_ms)
        (other,) = await broker.queues.receive("payments", GROUP, count_max=1, lease_ms=hour_ms)

        outcomes, messages = await broker.queues.ack_and_receive_any(
            ["payments", TOPIC],
            GROUP,
            [
                TopicReceipt("payments", other.receipt),
                TopicReceipt("payments", "nonsense"),
                TopicReceipt("no-such-topic", first.receipt),
            ],
            count_max=10,
        )
        orders = await broker.queues.status(TOPIC, GROUP)
        payments = await broker.queues.status("payments", GROUP)

        assert outcomes[0] is None
        assert isinstance(outcomes[1], InvalidReceipt)
        assert isinstance(outcomes[2], TopicNotFound)
        assert values(messages) == [b"b"]
        assert (orders.unsettled, payments.unsettled) == (2, 0)

    run(scene())


@pytest.mark.parametrize(
    "settings", [{"delivery.order": "strict"}, {"delivery.consumer.in.flight.max": "1"}]
)
def test_what_waits_for_an_ack_comes_in_exchange_for_it(settings: dict[str, str]) -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        await broker.queues.configure_group(TOPIC, GROUP, settings)
        (message,) = await receive(broker)
        assert await receive(broker) == []

        outcomes, messages = await broker.queues.ack_and_receive(
            TOPIC, GROUP, [message.receipt], count_max=10
        )

        assert outcomes == [None]
        assert values(messages) == [b"b"]

    run(scene())


def test_an_exchange_waits_for_messages_when_there_are_none() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        (message,) = await receive(broker)

        exchanging = asyncio.ensure_future(
            broker.queues.ack_and_receive(
                TOPIC, GROUP, [message.receipt], count_max=10, wait_ms=60_000
            )
        )
        await asyncio.sleep(1)
        await publish(broker, b"b")
        outcomes, messages = await exchanging

        assert outcomes == [None]
        assert values(messages) == [b"b"]

    run(scene())


def test_the_outcome_of_acks_is_told_although_nothing_can_be_received() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        (message,) = await receive(broker)
        queue = broker.cluster.partition(TopicPartition(TOPIC, 0)).queue

        def refuse(*_: object, **__: object) -> None:
            raise DiskFull("no room for leases")

        queue.receive_nowait = refuse  # type: ignore[method-assign]
        outcomes, messages = await broker.queues.ack_and_receive(
            TOPIC, GROUP, [message.receipt], count_max=10
        )

        assert outcomes == [None]
        assert messages == []

    run(scene())


def test_one_exchange_after_the_other_needs_one_sync_each(monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow the machine is that runs this, no lease is written because it has waited long.
    monkeypatch.setattr(replicated_log, "_SOON_S", 60.0)

    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker = await started(machine)
        assert await receive(broker) == []
        await publish(broker, *(b"%d" % number for number in range(11)))
        messages = await receive(broker, 1)
        machine.disk.trace = trace = []

        for _ in range(10):
            receipts = [each.receipt for each in messages]
            outcomes, messages = await broker.queues.ack_and_receive(
                TOPIC, GROUP, receipts, count_max=1
            )
            assert outcomes == [None]

        assert trace.count("sync") == 10
        assert values(messages) == [b"10"]

    run(scene())


def test_messages_that_come_in_exchange_are_those_that_a_receive_gives() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b", b"c", b"d")
        acked = await broker.queues.receive(TOPIC, GROUP, count_max=1)

        _, messages = await broker.queues.ack_and_receive(
            TOPIC, GROUP, [acked[0].receipt], count_max=10
        )
        others = await broker.queues.receive(TOPIC, "others", count_max=10)

        assert [each.value for each in messages] == [b"b", b"c", b"d"]
        assert [messages[place] for place in range(3)] == list(messages)
        assert messages[1:] == list(messages)[1:]
        for mine, other in zip(messages, others[1:], strict=True):
            assert parse_receipt(mine.receipt).offset == parse_receipt(other.receipt).offset
            assert _without_lease(mine) == _without_lease(other)

    run(scene())


def _without_lease(message: Message) -> Message:
    return structs.replace(message, receipt="", lease_until_ms=0, first_delivered_ms=0)
