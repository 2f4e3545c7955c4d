"""Receiving and answering, on a node that is a cluster of its own."""

import asyncio
import contextlib
from typing import Any

import pytest

from penstock.broker import Broker, Message, Nack, NewTopic, Reject
from penstock.delivery import Part, parse_receipt
from penstock.errors import (
    DiskFull,
    InvalidGroupId,
    InvalidReceipt,
    InvalidRequest,
    InvalidSetting,
    LeaseExpired,
    NotLeader,
    TopicNotFound,
    Unavailable,
)
from penstock.ids import TopicPartition
from penstock.record import Record, encode_batch
from tests.unit.broker.brokers import started
from tests.unit.cluster.workplaces import LoopClock, SimMachine, run

TOPIC = "orders"
GROUP = "workers"


async def started_with(*values: bytes, partition: int = 0) -> Broker:
    broker = await started(SimMachine(clock=LoopClock()))
    if values:
        await publish(broker, *values, partition=partition)
    return broker


async def publish(
    broker: Broker, *values: bytes, partition: int = 0, key: bytes | None = None
) -> int:
    records = [Record(number, 0, key, value) for number, value in enumerate(values)]
    place = TopicPartition(TOPIC, partition)
    return await broker.publisher.publish(place, memoryview(encode_batch(records))).offset


async def receive(broker: Broker, count: int = 10, **options: object) -> list[Message]:
    return await broker.queues.receive(TOPIC, GROUP, count_max=count, **options)  # type: ignore[arg-type]


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


def test_messages_go_out_once_and_are_settled_by_their_receipts() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b", b"c")

        messages = await receive(broker, 2)
        rest = await receive(broker)
        nothing = await receive(broker)
        outcomes = await broker.queues.ack(TOPIC, GROUP, [each.receipt for each in messages])

        assert values(messages) == [b"a", b"b"]
        assert values(rest) == [b"c"]
        assert nothing == []
        assert outcomes == [None, None]
        assert [each.attempt for each in messages] == [1, 1]

    run(scene())


def test_a_busy_topic_does_not_keep_another_one_waiting() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b", b"c", b"d")
        await broker.topics.create(NewTopic("payments", 1))
        paid = memoryview(encode_batch([Record(0, 0, None, b"paid")]))
        await broker.publisher.publish(TopicPartition("payments", 0), paid).offset

        topics = [TOPIC, "payments"]
        (first,) = await broker.queues.receive_any(topics, GROUP, count_max=1)
        (second,) = await broker.queues.receive_any(topics, GROUP, count_max=1)

        assert {first.topic, second.topic} == {TOPIC, "payments"}

    run(scene())


def test_acks_share_a_flush_with_those_that_arrive_a_turn_later() -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker = await started(machine)
        await publish(broker, b"a", b"b")
        first, second = await receive(broker, 1), await receive(broker, 1)
        await asyncio.sleep(1)

        async def ack_in_next_turn() -> list[object]:
            await asyncio.sleep(0)
            return list(await broker.queues.ack(TOPIC, GROUP, [second[0].receipt]))

        machine.disk.trace = []
        outcomes = await asyncio.gather(
            broker.queues.ack(TOPIC, GROUP, [first[0].receipt]), ack_in_next_turn()
        )

        assert outcomes == [[None], [None]]
        assert len([each for each in machine.disk.trace if each.startswith("sync")]) == 1

    run(scene())


def test_a_lease_is_written_although_nothing_follows() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        ledger = broker.cluster.partition(TopicPartition(TOPIC, 0)).queue.ledger

        await receive(broker)
        assert ledger(GROUP).in_flight == 0
        await asyncio.sleep(1)

        assert ledger(GROUP).in_flight == 1

    run(scene())


def test_whoever_looks_at_a_group_sees_all_that_has_gone_out() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        await receive(broker, 1)
        status = await broker.queues.status(TOPIC, GROUP)
        await receive(broker, 1)
        in_flight = await broker.queues.in_flight(TOPIC, GROUP, count_max=10)

        assert status.in_flight == 1
        assert [each.offset for each in in_flight] == [0, 1]

    run(scene())


def test_every_group_gets_every_message() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")

        first = await broker.queues.receive(TOPIC, "one", count_max=1)
        second = await broker.queues.receive(TOPIC, "two", count_max=1)

        assert values(first) == values(second) == [b"a"]
        assert await broker.queues.groups(TOPIC) == ["one", "two"]

    run(scene())


def test_messages_of_all_partitions_are_received() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", partition=0)
        await publish(broker, b"b", partition=1)

        messages = await receive(broker)

        assert sorted(values(messages)) == [b"a", b"b"]  # type: ignore[type-var]
        outcomes = await broker.queues.ack(TOPIC, GROUP, [each.receipt for each in messages])
        assert outcomes == [None, None]

    run(scene())


def test_a_message_whose_lease_ends_comes_back_and_its_old_receipt_is_refused() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        first = await receive(broker, lease_ms=1_000)

        second = await receive(broker, wait_ms=5_000)

        assert values(second) == [b"a"]
        assert second[0].attempt == 2
        assert second[0].first_delivered_ms == first[0].first_delivered_ms
        (refused,) = await broker.queues.ack(TOPIC, GROUP, [first[0].receipt])
        assert isinstance(refused, LeaseExpired)
        assert await broker.queues.ack(TOPIC, GROUP, [second[0].receipt]) == [None]

    run(scene())


def test_an_extended_lease_holds() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        (message,) = await receive(broker, lease_ms=1_000)

        outcomes = await broker.queues.extend(TOPIC, GROUP, [message.receipt], lease_ms=60_000)
        await asyncio.sleep(5)

        assert outcomes == [None]
        assert await receive(broker) == []
        assert await broker.queues.ack(TOPIC, GROUP, [message.receipt]) == [None]

    run(scene())


def test_a_message_that_is_given_back_rests_before_it_goes_out_again() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        loop = asyncio.get_running_loop()
        (message,) = await receive(broker)

        given_back_s = loop.time()
        assert await broker.queues.nack(TOPIC, GROUP, [Nack(message.receipt)]) == [None]
        at_once = await receive(broker)
        (again,) = await receive(broker, wait_ms=20_000)

        assert at_once == []
        assert again.attempt == 2
        assert 0.999 <= loop.time() - given_back_s < 2

        given_back_s = loop.time()
        await broker.queues.nack(TOPIC, GROUP, [Nack(again.receipt, delay_ms=5_000)])
        (third,) = await receive(broker, wait_ms=20_000)

        assert third.attempt == 3
        assert 4.999 <= loop.time() - given_back_s < 7

    run(scene())


def test_an_extension_to_nothing_gives_the_message_back_at_once() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        (message,) = await receive(broker)

        assert await broker.queues.extend(TOPIC, GROUP, [message.receipt], lease_ms=0) == [None]

        (again,) = await receive(broker)
        assert again.attempt == 2

    run(scene())


def test_who_waits_is_woken_by_a_publish() -> None:
    async def scene() -> None:
        broker = await started_with()
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(receive(broker, wait_ms=20_000))
        await asyncio.sleep(3.3)
        began_s = loop.time()

        await publish(broker, b"a", partition=1)

        assert values(await waiting) == [b"a"]
        assert loop.time() - began_s < 0.5

    run(scene())


def test_several_who_wait_share_what_comes() -> None:
    async def scene() -> None:
        broker = await started_with()
        waiting = [
            asyncio.ensure_future(receive(broker, 1, wait_ms=20_000, consumer=str(number)))
            for number in range(5)
        ]
        await asyncio.sleep(1)

        await publish(broker, *(str(number).encode() for number in range(5)))
        found = [value for each in await asyncio.gather(*waiting) for value in values(each)]

        assert sorted(found) == [b"0", b"1", b"2", b"3", b"4"]  # type: ignore[type-var]

    run(scene())


def test_a_wait_that_nothing_ends_returns_nothing_in_time() -> None:
    async def scene() -> None:
        broker = await started_with()
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        assert await receive(broker, wait_ms=3_000) == []

        assert 3.0 <= loop.time() - began_s < 4

    run(scene())


def test_limits_of_messages_in_flight_make_receives_wait() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b", b"c")
        await broker.queues.configure_group(
            TOPIC, GROUP, {"delivery.consumer.in.flight.max": "2", "delivery.in.flight.max": "2"}
        )
        messages = await receive(broker, consumer="one")
        waiting = asyncio.ensure_future(receive(broker, wait_ms=20_000, consumer="two"))
        await asyncio.sleep(2)

        assert values(messages) == [b"a", b"b"]
        assert not waiting.done()
        await broker.queues.ack(TOPIC, GROUP, [messages[0].receipt])

        assert values(await waiting) == [b"c"]

    run(scene())


def test_in_key_order_a_key_waits_for_its_earlier_message_and_others_do_not() -> None:
    async def scene() -> None:
        broker = await started_with()
        await broker.queues.configure_group(TOPIC, GROUP, {"delivery.order": "key"})
        await publish(broker, b"a1", b"a2", key=b"a")
        await publish(broker, b"b1", key=b"b")

        first = await receive(broker)
        await broker.queues.ack(TOPIC, GROUP, [first[0].receipt])
        second = await receive(broker)

        assert values(first) == [b"a1", b"b1"]
        assert values(second) == [b"a2"]

    run(scene())


def test_in_strict_order_one_is_out_at_a_time_and_none_is_skipped() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        await broker.queues.configure_group(
            TOPIC, GROUP, {"delivery.order": "strict", "delivery.backoff.min.ms": "10"}
        )
        for attempt in range(1, 8):
            (message,) = await receive(broker, wait_ms=5_000)
            assert (message.value, message.attempt) == (b"a", attempt)
            await broker.queues.nack(TOPIC, GROUP, [Nack(message.receipt)])
        (message,) = await receive(broker, wait_ms=5_000)
        await broker.queues.ack(TOPIC, GROUP, [message.receipt])

        assert values(await receive(broker)) == [b"b"]

    run(scene())


def test_a_group_that_begins_at_the_end_sees_what_comes_later_in_all_partitions() -> None:
    async def scene() -> None:
        broker = await started_with(b"old")
        await broker.queues.create_group(TOPIC, GROUP, {"delivery.start": "latest"})
        await publish(broker, b"new")
        await publish(broker, b"new too", partition=1)

        assert sorted(values(await receive(broker))) == [b"new", b"new too"]  # type: ignore[type-var]

    run(scene())


def test_outcomes_come_in_the_order_of_the_receipts() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        first, second = await receive(broker)

        outcomes = await broker.queues.ack(
            TOPIC, GROUP, [second.receipt, "nonsense", first.receipt, "0.1.2", "9.1.1"]
        )

        assert [type(each) for each in outcomes] == [
            type(None),
            InvalidReceipt,
            type(None),
            LeaseExpired,
            LeaseExpired,
        ]
        refused = await broker.queues.extend(
            TOPIC, GROUP, [first.receipt, first.receipt], lease_ms=1_000
        )
        assert [type(each) for each in refused] == [LeaseExpired, LeaseExpired]

    run(scene())


def test_receipts_of_one_delivery_may_come_in_any_order_and_twice() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b", b"c", b"d")
        first, second, third, fourth = [each.receipt for each in await receive(broker)]

        outcomes = await broker.queues.ack(TOPIC, GROUP, [third, first, third])
        none_of_ours = first[: first.rindex(".") + 1] + "7"
        wrong = first[: first.rindex(".") + 1]
        mixed = await broker.queues.ack(TOPIC, GROUP, [second, none_of_ours, fourth])
        spoilt = await broker.queues.ack(TOPIC, GROUP, [second, wrong, fourth])

        assert outcomes == [None, None, None]
        assert [type(each) for each in mixed] == [type(None), LeaseExpired, type(None)]
        assert [type(each) for each in spoilt] == [type(None), InvalidReceipt, type(None)]
        assert (await broker.queues.status(TOPIC, GROUP)).unsettled == 0

    run(scene())


def test_a_row_of_receipts_that_is_longer_than_its_delivery_settles_what_was_out() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        first, second = [each.receipt for each in await receive(broker)]
        prefix = first[: first.rindex(".") + 1]
        farthest = [f"{prefix}{2**63 - 1:x}", f"{prefix}{2**63:x}"]

        outcomes = await broker.queues.ack(TOPIC, GROUP, [first, second, f"{prefix}2"])
        beyond = await broker.queues.ack(TOPIC, GROUP, farthest)

        assert [type(each) for each in outcomes] == [type(None), type(None), LeaseExpired]
        assert [type(each) for each in beyond] == [LeaseExpired, InvalidReceipt]
        assert (await broker.queues.status(TOPIC, GROUP)).unsettled == 0

    run(scene())


def test_an_ack_that_comes_again_is_accepted_also_after_a_restart() -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker = await started(machine)
        await publish(broker, b"a", b"b")
        first, second = await receive(broker, 2)
        assert await broker.queues.ack(TOPIC, GROUP, [first.receipt]) == [None]

        assert await broker.queues.ack(TOPIC, GROUP, [first.receipt, first.receipt]) == [None, None]
        machine.disk.kill()
        reborn = await started(machine)
        assert await reborn.queues.ack(TOPIC, GROUP, [first.receipt]) == [None]
        (refused,) = await reborn.queues.nack(TOPIC, GROUP, [Nack(first.receipt)])
        assert isinstance(refused, LeaseExpired)
        assert await reborn.queues.ack(TOPIC, GROUP, [second.receipt]) == [None]

    run(scene())


def test_an_ack_that_is_given_again_inside_is_refused_when_another_was_faster() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        old = await receive(broker, lease_ms=1_000)
        new = await receive(broker, wait_ms=5_000)
        assert await broker.queues.ack(TOPIC, GROUP, [new[0].receipt]) == [None]
        queue = broker.cluster.partition(TopicPartition(TOPIC, 0)).queue
        await queue.settle(GROUP, [1])

        _, delivery, _ = parse_receipt(old[0].receipt)
        stale = await queue.ack(GROUP, [Part(delivery, [(0, 2)])], is_repeated=True)

        # Nobody can tell any more who settled the second one; it may have been this receipt.
        assert stale == [(delivery, 0)]

    run(scene())


def test_an_ack_that_is_given_again_inside_does_not_count_for_a_topic_of_the_same_name() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        old = await receive(broker)
        await broker.topics.delete(TOPIC)
        await broker.topics.create(NewTopic(TOPIC, partitions=2))
        await publish(broker, b"c", b"d")
        await receive(broker)
        queue = broker.cluster.partition(TopicPartition(TOPIC, 0)).queue
        await queue.settle(GROUP, [1])

        _, delivery, _ = parse_receipt(old[0].receipt)
        stale = await queue.ack(GROUP, [Part(delivery, [(1, 2)])], is_repeated=True)

        assert stale == [(delivery, 1)]

    run(scene())


def test_an_ack_is_given_again_when_the_leader_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        (message,) = await receive(broker)
        ask = broker.calls.ask
        asked = []

        async def hang_once(*request: Any, answer_s: float = 15.0) -> Any:
            asked.append(answer_s)
            if len(asked) == 1:
                await asyncio.sleep(answer_s)
                raise Unavailable("a node did not answer")
            return await ask(*request, answer_s=answer_s)

        monkeypatch.setattr(broker.calls, "ask", hang_once)

        assert await broker.queues.ack(TOPIC, GROUP, [message.receipt]) == [None]
        assert len(asked) == 2

    run(scene())


@pytest.mark.parametrize("verb", ["nack", "reject", "extend"])
@pytest.mark.parametrize("was_done", [False, True])
def test_what_meets_a_change_of_leaders_is_asked_of_the_next_one(
    verb: str, was_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        (message,) = await receive(broker)
        ask = broker.calls.ask
        asked = []

        async def change_once(*request: Any, **settings: Any) -> Any:
            asked.append(request[1])
            is_first = asked == [f"queue.{verb}"]
            if was_done or not is_first:
                answer = await ask(*request, **settings)
            if is_first:
                raise NotLeader("orders-0 is being handed to node 2")
            return answer

        monkeypatch.setattr(broker.calls, "ask", change_once)

        queues, receipt = broker.queues, message.receipt
        match verb:
            case "nack":
                answer = queues.nack(TOPIC, GROUP, [Nack(receipt)])
            case "reject":
                answer = queues.reject(TOPIC, GROUP, [Reject(receipt)])
            case _:
                answer = queues.extend(TOPIC, GROUP, [receipt], lease_ms=60_000)
        (outcome,) = await answer

        # A lease that the first attempt has ended is over.
        is_over = was_done and verb != "extend"
        assert isinstance(outcome, LeaseExpired) if is_over else outcome is None
        assert asked.count(f"queue.{verb}") == 2

    run(scene())


def test_a_node_that_has_just_started_takes_an_ack_as_soon_as_it_knows_the_topic() -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker = await started(machine)
        await publish(broker, b"a")
        (message,) = await receive(broker)
        await broker.queues.extend(TOPIC, GROUP, [message.receipt], lease_ms=60_000)
        topics = broker.metadata.topics
        known = dict(topics)
        topics.clear()  # type: ignore[attr-defined]
        broker.metadata.is_current = False

        acking = asyncio.create_task(broker.queues.ack(TOPIC, GROUP, [message.receipt]))
        await asyncio.sleep(1)
        assert not acking.done()
        topics.update(known)  # type: ignore[attr-defined]
        broker.metadata.is_current = True

        assert await acking == [None]

    run(scene())


def test_a_message_that_was_not_begun_costs_no_attempt() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        for _ in range(10):
            (message,) = await receive(broker, 1)
            assert message.attempt == 1
            nack = Nack(message.receipt, reason="not begun", is_counted=False)
            assert await broker.queues.nack(TOPIC, GROUP, [nack]) == [None]

        (message,) = await receive(broker, 1)
        assert message.attempt == 1

    run(scene())


def test_an_acked_message_does_not_come_back_after_a_restart_and_a_lease_holds() -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker = await started(machine)
        await publish(broker, b"a", b"b", b"c")
        first, second = await receive(broker, 2)
        await broker.queues.ack(TOPIC, GROUP, [first.receipt])
        await asyncio.sleep(0.1)

        machine.disk.kill()
        reborn = await started(machine)

        assert values(await receive(reborn)) == [b"c"]
        assert await reborn.queues.ack(TOPIC, GROUP, [second.receipt]) == [None]

    run(scene())


def test_a_lease_that_was_not_journalled_is_forgotten_and_its_receipt_refused() -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker = await started(machine)
        await publish(broker, b"a")
        await broker.queues.create_group(TOPIC, GROUP)
        await receive(broker, 1, lease_ms=1)
        (message,) = await receive(broker, 1, wait_ms=1_000)

        machine.disk.kill()
        reborn = await started(machine)

        (again,) = await receive(reborn)
        assert again.attempt == message.attempt == 2
        (refused,) = await reborn.queues.ack(TOPIC, GROUP, [message.receipt])
        assert isinstance(refused, LeaseExpired)

    run(scene())


def test_a_disk_that_is_nearly_full_refuses_publishes_and_takes_acks() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        broker.space.is_low = True

        with pytest.raises(DiskFull):
            await publish(broker, b"b")
        (message,) = await receive(broker)

        assert await broker.queues.ack(TOPIC, GROUP, [message.receipt]) == [None]

    run(scene())


def test_what_retention_removed_is_settled_although_the_disk_was_full_at_first() -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker = await started(machine)
        sizes = {"segment.bytes": "1024", "retention.bytes": "1000"}
        await broker.topics.create(NewTopic("short", partitions=1, settings=sizes))
        assert await broker.queues.receive("short", GROUP, count_max=1) == []
        batches = [encode_batch([Record(0, 0, None, b"%d" % n * 300)]) for n in range(10)]
        place = TopicPartition("short", 0)
        for data in batches:
            await broker.publisher.publish(place, memoryview(data)).offset
        await broker.housekeeper.tidy()
        assert broker.cluster.partition(place).start_offset > 0
        machine.disk.capacity_bytes = machine.disk.used_bytes()
        with pytest.raises(DiskFull):
            await broker.publisher.publish(place, memoryview(bytearray(batches[0]))).offset

        with pytest.raises(DiskFull):
            await broker.queues.receive("short", GROUP, count_max=10)
        machine.disk.capacity_bytes = None
        received: list[Message] = []
        async with asyncio.timeout(60):
            while not received:
                await asyncio.sleep(0.05)
                with contextlib.suppress(DiskFull):
                    received = await broker.queues.receive("short", GROUP, count_max=1)

        assert received[0].offset == broker.cluster.partition(place).start_offset

    run(scene())


def test_leases_end_by_the_clock_also_when_it_is_set_meanwhile() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        await publish(broker, b"a")
        (first,) = await receive(broker, lease_ms=3_600_000)

        machine.clock.advance(3_600_001)
        again = await receive(broker, wait_ms=60_000)

        assert values(again) == [b"a"]
        assert again[0].attempt == first.attempt + 1

    run(scene())


def test_messages_that_are_too_old_are_not_delivered() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        await broker.queues.configure_group(TOPIC, GROUP, {"delivery.ttl.ms": "1000"})

        assert await receive(broker) == []
        await asyncio.sleep(0.1)

        assert (await broker.queues.status(TOPIC, GROUP)).unsettled == 0
        assert values(await broker.queues.receive(TOPIC, "patient", count_max=5)) == [b"a", b"b"]

    run(scene())


def test_in_strict_order_messages_that_are_too_old_are_passed() -> None:
    async def scene() -> None:
        broker = await started_with(b"old", b"old too")
        settings = {"delivery.ttl.ms": "1000", "delivery.order": "strict"}
        await broker.queues.configure_group(TOPIC, GROUP, settings)
        record = Record(0, LoopClock().now_ms(), None, b"new")
        await broker.publisher.publish(
            TopicPartition(TOPIC, 0), memoryview(encode_batch([record]))
        ).offset

        assert values(await receive(broker, wait_ms=900)) == [b"new"]

    run(scene())


def test_nonsense_is_refused_by_name() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        queues = broker.queues

        with pytest.raises(TopicNotFound):
            await queues.receive("nothing", GROUP, count_max=1)
        with pytest.raises(InvalidRequest, match="count_max is 0, not between 1 and"):
            await receive(broker, 0)
        with pytest.raises(InvalidRequest, match="lease_ms is -1"):
            await receive(broker, lease_ms=-1)
        with pytest.raises(InvalidGroupId):
            await queues.receive(TOPIC, "", count_max=1)
        with pytest.raises(InvalidSetting, match=r"retention\.ms is no setting of a queue group"):
            await queues.configure_group(TOPIC, GROUP, {"retention.ms": "1"})
        with pytest.raises(InvalidRequest, match="delay_ms is -5"):
            await queues.nack(TOPIC, GROUP, [Nack("0.1.2", delay_ms=-5)])
        with pytest.raises(InvalidRequest, match="at most 4096 are allowed"):
            await queues.reject(TOPIC, GROUP, [Reject("0.1.2", reason="x" * 5_000)])

    run(scene())


def test_a_late_ack_settles_what_went_out_by_a_lease_that_was_lost_with_its_leader() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b", b"c")
        (message,) = await receive(broker, 1)
        partition, delivery, _ = parse_receipt(message.receipt)
        # Of another leader of this log, whose lease of the next message was never committed.
        lost = f"{partition}.{delivery + 100:x}.1"

        (refused,) = await broker.queues.ack(TOPIC, GROUP, [lost])
        assert isinstance(refused, LeaseExpired)
        assert await broker.queues.ack_late(TOPIC, GROUP, [lost]) == [None]

        assert values(await receive(broker)) == [b"c"]
        beyond = f"{partition}.{delivery + 100:x}.9"
        (refused,) = await broker.queues.ack_late(TOPIC, GROUP, [beyond])
        assert isinstance(refused, LeaseExpired)

    run(scene())
