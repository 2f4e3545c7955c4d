"""Reading several partitions under limits, with and without waiting."""

import asyncio
import uuid

from penstock.broker import Broker, Fetched, FetchRequest, NewTopic
from penstock.errors import (
    FencedLeaderEpoch,
    OffsetOutOfRange,
    TopicNotFound,
    Unavailable,
    UnknownLeaderEpoch,
)
from tests.unit.broker.brokers import started
from tests.unit.cluster.workplaces import PLACE, batch, run, turn

SECOND = PLACE._replace(partition=1)
LONG_MS = 60_000


async def fetch(
    broker: Broker,
    *requests: FetchRequest,
    wait_ms: int = 0,
    bytes_min: int = 1,
    bytes_max: int = 9999,
) -> list[Fetched]:
    return await broker.fetcher.fetch(
        requests, wait_ms=wait_ms, bytes_min=bytes_min, bytes_max=bytes_max
    )


async def filled() -> Broker:
    broker = await started()
    for place in (PLACE, SECOND):
        for number in range(3):
            await broker.partition(place).publish(batch(b"%d" % number * 100))
    return broker


def test_all_partitions_are_read_up_to_the_limit() -> None:
    async def scene() -> None:
        broker = await filled()
        requests = [FetchRequest(PLACE, 0, 9999), FetchRequest(SECOND, 1, 9999)]

        first, second = await fetch(broker, *requests)
        assert first.high_watermark == second.high_watermark == 3
        assert first.size_bytes > second.size_bytes > 0

        first, second = await fetch(broker, *requests, bytes_max=first.size_bytes)
        assert second.data is None
        assert second.error is None
        assert second.high_watermark == 3

    run(scene())


def test_the_first_batch_is_returned_whatever_its_size() -> None:
    async def scene() -> None:
        broker = await filled()

        first, second = await fetch(
            broker, FetchRequest(PLACE, 0, 1), FetchRequest(SECOND, 0, 1), bytes_max=1
        )

        assert first.size_bytes > 100
        assert second.data is None

    run(scene())


def test_a_reader_at_the_end_waits_for_the_next_commit() -> None:
    async def scene() -> None:
        broker = await filled()
        waiting = asyncio.ensure_future(
            fetch(broker, FetchRequest(PLACE, 3, 9999), wait_ms=LONG_MS)
        )
        await turn()
        assert not waiting.done()

        await broker.partition(PLACE).publish(batch(b"new"))

        (found,) = await waiting
        assert found.high_watermark == 4
        assert found.data is not None

    run(scene())


def test_a_wait_ends_at_its_time_with_what_there_is() -> None:
    async def scene() -> None:
        broker = await filled()

        (found,) = await fetch(broker, FetchRequest(PLACE, 2, 9999), wait_ms=5, bytes_min=100_000)

        assert found.size_bytes > 0

    run(scene())


def test_a_waiting_reader_learns_that_its_topic_is_deleted() -> None:
    async def scene() -> None:
        broker = await filled()
        waiting = asyncio.ensure_future(
            fetch(broker, FetchRequest(PLACE, 3, 9999), wait_ms=LONG_MS)
        )
        await turn()

        await broker.topics.delete("orders")

        (found,) = await asyncio.wait_for(waiting, 120)
        assert isinstance(found.error, TopicNotFound)

    run(scene())


def test_errors_are_told_at_once_and_beside_what_was_found() -> None:
    async def scene() -> None:
        broker = await filled()

        found = await fetch(
            broker,
            FetchRequest(PLACE, 0, 9999),
            FetchRequest(SECOND, 4, 9999),
            FetchRequest(PLACE._replace(topic="nothing"), 0, 9999),
            FetchRequest(SECOND, 0, 9999, leader_epoch=0),
            FetchRequest(SECOND, 0, 9999, leader_epoch=99),
            wait_ms=LONG_MS,
            bytes_min=1_000_000,
        )

        assert found[0].data is not None
        assert [type(each.error) for each in found[1:]] == [
            OffsetOutOfRange,
            TopicNotFound,
            FencedLeaderEpoch,
            UnknownLeaderEpoch,
        ]

    run(scene())


def test_a_reader_that_waits_is_sent_away_when_its_topic_is_another_one() -> None:
    async def scene() -> None:
        broker, reshard_id = await filled(), uuid.uuid4()
        await broker.topics.create(NewTopic("copy", partitions=3))
        await broker.reshards.begin("orders", reshard_id, "copy")
        fence = await broker.reshards.fence("orders", reshard_id)
        waiting = asyncio.ensure_future(fetch(broker, FetchRequest(PLACE, 3, 999), wait_ms=200))
        await turn()

        await broker.reshards.switch(
            "orders", reshard_id, fence=fence.fence, former_name="former", positions={}
        )
        for number in range(4):
            await broker.partition(PLACE).publish(batch(b"%d" % number))

        (found,) = await waiting
        assert isinstance(found.error, Unavailable), "what is there now was never asked for"
        assert [each.end for each in fence.partitions] == [3, 3]

    run(scene())
