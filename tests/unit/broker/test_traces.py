"""A message tells its life."""

import asyncio

import pytest
from msgspec.structs import replace

from penstock.broker import Nack, NewMessage, Published, Reject, traces
from penstock.broker import TraceKind as K
from penstock.cluster import decode_events
from penstock.errors import InvalidRequest, LeaseExpired, MessageNotFound
from tests.unit.broker.test_burial import settled
from tests.unit.broker.test_queues import GROUP, TOPIC, receive, started_with
from tests.unit.cluster.workplaces import LoopClock, run


def test_every_step_is_told_with_its_actor() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        queues = broker.queues
        first, _ = await receive(broker, consumer="one", lease_ms=1_000)
        (second,) = [m for m in await receive(broker, wait_ms=5_000) if m.offset == 0]
        await queues.extend(TOPIC, GROUP, [second.receipt], lease_ms=60_000)
        (refused,) = await queues.ack(TOPIC, GROUP, [first.receipt])
        await queues.nack(TOPIC, GROUP, [Nack(second.receipt, delay_ms=0, reason="oh")])
        (third,) = await receive(broker, 1, consumer="two")
        await queues.ack(TOPIC, GROUP, [third.receipt])

        steps = await queues.trace(TOPIC, "0-0")

        assert isinstance(refused, LeaseExpired)
        assert [(step.kind, step.attempt) for step in steps] == [
            (K.PUBLISHED, 0),
            (K.REPLICATED, 0),
            (K.DELIVERED, 1),
            (K.EXPIRED, 1),
            (K.REDELIVERED, 2),
            (K.EXTENDED, 2),
            (K.NACKED, 2),
            (K.REDELIVERED, 3),
            (K.ACKNOWLEDGED, 3),
            (K.RETAINED, 0),
        ]
        assert steps[2].consumer == "one"
        assert steps[8].consumer == "two"
        assert steps[6].detail.endswith("oh")
        assert steps[1].detail == "on nodes 1"
        assert [step.at_ms for step in steps[2:9]] == sorted(step.at_ms for step in steps[2:9])

    run(scene())


def test_a_nack_tells_only_what_it_was_given() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        queues = broker.queues
        for nack in (
            Nack("", delay_ms=0),
            Nack("", delay_ms=0, is_counted=False),
            Nack("", delay_ms=0, reason="oh", is_counted=False),
        ):
            (message,) = await receive(broker, 1)
            await queues.nack(TOPIC, GROUP, [replace(nack, receipt=message.receipt)])

        steps = [step for step in await queues.trace(TOPIC, "0-0") if step.kind is K.NACKED]

        told = [step.detail.partition("; ") for step in steps]
        assert all(first.startswith("ready at ") for first, _, _ in told)
        assert [rest for _, _, rest in told] == ["", "not counted", "not counted; oh"]
        assert not steps[0].detail.endswith("; ")

    run(scene())


def test_the_way_to_the_dead_letters_is_told() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        (message,) = await receive(broker)
        await broker.queues.reject(TOPIC, GROUP, [Reject(message.receipt, "no")])
        await settled(broker)

        steps = await broker.queues.trace(TOPIC, message.id)

        assert [step.kind for step in steps[2:-1]] == [K.DELIVERED, K.REJECTED, K.DEAD_LETTERED]
        assert steps[3].detail == "no"
        assert steps[4].detail == f"copied to {TOPIC}.dlq"

    run(scene())


def test_groups_are_told_apart_and_a_reset_forgets() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        await receive(broker)
        await broker.queues.receive(TOPIC, "other", count_max=1)
        await asyncio.sleep(0.1)
        await broker.queues.reset_group(TOPIC, GROUP, to="earliest")

        steps = await broker.queues.trace(TOPIC, "0-0")

        assert [(step.kind, step.group) for step in steps[2:-1]] == [
            (K.DELIVERED, GROUP),
            (K.DELIVERED, "other"),
            (K.GROUP_RESET, GROUP),
        ]

    run(scene())


def test_a_scheduled_message_tells_of_its_wait_and_its_release() -> None:
    async def scene() -> None:
        broker = await started_with()
        due_ms = LoopClock().now_ms() + 5_000
        message = NewMessage(value=b"later", partition=0, deliver_at_ms=due_ms)
        published, cancelled = await broker.messages.publish(TOPIC, [message, message])
        assert isinstance(published, Published)
        assert isinstance(cancelled, Published)
        await broker.schedule.cancel(TOPIC, [cancelled.id])

        waiting = await broker.queues.trace(TOPIC, published.id)
        (received,) = await receive(broker, wait_ms=20_000)
        await asyncio.sleep(0.1)
        told = await broker.queues.trace(TOPIC, published.id)

        assert [step.kind for step in waiting] == [K.SCHEDULED]
        assert waiting[0].detail == f"due at {due_ms}"
        assert [step.kind for step in told[:3]] == [K.SCHEDULED, K.RELEASED, K.REPLICATED]
        assert told[3].kind is K.DELIVERED
        assert received.id == published.id
        assert await broker.queues.trace(TOPIC, "0-0") == told
        gone = await broker.queues.trace(TOPIC, cancelled.id)
        assert [step.kind for step in gone] == [K.SCHEDULED, K.CANCELLED]

    run(scene())


def test_changes_that_came_too_late_are_not_told_of_a_scheduled_message() -> None:
    async def scene() -> None:
        broker = await started_with()
        clock = LoopClock()
        message = NewMessage(value=b"later", partition=0, deliver_at_ms=clock.now_ms() + 5_000)
        (published,) = await broker.messages.publish(TOPIC, [message])
        assert isinstance(published, Published)
        await receive(broker, wait_ms=20_000)
        await asyncio.sleep(0.1)
        told = await broker.queues.trace(TOPIC, published.id)

        for change in (
            broker.schedule.move(TOPIC, [published.id], clock.now_ms() + 60_000),
            broker.schedule.cancel(TOPIC, [published.id]),
            broker.schedule.release(TOPIC, [published.id]),
        ):
            (outcome,) = await change
            assert isinstance(outcome, MessageNotFound)

        assert [step.kind for step in told[:2]] == [K.SCHEDULED, K.RELEASED]
        assert await broker.queues.trace(TOPIC, published.id) == told

    run(scene())


def test_what_is_not_there_cannot_be_traced() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")

        with pytest.raises(MessageNotFound, match="no message at offset 5"):
            await broker.queues.trace(TOPIC, "0-5")
        with pytest.raises(InvalidRequest, match="'nonsense' is not the id"):
            await broker.queues.trace(TOPIC, "nonsense")

    run(scene())


def test_a_trace_reads_no_further_than_the_message_has_a_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[bytes] = []

    def counted(payload: bytes) -> object:
        read.append(payload)
        return decode_events(payload)

    monkeypatch.setattr(traces, "decode_events", counted)
    monkeypatch.setattr(traces, "_ENTRIES_AT_ONCE", 5)

    async def scene() -> None:
        broker = await started_with(*(b"%d" % number for number in range(100)))
        for _ in range(100):
            (message,) = await receive(broker, 1)
            await broker.queues.ack(TOPIC, GROUP, [message.receipt])

        for offset in (0, 50):
            read.clear()
            steps = await broker.queues.trace(TOPIC, f"0-{offset}")
            assert [step.kind for step in steps[2:-1]] == [K.DELIVERED, K.ACKNOWLEDGED]
        # All messages came in one entry, so that the life of each begins there. Each lease shares
        # an entry with the ack that follows it.
        assert len(read) in range(50, 70)

        await broker.queues.reset_group(TOPIC, GROUP, to="earliest")
        steps = await broker.queues.trace(TOPIC, "0-0")
        assert [step.kind for step in steps[2:-1]] == [K.DELIVERED, K.ACKNOWLEDGED, K.GROUP_RESET]

        # What comes after the reset has no life from before it.
        await broker.queues.purge(TOPIC, GROUP)
        await broker.messages.publish(TOPIC, [NewMessage(value=b"new") for _ in range(20)])
        for _ in range(20):
            (message,) = await receive(broker, 1)
            await broker.queues.ack(TOPIC, GROUP, [message.receipt])
        read.clear()
        await broker.queues.trace(TOPIC, "0-100")
        assert len(read) < 20

    run(scene())
