"""Single messages: where they go, what they become, and which of them fail."""

import asyncio
import re
import uuid
from collections import Counter
from typing import Any

import msgspec
import pytest

from penstock.broker import Broker, NewMessage, NewTopic, Published
from penstock.client.publications import IdempotencyKeys
from penstock.cluster.commands import RegisterNode
from penstock.config import Address, NodeOptions
from penstock.errors import (
    BatchTooLarge,
    Corruption,
    InvalidBatch,
    InvalidRequest,
    InvalidTimestamp,
    NotLeader,
    OffsetOutOfRange,
    PenstockError,
    TopicNotFound,
)
from penstock.ids import TopicPartition
from penstock.record import Record, encode_values, partition_of_key
from tests.processes import free_ports
from tests.unit.broker.brokers import flip_a_byte, started
from tests.unit.cluster.workplaces import DATA, PLACE, SimMachine, run


async def publish(broker: Broker, *messages: NewMessage, topic: str = "orders") -> list[Published]:
    results = await broker.messages.publish(topic, messages)
    return [result for result in results if isinstance(result, Published)]


async def read(broker: Broker, place: TopicPartition = PLACE, offset: int = 0) -> list[Record]:
    return await broker.messages.read(place, offset=offset, count_max=100, bytes_max=1 << 20)


def test_a_message_is_read_as_it_was_published() -> None:
    async def scene() -> None:
        broker = await started()
        headers = (("trace", b"1"), ("none", None))

        (found,) = await publish(
            broker,
            NewMessage(value=b"v", key=b"k", headers=headers, partition=0, timestamp=5),
        )

        assert found == Published(id="0-0", partition=0, offset=0, timestamp=5)
        assert await read(broker) == [Record(0, 5, b"k", b"v", headers)]

    run(scene())


def test_a_damaged_batch_is_not_shown_as_records() -> None:
    async def scene() -> None:
        broker = await started()
        await publish(broker, NewMessage(value=b"one hundred", partition=0))
        await publish(broker, NewMessage(value=b"two hundred", partition=0))

        flip_a_byte(broker, PLACE)

        with pytest.raises(Corruption, match="offset 0 of orders-0 fails its checksum"):
            await read(broker)
        assert [record.value for record in await read(broker, offset=1)] == [b"two hundred"]

    run(scene())


def test_messages_that_are_published_at_the_same_time_share_batches() -> None:
    async def scene() -> None:
        broker = await started()
        bad = NewMessage(value=b"x" * (1 << 22), partition=0)
        good = [NewMessage(value=b"%d" % number, partition=0) for number in range(50)]

        results = await asyncio.gather(*(publish(broker, each) for each in (*good, bad)))

        assert results.pop() == []
        records = {record.offset: record.value for record in await read(broker)}
        assert [records[each.offset or 0] for (each,) in results] == [each.value for each in good]
        assert broker.statistics.records_in == 50
        assert broker.statistics.batches_in < 10

    run(scene())


def test_what_a_message_says_about_its_delivery_travels_in_headers() -> None:
    async def scene() -> None:
        broker = await started()

        await publish(
            broker,
            NewMessage(
                value=None,
                partition=0,
                priority=9,
                expires_at_ms=2**41,
                headers=(("penstock-priority", b"1"),),
            ),
        )

        assert (await read(broker))[0].headers == (
            ("penstock-priority", b"9"),
            ("penstock-expires-at", str(2**41).encode()),
        )

    run(scene())


def test_values_alone_become_messages_whose_offsets_follow_each_other() -> None:
    async def scene() -> None:
        broker = await started()
        await publish(broker, NewMessage(value=b"first", partition=0))

        runs = await broker.messages.publish_values("orders", [b"a", b"penstock-priority"])

        assert runs is not None
        (run_of,) = runs
        assert run_of.error is None
        place = TopicPartition("orders", run_of.partition)
        found = await read(broker, place, run_of.offset or 0)
        assert [each.value for each in found] == [b"a", b"penstock-priority"]
        assert {each.timestamp for each in found} == {run_of.timestamp}

    run(scene())


def test_values_of_which_one_may_be_refused_are_left_to_the_closer_look() -> None:
    async def scene() -> None:
        broker = await started()
        await broker.topics.create(NewTopic("compacted", settings={"cleanup.policy": "compact"}))

        assert await broker.messages.publish_values("compacted", [b"a"]) is None
        assert await broker.messages.publish_values("orders", [b"a", b"b" * 2_000_000]) is None

    run(scene())


def test_a_message_that_is_too_large_is_told_both_sizes_that_were_compared() -> None:
    async def scene() -> None:
        broker = await started()
        await broker.topics.change_settings("orders", {"max.message.bytes": "2000"}, [])

        (taken, refused) = await broker.messages.publish(
            "orders", [NewMessage(value=bytes(1899)), NewMessage(value=bytes(1900))]
        )

        assert isinstance(taken, Published)
        assert isinstance(refused, BatchTooLarge)
        assert [int(each) for each in re.findall(r"\d+", str(refused))] == [2001, 2000]

    run(scene())


def test_a_bad_message_fails_alone() -> None:
    async def scene() -> None:
        broker = await started()
        await broker.topics.change_settings(
            "orders",
            {"max.message.bytes": "2000", "message.timestamp.before.max.ms": "1000"},
            [],
        )
        bad = {
            BatchTooLarge: NewMessage(value=bytes(2000)),
            TopicNotFound: NewMessage(value=b"", partition=2),
            InvalidTimestamp: NewMessage(value=b"", timestamp=1),
            InvalidRequest: NewMessage(value=b"", priority=10),
        }

        results = await broker.messages.publish(
            "orders",
            [
                NewMessage(value=b"first", partition=0),
                *bad.values(),
                NewMessage(value=b"last", partition=0),
            ],
        )

        assert [type(result) for result in results] == [Published, *bad, Published]
        assert [record.value for record in await read(broker)] == [b"first", b"last"]

    run(scene())


def test_a_compacted_topic_needs_keys() -> None:
    async def scene() -> None:
        broker = await started()
        await broker.topics.change_settings("orders", {"cleanup.policy": "compact"}, [])

        results = await broker.messages.publish(
            "orders", [NewMessage(value=b"a"), NewMessage(value=b"b", key=b"k")]
        )

        assert [type(result) for result in results] == [InvalidBatch, Published]

    run(scene())


def test_a_key_decides_on_the_partition_and_messages_without_one_take_turns() -> None:
    async def scene() -> None:
        broker = await started()
        keys = [str(number).encode() for number in range(20)]

        keyed = await publish(broker, *(NewMessage(value=b"", key=key) for key in keys))
        repeated = await publish(
            broker, *(NewMessage(value=b"", idempotency_key=f"{n}") for n in range(20))
        )
        plain = [(await publish(broker, NewMessage(value=b"")))[0].partition for _ in range(4)]

        assert [found.partition for found in keyed] == [partition_of_key(key, 2) for key in keys]
        assert {found.partition for found in repeated} == {0, 1}
        assert plain in ([0, 1, 0, 1], [1, 0, 1, 0])

    run(scene())


def test_messages_without_a_key_are_spread_evenly_whatever_is_published_beside_them() -> None:
    async def scene() -> None:
        broker = await started()
        await broker.topics.create(NewTopic("beside", partitions=2))

        plain = []
        for _ in range(10):
            plain += await publish(broker, NewMessage(value=b""))
            await publish(broker, NewMessage(value=b"", key=b"k"))
            await publish(broker, NewMessage(value=b""), topic="beside")
            await broker.messages.publish_values("beside", [b""])

        partitions = [each.partition for each in plain]
        assert (partitions.count(0), partitions.count(1)) == (5, 5)

    run(scene())


def test_messages_that_may_go_anywhere_go_where_somebody_leads() -> None:
    async def scene() -> None:
        broker = await started()
        (known,) = broker.metadata.nodes.values()
        away = msgspec.structs.replace(known, node_id=2, incarnation=2)
        await broker.cluster.change(RegisterNode(away))
        await broker.topics.create(NewTopic("partly", assignments=[[2], [1], [2]]))

        alone = [
            await broker.messages.publish("partly", [NewMessage(value=b"x")]) for _ in range(4)
        ]
        runs = await broker.messages.publish_values("partly", [b"x", b"y"])
        (named,) = await broker.messages.publish("partly", [NewMessage(value=b"x", partition=0)])

        assert [each.partition for (each,) in alone if isinstance(each, Published)] == [1] * 4
        assert runs is not None
        assert [(run.partition, run.error) for run in runs] == [(1, None)]
        assert isinstance(named, NotLeader)

    run(scene())


def test_messages_of_the_client_are_spread_evenly_and_a_repeated_one_is_met() -> None:
    async def scene() -> None:
        broker = await started()
        await broker.topics.create(NewTopic("wide", partitions=8))
        keys = IdempotencyKeys()
        messages = [
            NewMessage(value=b"", idempotency_key=keys.next_key("wide")) for _ in range(400)
        ]

        placed = [(await publish(broker, each, topic="wide"))[0] for each in messages]
        again = await publish(broker, *messages[::40], topic="wide")

        assert Counter(each.partition for each in placed) == dict.fromkeys(range(8), 50)
        assert all(each.is_duplicate for each in again)
        assert [each.id for each in again] == [each.id for each in placed[::40]]

    run(scene())


def test_many_values_of_one_publish_are_spread_too() -> None:
    async def scene() -> None:
        broker = await started()

        runs = await broker.messages.publish_values("orders", [b""] * 2_000)
        plain = await publish(broker, *[NewMessage(value=b"")] * 2_000)

        assert runs is not None
        assert sorted((each.partition, each.count) for each in runs) == [(0, 1_000), (1, 1_000)]
        partitions = [each.partition for each in plain]
        assert (partitions.count(0), partitions.count(1)) == (1_000, 1_000)

    run(scene())


def test_a_large_publish_is_cut_into_batches_and_keeps_its_order() -> None:
    async def scene() -> None:
        broker = await started()
        values = [bytes([number]) * 100_000 for number in range(25)]

        results = await publish(broker, *(NewMessage(value=v, partition=0) for v in values))

        assert [result.offset for result in results] == list(range(25))
        assert broker.statistics.batches_in == 3
        found: list[Record] = []
        while len(found) < 25:
            found += await read(broker, offset=len(found))
        assert [record.value for record in found] == values

    run(scene())


@pytest.mark.parametrize(("acks", "offset"), [("none", None), ("leader", 0), ("all", 0)])
def test_who_wants_no_answer_gets_no_offset(acks: str, offset: int | None) -> None:
    async def scene() -> None:
        broker = await started()

        (found,) = await broker.messages.publish(
            "orders",
            [NewMessage(value=b"a", partition=0)],
            acks=acks,  # type: ignore[arg-type]
        )

        assert isinstance(found, Published)
        assert found.offset == offset
        await broker.partition(PLACE).log.wait_applied(2)
        assert [record.value for record in await read(broker)] == [b"a"]

    run(scene())


def test_a_missing_topic_is_created_where_that_is_allowed() -> None:
    async def scene(*, is_allowed: bool) -> list[Published]:
        broker = await started(auto_create_topics=is_allowed)
        return await publish(broker, NewMessage(value=b"a"), topic="new")

    assert len(run(scene(is_allowed=True))) == 1
    with pytest.raises(TopicNotFound):
        run(scene(is_allowed=False))


def test_reading_ends_at_the_bounds() -> None:
    async def scene() -> None:
        broker = await started()
        await publish(broker, *(NewMessage(value=b"a", partition=0, timestamp=t) for t in (5, 9)))

        assert await broker.messages.bounds(PLACE) == (0, 2)
        assert await read(broker, offset=2) == []
        assert [record.offset for record in await read(broker, offset=1)] == [1]
        assert await broker.messages.find_offset(PLACE, time_ms=6) == 1
        assert await broker.messages.find_offset(PLACE, time_ms=10) == 2
        with pytest.raises(OffsetOutOfRange):
            await read(broker, offset=3)
        with pytest.raises(InvalidRequest):
            await broker.messages.read(PLACE, offset=0, count_max=0, bytes_max=1)

    run(scene())


def test_every_node_publishes_and_reads_through_the_leader() -> None:
    asyncio.run(_every_node_publishes_and_reads())


async def _every_node_publishes_and_reads() -> None:
    brokers = await _three_nodes()
    await brokers[0].topics.create(NewTopic("orders", partitions=3, replication_factor=3))

    for broker in brokers:
        results = await _retried(broker, [NewMessage(value=b"v", partition=n) for n in range(3)])
        assert [result.partition for result in results] == [0, 1, 2]

    for broker in brokers:
        for number in range(3):
            place = TopicPartition("orders", number)
            assert [record.value for record in await read(broker, place)] == [b"v"] * 3
            assert await broker.messages.bounds(place) == (0, 3)
    bad = await brokers[1].messages.publish("orders", [NewMessage(value=b"", partition=3)])
    assert isinstance(bad[0], TopicNotFound)
    for broker in brokers:
        await broker.close()


async def _retried(broker: Broker, messages: list[NewMessage]) -> list[Published]:
    """Publish once the node knows the topic and its leaders."""
    changed = asyncio.Event()
    broker.metadata.watch(changed.set)
    while "orders" not in broker.metadata.topics:
        changed.clear()
        await changed.wait()
    results = await broker.messages.publish("orders", messages)
    assert not [result for result in results if isinstance(result, PenstockError)]
    return [result for result in results if isinstance(result, Published)]


async def _three_nodes() -> list[Broker]:
    ports = free_ports(3)
    peers = ",".join(f"{n}=127.0.0.1:{port}" for n, port in enumerate(ports, 1))
    brokers = []
    for number in range(1, 4):
        options = NodeOptions(data_dir=DATA, group_shards=1, node_id=number, peers=peers)
        brokers.append(Broker(options, SimMachine(seed=number).workplace()))
    await asyncio.gather(*(broker.start("127.0.0.1") for broker in brokers))
    await asyncio.gather(
        *(
            broker.register(kafka=Address("127.0.0.1", 9092 + number), http_port=8080 + number)
            for number, broker in enumerate(brokers)
        )
    )
    return brokers


class Chosen(msgspec.Struct):
    """What a node asks of a partition's leader that it has chosen for a message."""

    batch: bytearray
    era: int
    topic: str = "orders"
    partition: int = 0
    acks: str = "all"


def test_a_partition_that_was_chosen_before_the_switch_is_chosen_anew() -> None:
    async def scene() -> None:
        broker, reshard_id = await started(), uuid.uuid4()
        await broker.topics.create(NewTopic("copy", partitions=3))
        await broker.reshards.begin("orders", reshard_id, "copy")
        fence = (await broker.reshards.fence("orders", reshard_id)).fence
        await broker.reshards.switch(
            "orders", reshard_id, fence=fence, former_name="former", positions={}
        )

        async def ask(era: int) -> Any:
            request = Chosen(encode_values([b"v"], 1), era)
            return await broker.calls.ask(PLACE, "messages.publish", request, object)

        with pytest.raises(NotLeader, match="chosen among other partitions"):
            await ask(0)
        assert (await ask(fence)).offset == 0
        assert len(await publish(broker, NewMessage(value=b"v", key=b"k"))) == 1

    run(scene())
