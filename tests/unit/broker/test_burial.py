"""Messages that have failed too often go to the dead letters, once."""

import asyncio
from typing import Any

import msgspec
import pytest

from penstock.broker import Broker, Message, Nack, Reject
from penstock.broker.burial import Burial
from penstock.delivery import Dying
from penstock.errors import PenstockError, Unavailable
from penstock.ids import TopicPartition
from penstock.record import Record
from tests.unit.broker.brokers import started
from tests.unit.broker.test_queues import GROUP, TOPIC, publish, receive, started_with
from tests.unit.cluster.workplaces import LoopClock, SimMachine, records, run

DLQ = "orders.dlq"


def dead_letters(broker: Broker, partition: int = 0) -> list[Record]:
    return records(broker.partition(TopicPartition(DLQ, partition)))


async def settled(broker: Broker, partition: int = 0, group: str = GROUP) -> None:
    """Wait until nothing is dying."""
    queue = broker.partition(TopicPartition(TOPIC, partition)).queue
    while queue.groups[group].dying:  # noqa: ASYNC110 (nothing tells of it)
        await asyncio.sleep(0.01)


async def reject(broker: Broker, messages: list[Message], reason: str = "bad") -> None:
    items = [Reject(message.receipt, reason) for message in messages]
    assert await broker.queues.reject(TOPIC, GROUP, items) == [None] * len(messages)


def headers_of(record: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def test_a_message_goes_to_the_dead_letters_after_its_last_attempt() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", partition=1)
        for attempt in range(1, 5):
            (message,) = await receive(broker, wait_ms=60_000)
            assert message.attempt == attempt
            first_ms = message.first_delivered_ms
            nack = Nack(message.receipt, delay_ms=0, reason=f"failure {attempt}")
            await broker.queues.nack(TOPIC, GROUP, [nack])
        await settled(broker, 1)

        (record,) = dead_letters(broker, 1)
        topic_id = broker.metadata.topic(TOPIC).topic_id
        assert record.value == b"a"
        assert headers_of(record) == {
            "penstock-dlq-id": "1-0",
            "penstock-dlq-topic": "orders",
            "penstock-dlq-partition": "1",
            "penstock-dlq-offset": "0",
            "penstock-dlq-timestamp": "0",
            "penstock-dlq-group": GROUP,
            "penstock-dlq-attempts": "4",
            "penstock-dlq-reason": "attempts exhausted",
            "penstock-dlq-error": "failure 4",
            "penstock-idempotency-key": f"{topic_id}/1/0/{GROUP}/{first_ms}",
        }
        assert await receive(broker, wait_ms=70_00) == []
        status = await broker.queues.status(TOPIC, GROUP)
        assert status.unsettled == 0
        assert broker.metadata.topic(DLQ).settings["retention.ms"] == "-1"

    run(scene())


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_message_whose_last_lease_ends_goes_there_although_nobody_receives(
    is_restarted: bool,
) -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker = await started(machine)
        await publish(broker, b"a")
        for _ in range(4):
            await receive(broker, wait_ms=60_000, lease_ms=1_000)
        if is_restarted:
            # A delivery counts when its lease is committed, soon after it went out.
            await asyncio.sleep(0.5)
            machine.disk.kill()
            broker = await started(machine)
        assert DLQ not in broker.metadata.topics
        await asyncio.sleep(3)

        assert [record.value for record in dead_letters(broker)] == [b"a"]

    run(scene())


def test_a_rejected_message_goes_there_at_once_with_its_reason() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        await reject(broker, (await receive(broker))[:1], "not an order")
        await settled(broker)

        (record,) = dead_letters(broker)

        headers = headers_of(record)
        assert headers["penstock-dlq-reason"] == "rejected"
        assert headers["penstock-dlq-error"] == "not an order"
        assert headers["penstock-dlq-attempts"] == "1"

    run(scene())


def test_dead_letters_make_do_with_fewer_replicas_where_nodes_have_gone() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        topic = broker.metadata.topics[TOPIC]
        # As if the topic had been created when there were three nodes.
        former = [
            msgspec.structs.replace(each, members=(*each.members, (8, 1), (9, 1)))
            for each in topic.replicas
        ]
        broker.metadata.topics[TOPIC] = msgspec.structs.replace(topic, replicas=former)

        await reject(broker, await receive(broker))
        await settled(broker)

        assert [record.value for record in dead_letters(broker)] == [b"a"]

    run(scene())


def test_many_dead_letters_are_moved_in_order() -> None:
    async def scene() -> None:
        broker = await started_with(*(str(number).encode() for number in range(500)))
        await reject(broker, await receive(broker, 500))
        await settled(broker)

        values = [record.value for record in dead_letters(broker)]

        assert values == [str(number).encode() for number in range(500)]

    run(scene())


def test_a_message_that_dies_just_when_the_last_one_is_buried_is_not_overlooked() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b")
        await reject(broker, await receive(broker, 1))
        await settled(broker)
        queue = broker.partition(TopicPartition(TOPIC, 0)).queue
        await asyncio.sleep(1)

        def die() -> None:
            queue.groups[GROUP].dying[1] = Dying(1, "bad", is_rejected=True)
            broker._burial._noticed(queue.place, GROUP, False)

        broker._burial._noticed(queue.place, GROUP, False)
        asyncio.get_running_loop().call_soon(die)
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await settled(broker)

        assert [record.value for record in dead_letters(broker)] == [b"a", b"b"]

    run(scene())


def test_nobody_waits_for_the_dead_letters_of_a_topic_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        broker = await started_with(b"a")

        async def fail(*_: object) -> None:
            raise Unavailable("nobody is there")

        monkeypatch.setattr(Burial, "_grave", fail)
        await reject(broker, await receive(broker, 1))
        await broker.topics.delete(TOPIC)
        await asyncio.sleep(20)

        assert not broker._burial._tasks

    run(scene())


@pytest.mark.parametrize("is_copied", [True, False])
def test_a_crash_before_the_message_is_settled_neither_loses_nor_doubles_its_copy(
    is_copied: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker = await started(machine)
        await publish(broker, b"a", b"b")
        queue = broker.partition(TopicPartition(TOPIC, 0)).queue

        async def crash(*_: Any) -> None:
            raise PenstockError("the node stops here")

        if is_copied:
            monkeypatch.setattr(queue, "dead_lettered", crash)
        else:
            monkeypatch.setattr(broker.calls, "ask", _without_burials(broker))
        await reject(broker, await receive(broker))
        await asyncio.sleep(3)
        assert len(queue.groups[GROUP].dying) == 2
        machine.disk.kill()
        monkeypatch.undo()

        reborn = await started(machine)
        await settled(reborn)

        assert [record.value for record in dead_letters(reborn)] == [b"a", b"b"]

    run(scene())


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_message_that_dies_again_after_its_group_began_anew_has_another_copy(
    is_deleted: bool, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        machine = SimMachine(clock=LoopClock())
        broker = await started(machine)
        await publish(broker, b"a")
        await reject(broker, await receive(broker))
        await settled(broker)
        assert (await broker.dead_letters.purge(TOPIC)).purged == 1
        await asyncio.sleep(1)
        if is_deleted:
            await broker.queues.delete_group(TOPIC, GROUP)
        else:
            await broker.queues.reset_group(TOPIC, GROUP, to="earliest")
        if is_killed:
            monkeypatch.setattr(broker.calls, "ask", _without_burials(broker))

        await reject(broker, await receive(broker), "bad again")
        if is_killed:
            machine.disk.kill()
            broker = await started(machine)
        await settled(broker)

        (letter,) = await broker.dead_letters.search(TOPIC)
        assert letter.error == "bad again"

    run(scene())


def test_a_message_that_dies_again_while_its_first_copy_is_made_has_another_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        is_answered = asyncio.Event()
        ask = broker.calls.ask

        async def answer_late(place: Any, verb: str, *arguments: Any, **options: Any) -> Any:
            answer = await ask(place, verb, *arguments, **options)
            if verb == "queue.bury":
                await is_answered.wait()
            return answer

        monkeypatch.setattr(broker.calls, "ask", answer_late)
        await reject(broker, await receive(broker))
        await asyncio.sleep(1)
        await broker.queues.reset_group(TOPIC, GROUP, to="earliest")
        await reject(broker, await receive(broker), "bad again")

        is_answered.set()
        await settled(broker)

        letters = await broker.dead_letters.search(TOPIC)
        assert [letter.error for letter in letters] == ["bad", "bad again"]

    run(scene())


def _without_burials(broker: Broker) -> Any:
    ask = broker.calls.ask

    async def refuse(place: Any, verb: str, *arguments: Any, **options: Any) -> Any:
        if verb == "queue.bury":
            raise PenstockError("the node stops here")
        return await ask(place, verb, *arguments, **options)

    return refuse


def test_a_burial_of_an_older_leader_is_refused() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        await reject(broker, await receive(broker))
        await settled(broker)
        burial = broker._burial
        burial._terms = dict.fromkeys(burial._terms, 100)
        await publish(broker, b"b")

        await reject(broker, await receive(broker))
        await asyncio.sleep(5)

        assert [record.value for record in dead_letters(broker)] == [b"a"]

    run(scene())


def test_a_late_burial_of_an_older_leader_is_not_doubled_by_a_new_leader_of_the_dead_letters() -> (
    None
):
    async def scene() -> None:
        broker = await started_with(b"a")
        requests: list[Any] = []
        bury = broker.calls._verbs["queue.bury"].run

        async def note(request: Any) -> Any:
            requests.append(request)
            return await bury(request)

        verb = broker.calls._verbs["queue.bury"]
        broker.calls._verbs["queue.bury"] = verb._replace(run=note)
        await reject(broker, await receive(broker))
        await settled(broker)
        # Whoever begins to lead the dead letters has heard of no term yet.
        broker._burial._terms.clear()

        await bury(requests[0])

        assert [record.value for record in dead_letters(broker)] == [b"a"]

    run(scene())
