"""Scheduled messages through the verbs of a node."""

import asyncio

import pytest

from penstock.broker import Broker, NewMessage, Published
from penstock.errors import InvalidRequest, MessageNotFound, TopicNotFound
from penstock.ids import TopicPartition
from tests.unit.broker.brokers import started
from tests.unit.cluster.workplaces import SimMachine, run


async def schedule(broker: Broker, *messages: tuple[bytes, int]) -> list[str]:
    results = await broker.messages.publish(
        "orders",
        [
            NewMessage(value=value, partition=number % 2, deliver_at_ms=due_ms)
            for number, (value, due_ms) in enumerate(messages)
        ],
    )
    return [result.id for result in results if isinstance(result, Published)]


async def delivered(broker: Broker) -> set[bytes | None]:
    await asyncio.sleep(3)
    found = set()
    for number in range(2):
        place = TopicPartition("orders", number)
        page = await broker.messages.read(place, offset=0, count_max=100, bytes_max=1 << 20)
        found |= {record.value for record in page}
    return found


def test_a_scheduled_message_has_an_id_and_a_time_and_no_offset() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        due_ms = machine.clock.now_ms() + 1000

        (found,) = await broker.messages.publish(
            "orders", [NewMessage(value=b"a", partition=1, deliver_at_ms=due_ms)]
        )

        assert isinstance(found, Published)
        assert (found.offset, found.deliver_at_ms, found.partition) == (None, due_ms, 1)
        (listed,) = await broker.schedule.list("orders")
        assert (listed.id, listed.due_ms, listed.value) == (found.id, due_ms, b"a")
        assert await broker.schedule.count("orders") == 1
        assert await delivered(broker) == set()
        machine.clock.advance(1000)
        assert await delivered(broker) == {b"a"}
        assert broker.statistics.released == 1

    run(scene())


def test_a_list_goes_by_time_over_all_partitions_page_by_page() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        base_ms = machine.clock.now_ms() + 10_000
        times = [base_ms + (n * 7 % 5) for n in range(11)]
        await schedule(broker, *((b"%d" % n, due_ms) for n, due_ms in enumerate(times)))

        found, after = [], ""
        while page := await broker.schedule.list("orders", count_max=3, after=after):
            found += page
            after = page[-1].cursor

        assert [each.due_ms for each in found] == sorted(times)
        assert {each.value for each in found} == {b"%d" % n for n in range(11)}

    run(scene())


def test_messages_are_cancelled_moved_and_released_by_id() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        now_ms = machine.clock.now_ms()
        ids = await schedule(broker, *((value, now_ms + 1000) for value in (b"a", b"b", b"c")))

        cancelled = await broker.schedule.cancel("orders", [ids[0], ids[0], "5-s1-1", "rubbish"])
        assert cancelled[0] is None
        assert [type(each) for each in cancelled[2:]] == [MessageNotFound, InvalidRequest]
        assert await broker.schedule.release("orders", [ids[1]]) == [None]
        assert await broker.schedule.move("orders", [ids[2]], now_ms + 9000) == [None]

        assert await delivered(broker) == {b"b"}
        machine.clock.advance(2000)
        assert await delivered(broker) == {b"b"}
        assert isinstance((await broker.schedule.release("orders", [ids[1]]))[0], MessageNotFound)
        machine.clock.advance(7000)
        assert await delivered(broker) == {b"b", b"c"}

    run(scene())


def test_a_message_is_not_moved_to_where_its_life_is_over() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        due_ms = machine.clock.now_ms() + 1_000
        results = await broker.messages.publish(
            "orders",
            [
                NewMessage(value=each, partition=0, deliver_at_ms=due_ms, expires_at_ms=expires_ms)
                for each, expires_ms in ((b"short", due_ms + 500), (b"long", due_ms + 501))
            ],
        )
        ids = [each.id for each in results if isinstance(each, Published)]

        refused, moved = await broker.schedule.move("orders", ids, due_ms + 500)

        assert isinstance(refused, InvalidRequest)
        assert ids[0] in str(refused)
        assert moved is None
        short, long = await broker.schedule.list("orders")
        assert (short.value, short.due_ms) == (b"short", due_ms)
        assert (long.value, long.due_ms) == (b"long", due_ms + 500)

    run(scene())


def test_all_messages_that_wait_are_cancelled_at_once() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        due_ms = machine.clock.now_ms() + 1000
        await schedule(broker, *((b"%d" % n, due_ms + n) for n in range(5)))

        assert await broker.schedule.clear("orders") == 5
        assert await broker.schedule.clear("orders") == 0

        await schedule(broker, (b"later", due_ms))
        machine.clock.advance(2000)
        assert await delivered(broker) == {b"later"}

    run(scene())


def test_messages_that_are_just_released_are_in_the_log_when_the_rest_is_cancelled() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        due_ms = machine.clock.now_ms() + 1000
        await schedule(broker, (b"a", due_ms), (b"b", due_ms + 9000), (b"c", due_ms))
        machine.clock.advance(1000)

        cancelled = await broker.schedule.clear("orders")

        assert await broker.schedule.count("orders") == 0
        assert cancelled + len(await delivered(broker)) == 3

    run(scene())


def test_what_cannot_be_asked_for_is_refused() -> None:
    async def scene() -> None:
        broker = await started()

        with pytest.raises(TopicNotFound):
            await broker.schedule.list("nothing")
        with pytest.raises(InvalidRequest):
            await broker.schedule.list("orders", count_max=1001)
        with pytest.raises(InvalidRequest):
            await broker.schedule.list("orders", after="yesterday")
        with pytest.raises(InvalidRequest):
            await broker.schedule.move("orders", ["0-s1-1"], -1)

    run(scene())


def test_an_idempotency_key_gives_the_first_result_also_for_scheduled_messages() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        due_ms = machine.clock.now_ms() + 1000
        message = NewMessage(value=b"a", idempotency_key="k", deliver_at_ms=due_ms)

        (first,) = await broker.messages.publish("orders", [message])
        machine.clock.advance(1000)
        assert await delivered(broker) == {b"a"}
        (again,) = await broker.messages.publish("orders", [message])

        assert isinstance(first, Published)
        assert isinstance(again, Published)
        assert again.is_duplicate
        assert (again.id, again.deliver_at_ms) == (first.id, due_ms)

    run(scene())


def test_the_key_of_a_cancelled_message_is_free_again() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        due_ms = machine.clock.now_ms() + 3_600_000
        later = NewMessage(value=b"a", idempotency_key="k", deliver_at_ms=due_ms)
        other = NewMessage(value=b"c", idempotency_key="l", deliver_at_ms=due_ms, partition=0)
        (first, kept) = await broker.messages.publish("orders", [later, other])
        assert isinstance(first, Published)
        assert isinstance(kept, Published)

        assert await broker.schedule.cancel("orders", [first.id]) == [None]
        now = NewMessage(value=b"b", idempotency_key="k")
        (second,) = await broker.messages.publish("orders", [now])
        (third,) = await broker.messages.publish("orders", [other])
        reborn = await started(machine)
        (again,) = await reborn.messages.publish("orders", [now])

        assert isinstance(second, Published)
        assert not second.is_duplicate
        assert second.offset is not None
        assert isinstance(third, Published)
        assert third.is_duplicate
        assert isinstance(again, Published)
        assert (again.is_duplicate, again.id) == (True, second.id)

    run(scene())
