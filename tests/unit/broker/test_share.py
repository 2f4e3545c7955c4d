"""Sessions of share groups, where members come without a word and go without one."""

import asyncio

import pytest

from penstock.broker import Broker, NewTopic, encode_batch, share
from penstock.errors import ShareSessionNotFound
from penstock.ids import TopicPartition
from penstock.record import Record
from tests.unit.broker.test_queues import TOPIC, started_with
from tests.unit.cluster.workplaces import run

GROUP = "sharers"


def test_sessions_of_members_that_were_killed_make_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share, "_SESSIONS_MAX", 2)

    async def scene() -> None:
        broker = await started_with()
        for member in ("killed", "living"):
            broker.share.open_session(GROUP, member, 0, added={}, forgotten=(), connection=1)

        broker.share.open_session(GROUP, "new", 0, added={}, forgotten=(), connection=1)

        broker.share.open_session(GROUP, "living", 1, added={}, forgotten=(), connection=1)
        with pytest.raises(ShareSessionNotFound):
            broker.share.open_session(GROUP, "killed", 1, added={}, forgotten=(), connection=1)

    run(scene())


def test_a_member_that_leaves_gives_back_what_it_holds_although_a_topic_is_gone() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        await broker.topics.create(NewTopic("gone", partitions=1))
        batch = memoryview(encode_batch([Record(0, 0, None, b"b")]))
        await broker.publisher.publish(TopicPartition("gone", 0), batch).offset
        await broker.share.configure(GROUP, {"share.auto.offset.reset": "earliest"}, ())
        topics = broker.metadata.topics
        added = {TopicPartition(name, 0): topics[name].public_id for name in ("gone", TOPIC)}
        broker.share.open_session(GROUP, "leaver", 0, added=added, forgotten=(), connection=1)
        held = await broker.share.acquire(GROUP, "leaver", records_max=10, wait_ms=0)
        assert all(each.acquired for each in held)
        await broker.topics.delete("gone")

        await broker.share.close_session(GROUP, "leaver")

        del added[TopicPartition("gone", 0)]
        broker.share.open_session(GROUP, "other", 0, added=added, forgotten=(), connection=1)
        (found,) = await broker.share.acquire(GROUP, "other", records_max=10, wait_ms=0)
        assert [each.record.value for each in found.acquired] == [b"a"]

    run(scene())


def test_a_member_gets_no_more_bytes_at_a_time_than_it_asks_for() -> None:
    async def scene() -> list[list[int]]:
        broker = await started_with(b"12345", b"67890", b"abcde" * 9, b"12345", b"67890")
        await opened(broker, "member", connection=1)
        offsets = []
        for _ in range(4):
            (found,) = await broker.share.acquire(
                GROUP, "member", records_max=10, bytes_max=12, wait_ms=0
            )
            offsets.append([each.record.offset for each in found.acquired])
        return offsets

    # One that is larger goes out alone.
    assert run(scene()) == [[0, 1], [2], [3, 4], []]


def test_partitions_share_the_bytes_that_a_member_asks_for() -> None:
    async def scene() -> list[int]:
        broker = await started_with(b"12345", b"67890")
        batch = memoryview(encode_batch([Record(0, 0, None, b"abcde")]))
        await broker.publisher.publish(TopicPartition(TOPIC, 1), batch).offset
        await opened(broker, "member", connection=1, partitions=2)
        counts = []
        for _ in range(3):
            found = await broker.share.acquire(
                GROUP, "member", records_max=10, bytes_max=5, wait_ms=0
            )
            counts.append(sum(len(each.acquired) for each in found))
        return counts

    assert run(scene()) == [1, 1, 1]


async def acquired(broker: Broker, member: str) -> list[tuple[bytes | None, int]]:
    """Acquire what is there; the values, and how often each has gone out."""
    (found,) = await broker.share.acquire(GROUP, member, records_max=10, wait_ms=100)
    return [(each.record.value, each.attempt) for each in found.acquired]


def test_sessions_end_with_the_connection_that_used_them_last() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        await broker.share.configure(GROUP, {"share.auto.offset.reset": "earliest"}, ())
        added = {TopicPartition(TOPIC, 0): broker.metadata.topics[TOPIC].public_id}

        def use(member: str, epoch: int, connection: int) -> None:
            broker.share.open_session(
                GROUP, member, epoch, added=added, forgotten=(), connection=connection
            )

        use("member", 0, connection=1)
        use("idle", 0, connection=2)
        use("other", 0, connection=4)
        assert await acquired(broker, "member") == [(b"a", 1)]
        use("member", 1, connection=2)
        use("member", 0, connection=3)

        for gone in (1, 2, 2, 77):
            broker.share.connection_lost(gone)
            assert await acquired(broker, "other") == []
        with pytest.raises(ShareSessionNotFound):
            use("idle", 1, connection=2)
        broker.share.connection_lost(3)

        assert await acquired(broker, "other") == [(b"a", 2)]
        with pytest.raises(ShareSessionNotFound):
            use("member", 1, connection=5)
        await broker.share.close_session(GROUP, "other")
        assert not broker.share._by_connection

    run(scene())


async def opened(broker: Broker, member: str, *, connection: int, partitions: int = 1) -> None:
    """Let a member read the topic from its start."""
    settings = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "2"}
    await broker.share.configure(GROUP, settings, ())
    topic_id = broker.metadata.topics[TOPIC].public_id
    added = {TopicPartition(TOPIC, number): topic_id for number in range(partitions)}
    broker.share.open_session(GROUP, member, 0, added=added, forgotten=(), connection=connection)


def test_a_record_that_kills_whoever_reads_it_becomes_a_dead_letter() -> None:
    async def scene() -> None:
        broker = await started_with(b"poison")
        found = []

        for life in range(3):
            await opened(broker, "member", connection=life)
            found.append(await acquired(broker, "member"))
            broker.share.connection_lost(life)
            await asyncio.sleep(0)

        assert found == [[(b"poison", 1)], [(b"poison", 2)], []]
        (letter,) = await broker.dead_letters.search(TOPIC)
        assert (letter.value, letter.group) == (b"poison", GROUP)

    run(scene())


def test_what_a_member_holds_when_it_closes_its_session_has_cost_no_attempt() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        found = []

        for life in range(3):
            await opened(broker, "member", connection=life)
            found.append(await acquired(broker, "member"))
            await broker.share.close_session(GROUP, "member")

        assert found == [[(b"a", 1)]] * 3

    run(scene())


def test_connections_that_the_node_closes_itself_cost_no_attempt() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        await opened(broker, "member", connection=1)
        assert await acquired(broker, "member") == [(b"a", 1)]

        broker.share.connection_lost(1, is_ours=True)

        await opened(broker, "other", connection=2)
        assert await acquired(broker, "other") == [(b"a", 1)]

    run(scene())


def test_records_that_were_in_no_answer_have_cost_no_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        broker = await started_with(b"a")
        await opened(broker, "member", connection=1, partitions=2)
        queue = broker.share._queue(TopicPartition(TOPIC, 1))
        has_come, never = asyncio.Event(), asyncio.Event()

        async def wait(*_: object) -> None:
            has_come.set()
            await never.wait()

        with monkeypatch.context() as patch:
            patch.setattr(queue, "wait_ready", wait)
            answer = asyncio.ensure_future(
                broker.share.acquire(GROUP, "member", records_max=10, wait_ms=0)
            )
            await has_come.wait()
            broker.share.connection_lost(1)
            answer.cancel()
            await asyncio.wait([answer])

        await opened(broker, "other", connection=2)
        assert await acquired(broker, "other") == [(b"a", 1)]

    run(scene())
