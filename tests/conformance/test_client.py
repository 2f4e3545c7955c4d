"""The Python client on a running node: both faces, leases that are kept, nodes that go away."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.client import AsyncClient, BufferLimits, Client, LeasedMessage, Publication
from penstock.errors import InvalidRequest, LeaseExpired, TopicNotFound, Unavailable
from tests.kafka_clients import unique, wait_until
from tests.processes import NodeProcess

# Long enough for a busy machine to renew in time, short enough to see that it did.
# A machine may be too slow to renew the first of them in time, but not the last.
LEASES_S = (1.0, 5.0, 25.0)


@pytest.fixture
def client(node: NodeProcess) -> Iterator[Client]:
    with Client(node.http_url) as opened:
        yield opened


def receive_one(client: Client, topic: str, group: str = "billing") -> LeasedMessage:
    (message,) = client.receive(topic, group, wait_s=10, count_max=1)
    return message


def test_what_is_published_is_received_as_it_was(client: Client) -> None:
    topic = unique("orders")
    published = client.publish(
        topic, b"\xff\x00", key="anna", headers={"source": "web"}, priority=7
    )

    message = receive_one(client, topic)

    assert (message.id, message.key, message.value) == (published.id, b"anna", b"\xff\x00")
    assert ("source", b"web") in message.headers
    assert (message.topic, message.group, message.attempt) == (topic, "billing", 1)


def test_values_that_are_neither_bytes_nor_text_travel_as_json(client: Client) -> None:
    topic = unique("orders")
    client.publish(topic, {"total": 12})

    message = receive_one(client, topic)

    assert message.json() == {"total": 12}
    assert message.text() == '{"total":12}'


def test_a_message_is_acked_for_good_however_often_the_ack_comes(client: Client) -> None:
    topic = unique("orders")
    client.publish(topic, "tea")
    message = receive_one(client, topic)
    client.ack(message)

    client.ack(message)
    with pytest.raises(LeaseExpired):
        client.nack(message)
    assert client.receive(topic, "billing") == []


def test_a_group_is_called_as_it_is_written(client: Client) -> None:
    topic = unique("orders")
    client.publish(topic, "tea")
    group = "team/orders ü%2F?"

    client.ack(receive_one(client, topic, group=group))

    assert client.groups.get(topic, group).totals.unsettled == 0
    assert [each.name for each in client.groups.list(topic)] == [group]


def test_a_message_that_is_given_back_comes_again(client: Client) -> None:
    topic = unique("orders")
    client.publish(topic, "tea")
    client.nack(receive_one(client, topic), delay_s=0, reason="the kettle is cold")

    assert receive_one(client, topic).attempt == 2


def test_a_message_that_was_not_begun_comes_again_as_if_it_had_not_been_out(
    client: Client,
) -> None:
    topic = unique("orders")
    client.publish(topic, "tea")
    client.give_back(receive_one(client, topic), reason="closing time")

    assert receive_one(client, topic).attempt == 1


def test_a_rejected_message_goes_to_the_dead_letters(client: Client) -> None:
    topic = unique("orders")
    client.publish(topic, "tea")
    client.reject(receive_one(client, topic), reason="not an order")

    wait_until(lambda: f"{topic}.dlq" in [each.name for each in client.topics()], "it is there")
    assert receive_one(client, f"{topic}.dlq").value == b"tea"


def test_receipts_of_a_batch_are_refused_one_by_one(client: Client) -> None:
    topic = unique("orders")
    results = client.publish_batch(topic, [Publication(value=str(n)) for n in range(3)])
    assert len(results) == 3
    messages = client.receive(topic, "billing", wait_s=10)
    client.nack(messages[1], delay_s=60)

    (refusal,) = client.ack_batch(messages)

    assert refusal.message is messages[1]
    assert isinstance(refusal.error, LeaseExpired)


def test_messages_come_in_exchange_for_those_that_are_done(client: Client) -> None:
    topic = unique("orders")
    client.publish_batch(topic, [Publication(value=str(number)) for number in range(30)])
    seen: list[str] = []

    exchange = client.ack_and_receive(topic, "billing", [], wait_s=10)
    while exchange.messages:
        seen += [each.text() for each in exchange.messages]
        exchange = client.ack_and_receive(topic, "billing", exchange.messages, count_max=7)
        assert exchange.refusals == []

    assert sorted(map(int, seen)) == list(range(30))
    assert client.groups.get(topic, "billing").totals.unsettled == 0


def test_an_exchange_tells_which_acks_were_refused(client: Client) -> None:
    topic = unique("orders")
    client.publish(topic, "tea")
    message = receive_one(client, topic)
    client.nack(message, delay_s=0)

    exchange = client.ack_and_receive(topic, "billing", [message], wait_s=10)

    (refusal,) = exchange.refusals
    assert refusal.message is message
    assert isinstance(refusal.error, LeaseExpired)
    assert [each.attempt for each in exchange.messages] == [2]


def test_several_topics_are_received_from_at_once(client: Client) -> None:
    first, second = unique("orders"), unique("orders")
    client.publish(first, "a")
    client.publish(second, "b")

    received: set[bytes | None] = set()
    for _ in range(2):
        messages = client.receive([first, second], "billing", wait_s=10)
        received |= {each.value for each in messages}
        assert client.ack_batch(messages) == []
    assert received == {b"a", b"b"}


def test_messages_of_several_topics_come_in_exchange_for_those_that_are_done(
    client: Client,
) -> None:
    topics = [unique("orders"), unique("orders")]
    for topic in topics:
        client.publish_batch(topic, [Publication(value=str(number)) for number in range(10)])
    seen: list[tuple[str, str]] = []

    exchange = client.ack_and_receive(topics, "billing", [], wait_s=10)
    while exchange.messages:
        seen += [(each.topic, each.text()) for each in exchange.messages]
        exchange = client.ack_and_receive(topics, "billing", exchange.messages, count_max=3)
        assert exchange.refusals == []

    assert sorted(seen) == sorted((topic, str(number)) for topic in topics for number in range(10))
    assert [client.groups.get(each, "billing").totals.unsettled for each in topics] == [0, 0]


def test_an_exchange_acks_messages_in_the_topic_that_they_came_from(client: Client) -> None:
    first, second = unique("orders"), unique("orders")
    client.publish(first, "tea")
    client.publish(second, "milk")
    tea = receive_one(client, first)

    exchange = client.ack_and_receive(second, "billing", [tea], wait_s=10)

    assert exchange.refusals == []
    assert [each.text() for each in exchange.messages] == ["milk"]
    assert client.groups.get(first, "billing").totals.unsettled == 0


def test_an_exchange_takes_no_messages_of_another_group(client: Client) -> None:
    topic = unique("orders")
    client.publish(topic, "tea")
    message = receive_one(client, topic)

    with pytest.raises(InvalidRequest, match="received for group billing, not audit"):
        client.ack_and_receive(topic, "audit", [message])


def test_a_buffered_producer_keeps_the_order_and_tells_of_each(client: Client) -> None:
    topic = unique("orders")
    client.create_topic(topic, partitions=1)
    limits = BufferLimits(batch_count_max=100, waiting_max=150)
    with client.producer(topic, limits=limits) as producer:
        futures = [producer.send(str(number)) for number in range(1_000)]
        refused = producer.send("far", partition=7)
        producer.flush()
        assert all(each.done() for each in futures)

    assert [each.result(0).offset for each in futures] == list(range(1_000))
    with pytest.raises(TopicNotFound):
        refused.result(0)
    with pytest.raises(InvalidRequest, match="closed"):
        producer.send("late")


def test_a_lease_is_renewed_until_the_message_is_settled(client: Client) -> None:
    def is_kept(lease_s: float) -> bool:
        topic = unique("orders")
        client.publish(topic, "slow")
        with client.subscribe(topic, "billing", lease_s=lease_s) as messages:
            message = next(messages)
            # Real time is the subject here: twice the lease, without an answer.
            time.sleep(2 * lease_s)
            if client.receive(topic, "billing"):
                return False
            client.ack(message)
        return client.receive(topic, "billing") == []

    assert any(map(is_kept, LEASES_S))


def test_a_loop_that_is_closed_gives_back_what_it_has_not_handed_out(client: Client) -> None:
    topic = unique("orders")
    client.publish_batch(topic, [Publication(value=str(n)) for n in range(5)])
    with client.subscribe(topic, "billing", count_max=5) as messages:
        client.ack(next(messages))

    received = client.receive(topic, "billing", wait_s=10)

    assert [each.attempt for each in received] == [1, 1, 1, 1]


def test_a_loop_can_be_closed_from_another_thread(client: Client) -> None:
    topic = unique("orders")
    client.publish(topic, "only")
    messages = client.subscribe(topic, "billing")
    seen = []

    def work() -> None:
        for message in messages:
            seen.append(message)
            client.ack(message)
            messages.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(120)

    assert not thread.is_alive()
    assert len(seen) == 1


def test_topics_are_created_changed_and_deleted(client: Client) -> None:
    topic = unique("orders")
    client.create_topic(topic, partitions=2, settings={"retention.ms": "1000"})
    changed = client.alter_topic(topic, settings={"retention.ms": None}, partitions=3)

    assert changed.settings["retention.ms"].is_default
    assert len(client.topic(topic).partitions) == 3
    client.delete_topic(topic)
    with pytest.raises(TopicNotFound):
        client.topic(topic)


def test_another_node_is_asked_when_one_is_gone(node: NodeProcess) -> None:
    with Client(["http://127.0.0.1:1", node.http_url]) as client:
        assert client.publish(unique("orders"), "tea").offset == 0
    with Client("http://127.0.0.1:1", retry_s=0.2) as client, pytest.raises(Unavailable):
        client.topics()


def test_a_client_survives_the_restart_of_its_node(fresh_node: NodeProcess) -> None:
    with Client(fresh_node.http_url, retry_s=60) as client:
        client.publish("orders", "before")
        fresh_node.kill()
        restart = threading.Thread(target=fresh_node.start)
        restart.start()
        client.publish("orders", "after")
        restart.join()

        values = [each.value for each in client.receive("orders", "billing", wait_s=10)]
    assert values == [b"before", b"after"]


def test_the_asynchronous_face_does_the_same(node: NodeProcess) -> None:
    topic = unique("orders")

    async def scenario() -> list[str]:
        async with AsyncClient(node.http_url) as client:
            async with client.producer(topic) as producer:
                futures = [await producer.send(str(number)) for number in range(20)]
            assert len({(await each).id for each in futures}) == 20
            seen = []
            async with client.subscribe(topic, "billing", count_max=7) as messages:
                async for message in messages:
                    seen.append(message.text())
                    await client.ack(message)
                    if len(seen) == 20:
                        break
            return seen

    assert sorted(map(int, asyncio.run(scenario()))) == list(range(20))


def test_messages_come_in_exchange_for_those_that_are_done_on_a_loop_too(
    node: NodeProcess,
) -> None:
    async def scenario() -> list[str]:
        topic = unique("orders")
        seen: list[str] = []
        async with AsyncClient(node.http_url) as client:
            for number in range(3):
                await client.publish(topic, str(number))
            exchange = await client.ack_and_receive(topic, "billing", [], wait_s=10, count_max=2)
            while exchange.messages:
                seen += [each.text() for each in exchange.messages]
                exchange = await client.ack_and_receive(
                    topic, "billing", exchange.messages, count_max=2
                )
        return seen

    assert sorted(asyncio.run(scenario())) == ["0", "1", "2"]


def test_leases_are_renewed_on_a_loop_too(node: NodeProcess) -> None:
    async def is_kept(lease_s: float) -> bool:
        topic = unique("orders")
        async with AsyncClient(node.http_url) as client:
            await client.publish(topic, "slow")
            messages = client.subscribe(topic, "billing", lease_s=lease_s)
            message = await anext(messages)
            await asyncio.sleep(2 * lease_s)
            if await client.receive(topic, "billing"):
                return False
            await client.ack(message)
            return await client.receive(topic, "billing") == []

    assert any(asyncio.run(is_kept(lease_s)) for lease_s in LEASES_S)


def test_a_loop_whose_wait_is_cancelled_again_and_again_costs_no_attempt(
    node: NodeProcess,
) -> None:
    topic, count = unique("orders"), 200

    async def publish(client: AsyncClient) -> None:
        for number in range(count):
            await client.publish(topic, str(number))

    async def scenario() -> list[int]:
        attempts: list[int] = []
        async with AsyncClient(node.http_url) as client, asyncio.timeout(120):
            await client.create_topic(topic, partitions=1)
            publishing = asyncio.create_task(publish(client))
            async with client.subscribe(topic, "billing", count_max=3) as messages:
                while len(attempts) < count:
                    # From less than an answer takes to more.
                    wait_s = len(attempts) % 7 / 1000
                    try:
                        message = await asyncio.wait_for(anext(messages), 0.001 + wait_s)
                    except TimeoutError:
                        continue
                    attempts.append(message.attempt)
                    await client.ack(message)
            await publishing
        return attempts

    assert asyncio.run(scenario()) == [1] * count


def test_an_exchange_without_a_topic_is_refused_in_words(client: Client) -> None:
    with pytest.raises(InvalidRequest, match=r"at `\$\.topics`"):
        client.ack_and_receive([], "group", [])


def test_a_message_that_cannot_be_sent_is_refused_when_it_is_handed_over(client: Client) -> None:
    topic = unique("orders")
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    with client.producer(topic, limits=BufferLimits(linger_s=60)) as producer:
        first = producer.send("first")
        for value in (object(), nested, float("nan")):
            with pytest.raises(InvalidRequest, match="cannot be written as JSON"):
                producer.send(value)
        with pytest.raises(UnicodeEncodeError):
            producer.send("\ud800")
        last = producer.send("last")

    assert [told.result().offset for told in (first, last)] == [0, 1]


def test_a_producer_sends_values_as_they_were_when_they_were_handed_over(client: Client) -> None:
    topic = unique("orders")
    order, headers, note = {"number": 0}, {"number": "0"}, bytearray(b"0")
    with client.producer(topic, limits=BufferLimits(linger_s=60)) as producer:
        producer.send(order, headers=headers)
        producer.send(note)
        order["number"], headers["number"], note[0] = 1, "1", ord("1")

    first, second = client.receive(topic, "billing", wait_s=10)

    assert (first.json(), second.value) == ({"number": 0}, b"0")
    assert ("number", b"0") in first.headers


def test_an_asynchronous_client_may_be_used_by_one_event_loop_after_the_other(
    node: NodeProcess,
) -> None:
    topic = unique("orders")
    client = AsyncClient(node.http_url)

    async def scenario(text: str) -> list[str]:
        await client.publish(topic, text)
        messages = client.subscribe(topic, "billing", lease_s=1)
        message = await anext(messages)
        # It is kept for longer than its lease.
        await asyncio.sleep(1.5)
        await client.ack(message)
        await messages.close()
        return [message.text()]

    assert asyncio.run(scenario("tea")) == ["tea"]
    assert asyncio.run(scenario("milk")) == ["milk"]
    asyncio.run(client.close())


FORKING = """
import os, sys, time
from penstock.client import Client

client = Client(sys.argv[1])
client.publish(sys.argv[2], "first", key="anna")
client.publish(sys.argv[2], "first")
subscription = client.subscribe(sys.argv[2], "readers", lease_s=1)
held = next(subscription)
producer = client.producer(sys.argv[2])
name, children = "parent", []
for number in range(2):
    children.append(os.fork())
    if not children[-1]:
        name = f"child {number}"
        break
for number in range(20):
    client.publish(sys.argv[2], f"{name} {number} with key", key="anna")
    client.publish(sys.argv[2], f"{name} {number}")
    told = producer.send(f"{name} {number} produced")
producer.close()
told.result()
if name != "parent":
    # What the parent has received is not handed out here, and leases are kept here, too.
    message = next(subscription)
    assert not message.text().startswith("first"), message
    time.sleep(1.5)
    client.ack(message)
    os._exit(0)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
client.ack(held)
"""


def test_a_forked_process_goes_on_with_a_client_of_its_own(node: NodeProcess) -> None:
    topic = unique("orders")
    with Client(node.http_url) as client:
        client.create_topic(topic, partitions=1)

        program = [sys.executable, "-c", FORKING, node.http_url, topic]
        done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)

        assert (done.returncode, done.stderr) == (0, "")
        received = client.receive(topic, "others", count_max=1000)
    wanted = [
        f"{name} {number}{way}"
        for name in ("parent", "child 0", "child 1")
        for number in range(20)
        for way in ("", " with key", " produced")
    ]
    assert sorted(message.text() for message in received) == sorted(["first", "first", *wanted])


FORKING_LOOP = """
import asyncio, os, sys
from penstock.client import AsyncClient

client = AsyncClient(sys.argv[1], wait_s=5.0, retry_s=0.0)

def in_child(text):
    child = os.fork()
    if not child:
        asyncio.run(client.publish(sys.argv[2], text))
        os._exit(0)
    return os.waitpid(child, 0)[1]

async def in_parent():
    await client.publish(sys.argv[2], "before")
    assert in_child("in a child") == 0
    await client.publish(sys.argv[2], "after")
    assert in_child("in another child") == 0
    await client.publish(sys.argv[2], "in the end")
    await client.close()

asyncio.run(in_parent())
"""


def test_a_forked_process_leaves_the_connections_of_a_loop_to_its_parent(node: NodeProcess) -> None:
    topic = unique("orders")
    with Client(node.http_url) as client:
        client.create_topic(topic, partitions=1)

        program = [sys.executable, "-c", FORKING_LOOP, node.http_url, topic]
        done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)

        assert (done.returncode, done.stderr) == (0, "")
        received = client.receive(topic, "others", count_max=10)
    texts = [message.text() for message in received]
    assert texts == ["before", "in a child", "after", "in another child", "in the end"]
