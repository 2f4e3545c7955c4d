"""The delivery journal is read in pages, in the order of the log."""

import asyncio

import pytest

from penstock.broker import JournalKind as K
from penstock.broker import Nack, Reject
from penstock.errors import InvalidRequest, OffsetOutOfRange
from penstock.ids import TopicPartition
from tests.unit.broker.test_burial import settled
from tests.unit.broker.test_queues import GROUP, TOPIC, publish, receive, started_with
from tests.unit.cluster.workplaces import run

PLACE = TopicPartition(TOPIC, 0)


def test_everything_that_happened_is_told_in_order() -> None:
    async def scene() -> None:
        broker = await started_with(b"a", b"b", b"c")
        first, second, third = await receive(broker, consumer="one")
        await broker.queues.ack(TOPIC, GROUP, [first.receipt])
        await broker.queues.nack(TOPIC, GROUP, [Nack(second.receipt, reason="oh")])
        await broker.queues.reject(TOPIC, GROUP, [Reject(third.receipt, "no")])
        await settled(broker)

        page = await broker.queues.journal(PLACE)

        told = [entry for entry in page.entries if entry.kind != K.CREATED]
        assert [entry.kind for entry in told] == [
            K.LEASED, K.ACKED, K.RETURNED, K.REJECTED, K.DEAD_LETTERED,
        ]  # fmt: skip
        delivery = told[0].runs[0][0]
        assert (told[0].runs, told[0].consumer) == ([(delivery, 0, 3)], "one")
        assert told[1].runs == [(delivery, 0, 1)]
        assert told[2].failures == [(delivery, 1, "oh")]
        assert told[3].failures == [(delivery, 2, "no")]
        assert told[4].runs == [(-1, 2, 3)]
        assert page.next_index == page.end

    run(scene())


def test_pages_go_on_where_the_one_before_ended() -> None:
    async def scene() -> None:
        broker = await started_with(*(b"x" for _ in range(5)))
        for _ in range(5):
            (message,) = await receive(broker, 1)
            await broker.queues.ack(TOPIC, GROUP, [message.receipt])
        whole = await broker.queues.journal(PLACE)

        entries, index = [], whole.start
        while index < whole.end:
            page = await broker.queues.journal(PLACE, index=index, count_max=3)
            assert len(page.entries) <= 3
            entries += page.entries
            index = page.next_index

        assert entries == whole.entries
        assert len(entries) >= 10

    run(scene())


def test_what_shares_an_entry_stays_together() -> None:
    async def scene() -> None:
        broker = await started_with(*(b"x" for _ in range(2)))
        messages = [(await receive(broker, 1))[0] for _ in range(2)]
        await asyncio.gather(
            *(broker.queues.ack(TOPIC, GROUP, [message.receipt]) for message in messages)
        )
        whole = await broker.queues.journal(PLACE)

        shared = whole.entries[-1].index
        page = await broker.queues.journal(PLACE, index=shared, count_max=1)

        assert [entry.kind for entry in page.entries] == [K.LEASED, K.LEASED, K.ACKED, K.ACKED]
        assert {entry.index for entry in page.entries} == {shared}
        assert page.next_index == shared + 1
        before = await broker.queues.journal(PLACE, count_max=2)
        assert before.next_index == shared

    run(scene())


def test_reading_begins_at_a_time() -> None:
    async def scene() -> None:
        broker = await started_with(*(b"x" for _ in range(7)))
        for number in range(7):
            await asyncio.sleep(1)
            (message,) = await receive(broker, 1)
            # Entries of other kinds lie between the events.
            await publish(broker, b"y")
            if number % 2:
                await broker.queues.ack(TOPIC, GROUP, [message.receipt])
        whole = (await broker.queues.journal(PLACE)).entries

        for since_ms in {0, *(entry.at_ms + by for entry in whole for by in (0, 1))}:
            page = await broker.queues.journal(PLACE, since_ms=since_ms)
            assert page.entries == [entry for entry in whole if entry.at_ms >= since_ms]
            assert page.next_index == page.end
        with pytest.raises(InvalidRequest, match="from an index or from a time, not from both"):
            await broker.queues.journal(PLACE, index=1, since_ms=1)

    run(scene())


def test_an_index_outside_the_journal_and_a_bad_count_are_refused() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")

        with pytest.raises(OffsetOutOfRange, match=r"index is 1000, the journal of .* holds"):
            await broker.queues.journal(PLACE, index=1000)
        with pytest.raises(InvalidRequest, match="count_max is 0"):
            await broker.queues.journal(PLACE, count_max=0)

    run(scene())
