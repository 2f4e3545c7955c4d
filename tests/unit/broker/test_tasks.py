"""Tasks through the verbs of a node."""

import asyncio
from functools import partial
from itertools import product

import pytest

from penstock.broker import Broker, LeasedTask, Nack, NewMessage, NewTask
from penstock.errors import InvalidReceipt, InvalidRequest, LeaseExpired, MessageNotFound
from tests.unit.broker.brokers import started
from tests.unit.cluster.workplaces import SimMachine, run


async def enqueue(broker: Broker, task_type: str = "email", **options: object) -> str:
    new = NewTask(type=task_type, payload=b'"hi"', **{"priority": 4, **options})  # type: ignore[arg-type]
    return (await broker.tasks.enqueue(new)).id


async def lease(broker: Broker, *types: str, lease_ms: int = 30_000) -> LeasedTask:
    (task,) = await broker.tasks.lease(
        types or ("email",), count_max=1, lease_ms=lease_ms, worker="w1"
    )
    return task


async def settled(broker: Broker) -> None:
    """Let what goes on in the background come to rest."""
    await asyncio.sleep(3)


def test_a_task_goes_from_queued_to_leased_to_done() -> None:
    async def scene() -> None:
        broker = await started()
        task_id = await enqueue(broker)
        assert (await broker.tasks.status(task_id)).state == "queued"

        task = await lease(broker)
        status = await broker.tasks.status(task_id)
        assert (task.id, task.attempt, task.payload) == (task_id, 1, b'"hi"')
        assert (status.state, status.attempts, status.worker) == ("leased", 1, "w1")

        await broker.tasks.ack(task_id, task.receipt)
        status = await broker.tasks.status(task_id)
        assert (status.state, status.attempts, status.last_error) == ("done", 1, "")

    run(scene())


def test_a_task_is_tried_again_as_often_as_it_asks_for_and_then_fails() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        task_id = await enqueue(broker, max_retries=5)
        for attempt in range(1, 7):
            task = await lease(broker)
            assert task.attempt == attempt
            await broker.tasks.nack(task_id, task.receipt, delay_ms=0, reason=f"no {attempt}")
            machine.clock.advance(1)
        await settled(broker)

        status = await broker.tasks.status(task_id)
        assert (status.state, status.attempts, status.last_error) == ("failed", 6, "no 6")
        assert await broker.tasks.lease(["email"], count_max=1) == []
        (letter,) = await broker.dead_letters.search("tasks.email")
        assert (letter.attempts, letter.error) == (6, "no 6")

    run(scene())


@pytest.mark.parametrize("max_retries", [0, 2])
def test_a_task_whose_last_lease_has_ended_has_failed_although_nobody_leases(
    max_retries: int,
) -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        task_id = await enqueue(broker, max_retries=max_retries)
        for attempt in range(1, max_retries + 2):
            assert (await broker.tasks.status(task_id)).state == "queued"
            assert (await lease(broker, lease_ms=100)).attempt == attempt
            machine.clock.advance(200)
            await settled(broker)

        status = await broker.tasks.status(task_id)
        (stats,) = await broker.tasks.stats()
        (letter,) = await broker.dead_letters.search("tasks.email")
        assert (status.state, status.attempts) == ("failed", max_retries + 1)
        assert "the lease ended" in status.last_error
        assert (stats.queued, stats.leased, stats.failed) == (0, 0, 1)
        assert letter.attempts == max_retries + 1
        assert await broker.tasks.lease(["email"], count_max=1) == []

    run(scene())


def test_a_task_that_comes_back_by_another_door_is_held_to_its_tries_as_well() -> None:
    async def scene() -> None:
        broker = await started()
        ids = [await enqueue(broker, max_retries=0), await enqueue(broker, max_retries=1)]
        messages = await broker.queues.receive("tasks.email", "workers", count_max=2)
        nacks = [Nack(each.receipt, delay_ms=0, reason="no") for each in messages]
        assert await broker.queues.nack("tasks.email", "workers", nacks) == [None, None]
        await settled(broker)

        assert [(await broker.tasks.status(each)).state for each in ids] == ["failed", "queued"]

    run(scene())


def test_a_lease_begins_no_type() -> None:
    async def scene() -> None:
        broker = await started()
        topics = set(broker.metadata.topics)

        assert await broker.tasks.lease(["emial"], count_max=1, wait_ms=500) == []
        assert await broker.tasks.lease((), count_max=1) == []
        assert set(broker.metadata.topics) == topics
        with pytest.raises(InvalidRequest, match="wait_ms"):
            await broker.tasks.lease(["emial"], count_max=1, wait_ms=10**9)
        with pytest.raises(InvalidRequest, match="type is 'a b'"):
            await broker.tasks.lease(["a b"], count_max=1)

    run(scene())


@pytest.mark.parametrize("types", [["late"], ["early", "late"], []])
def test_a_type_that_begins_while_a_worker_waits_is_picked_up(types: list[str]) -> None:
    async def scene() -> None:
        broker = await started()
        if "early" in types:
            await enqueue(broker, "early")
            await lease(broker, "early")
        waiting = asyncio.ensure_future(
            broker.tasks.lease(types, count_max=1, wait_ms=20_000, lease_ms=60_000)
        )
        await asyncio.sleep(3)
        task_id = await enqueue(broker, "late")
        enqueued_s = asyncio.get_running_loop().time()

        assert [task.id for task in await waiting] == [task_id]
        assert asyncio.get_running_loop().time() - enqueued_s < 0.05

    run(scene())


def test_workers_get_the_types_that_they_ask_for_and_types_take_turns() -> None:
    async def scene() -> None:
        broker = await started()
        for task_type in ("email", "email", "sms", "sms"):
            await enqueue(broker, task_type)

        assert (await lease(broker, "sms")).type == "sms"
        rest = [(await broker.tasks.lease((), count_max=1))[0].type for _ in range(3)]
        assert sorted(rest) == ["email", "email", "sms"]
        assert await broker.tasks.lease(["sms"], count_max=1) == []

    run(scene())


def test_a_delayed_task_is_found_by_its_id_when_it_was_released_before_its_time() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        due_ms = machine.clock.now_ms() + 3_600_000
        released = await enqueue(broker, deliver_at_ms=due_ms)
        cancelled = await enqueue(broker, deliver_at_ms=due_ms)
        first, second = await broker.schedule.list("tasks.email")

        assert await broker.schedule.release("tasks.email", [first.id]) == [None]
        assert await broker.schedule.cancel("tasks.email", [second.id]) == [None]
        await settled(broker)

        assert (await broker.tasks.status(released)).state == "queued"
        task = await lease(broker)
        assert task.id == released
        await broker.tasks.ack(task.id, task.receipt)
        assert (await broker.tasks.status(released)).state == "done"
        with pytest.raises(MessageNotFound, match="it was cancelled"):
            await broker.tasks.status(cancelled)

    run(scene())


def test_a_delayed_task_keeps_its_id_and_is_found_after_its_release() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        due_ms = machine.clock.now_ms() + 1_000
        task_id = await enqueue(broker, deliver_at_ms=due_ms, max_retries=9)

        status = await broker.tasks.status(task_id)
        assert (status.state, status.ready_at_ms, status.max_retries) == ("scheduled", due_ms, 9)
        assert (await broker.tasks.stats())[0].scheduled == 1

        machine.clock.advance(1_000)
        await settled(broker)
        task = await lease(broker)
        assert (task.id, task.max_retries) == (task_id, 9)
        await broker.tasks.ack(task_id, task.receipt)
        assert (await broker.tasks.status(task_id)).state == "done"

    run(scene())


def test_the_same_key_enqueues_one_task() -> None:
    async def scene() -> None:
        broker = await started()
        first = await enqueue(broker, idempotency_key="order-17")

        assert await enqueue(broker, idempotency_key="order-17") == first
        assert [each.id for each in await broker.tasks.pending(())] == [first]

    run(scene())


def test_a_task_of_higher_priority_comes_first() -> None:
    async def scene() -> None:
        broker = await started()
        await enqueue(broker)
        urgent = await enqueue(broker, priority=9)

        assert (await lease(broker)).id == urgent

    run(scene())


def test_tasks_are_listed_and_counted_by_state() -> None:
    async def scene() -> None:
        broker = await started()
        ids = [await enqueue(broker) for _ in range(3)]
        task = await lease(broker)
        await broker.tasks.nack(task.id, task.receipt, delay_ms=60_000, reason="later")
        await lease(broker)

        states = [(each.id, each.state) for each in await broker.tasks.pending(["email"])]
        (stats,) = await broker.tasks.stats()
        assert states == [(ids[0], "queued"), (ids[1], "leased"), (ids[2], "queued")]
        assert (stats.queued, stats.retrying, stats.leased, stats.failed) == (2, 1, 1, 0)
        assert await broker.tasks.pending(["sms"]) == []

    run(scene())


def test_receipts_hold_for_their_task_and_only_once() -> None:
    async def scene() -> None:
        broker = await started()
        first, second = await enqueue(broker), await enqueue(broker)
        task = await lease(broker)
        assert task.id == first

        with pytest.raises(InvalidReceipt, match="another task"):
            await broker.tasks.ack(second, task.receipt)
        await broker.tasks.extend(first, task.receipt, lease_ms=None)
        await broker.tasks.ack(first, task.receipt)
        with pytest.raises(LeaseExpired):
            await broker.tasks.nack(first, task.receipt)

    run(scene())


def test_a_receipt_is_refused_with_the_id_of_every_other_task() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        due_ms = machine.clock.now_ms() + 1_000
        waiting = await enqueue(broker, deliver_at_ms=due_ms + 3_600_000)
        ids = [
            await enqueue(broker),
            await enqueue(broker),
            await enqueue(broker, deliver_at_ms=due_ms),
            await enqueue(broker, deliver_at_ms=due_ms),
            await enqueue(broker, "sms"),
        ]
        machine.clock.advance(1_000)
        await settled(broker)
        tasks = [await lease(broker, "email", "sms") for _ in ids]
        verbs = (
            broker.tasks.ack,
            broker.tasks.nack,
            broker.tasks.give_back,
            partial(broker.tasks.extend, lease_ms=1),
        )

        for task, task_id, verb in product(tasks, [*ids, waiting], verbs):
            if task_id != task.id:
                with pytest.raises((InvalidReceipt, LeaseExpired, MessageNotFound)):
                    await verb(task_id, task.receipt)
        assert {(await broker.tasks.status(each)).state for each in ids} == {"leased"}
        assert (await broker.tasks.status(waiting)).state == "scheduled"
        for task in tasks:
            await broker.tasks.extend(task.id, task.receipt, lease_ms=60_000)
            await broker.tasks.ack(task.id, task.receipt)
        assert {(await broker.tasks.status(each)).state for each in ids} == {"done"}

    run(scene())


@pytest.mark.parametrize("forged", ["mine", "0-7", "9-s0-1"])
def test_a_task_that_brings_the_header_of_a_scheduled_message_can_be_done(forged: str) -> None:
    async def scene() -> None:
        broker = await started()
        await enqueue(broker)
        headers = (("penstock-id", forged.encode()), ("penstock-deliver-at", b"1"))
        await broker.messages.publish("tasks.email", [NewMessage(value=b"1", headers=headers)])

        for number in range(2):
            task = await lease(broker)
            assert task.id == f"email:0-{number}"
            await broker.tasks.ack(task.id, task.receipt)

    run(scene())


def test_tasks_that_do_not_exist_are_not_found() -> None:
    async def scene() -> None:
        broker = await started()
        await enqueue(broker)

        for text in ("email:0-7", "email:99-0", "sms:0-0", "what", "email:0-s9-9~5"):
            with pytest.raises(MessageNotFound):
                await broker.tasks.status(text)
        with pytest.raises(InvalidRequest, match="max_retries is 1001"):
            await enqueue(broker, max_retries=1_001)

    run(scene())
