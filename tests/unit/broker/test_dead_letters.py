"""Dead letters are listed, redriven, replaced and purged."""

import asyncio

import pytest

from penstock.broker import Broker, DeadLetterFilter, NewMessage, NewTopic, Reject
from penstock.errors import Corruption, InvalidRequest, MessageNotFound, TopicNotFound
from penstock.ids import TopicPartition
from tests.unit.broker.brokers import flip_a_byte
from tests.unit.broker.test_burial import settled
from tests.unit.broker.test_queues import GROUP, TOPIC, publish, receive, started_with, values
from tests.unit.cluster.workplaces import START_MS, run


async def with_dead_letters(*texts: bytes, reasons: list[str] | None = None) -> Broker:
    """Return a broker whose messages were all rejected."""
    broker = await started_with(*texts)
    await reject_all(broker, reasons)
    return broker


async def reject_all(
    broker: Broker, reasons: list[str] | None = None, *, group: str = GROUP
) -> None:
    messages = await broker.queues.receive(TOPIC, group, count_max=10)
    named = reasons or ["bad"] * len(messages)
    items = [
        Reject(message.receipt, reason) for message, reason in zip(messages, named, strict=True)
    ]
    assert not any(await broker.queues.reject(TOPIC, group, items))
    await settled(broker, group=group)


def test_dead_letters_are_found_by_their_notes() -> None:
    async def scene() -> None:
        broker = await with_dead_letters(b"a", b"b", reasons=["no price", "no address"])
        dead_letters = broker.dead_letters

        every = await dead_letters.search(TOPIC)
        by_reason = await dead_letters.search(TOPIC, wanted=DeadLetterFilter(reason="address"))
        by_group = await dead_letters.search(TOPIC, wanted=DeadLetterFilter(group="others"))
        later = await dead_letters.search(TOPIC, after=every[0].id)

        assert [each.value for each in every] == [b"a", b"b"]
        assert [each.value for each in by_reason] == [b"b"]
        assert by_group == []
        assert [each.value for each in later] == [b"b"]
        first = every[0]
        assert (first.source_topic, first.source_id, first.group) == (TOPIC, "0-0", GROUP)
        assert (first.reason, first.error, first.attempts) == ("rejected", "no price", 1)
        assert await dead_letters.search("orders.dlq") == every

    run(scene())


def test_a_damaged_dead_letter_is_neither_shown_nor_sent_back() -> None:
    async def scene() -> None:
        broker = await with_dead_letters(b"a")
        (letter,) = await broker.dead_letters.search(TOPIC)

        flip_a_byte(broker, TopicPartition(f"{TOPIC}.dlq", letter.partition))

        with pytest.raises(Corruption):
            await broker.dead_letters.search(TOPIC)
        with pytest.raises(Corruption):
            await broker.dead_letters.redrive(TOPIC)

    run(scene())


def test_a_topic_without_dead_letters_has_none() -> None:
    async def scene() -> None:
        broker = await started_with(b"a")

        assert await broker.dead_letters.search(TOPIC) == []
        assert (await broker.dead_letters.purge(TOPIC)).purged == 0
        with pytest.raises(TopicNotFound):
            await broker.dead_letters.search("nothing")

    run(scene())


def test_a_redriven_dead_letter_is_received_again_and_listed_no_more() -> None:
    async def scene() -> None:
        broker = await with_dead_letters(b"a", b"b")

        tried = await broker.dead_letters.redrive(TOPIC, is_dry_run=True)
        done = await broker.dead_letters.redrive(
            TOPIC, wanted=DeadLetterFilter(ids=frozenset(["0-1"]))
        )

        assert (tried.moved, tried.skipped) == (2, 0)
        assert (done.moved, done.failed) == (1, 0)
        assert values(await receive(broker)) == [b"b"]
        assert [each.value for each in await broker.dead_letters.search(TOPIC)] == [b"a"]

    run(scene())


def test_ids_that_no_dead_letter_has_are_named() -> None:
    async def scene() -> None:
        broker = await with_dead_letters(b"a", b"b", b"c")
        wanted = DeadLetterFilter(ids=frozenset(["0-1", "0-2", "0-99", "x", "0-1@orders.dlq"]))
        unknown = ["0-1@orders.dlq", "0-99", "x"]

        planned = await broker.dead_letters.redrive(TOPIC, wanted=wanted, is_dry_run=True)
        first = await broker.dead_letters.redrive(TOPIC, wanted=wanted, count_max=1)
        purged = await broker.dead_letters.purge(TOPIC, wanted=wanted)
        every = await broker.dead_letters.purge(TOPIC)

        assert (planned.moved, planned.unknown) == (2, unknown)
        assert (first.moved, first.unknown) == (1, unknown)
        assert (purged.purged, purged.unknown) == (1, sorted([*unknown, "0-1"]))
        assert (every.purged, every.unknown) == (1, [])

    run(scene())


def test_dead_letters_of_groups_with_a_topic_of_their_own_are_among_those_of_the_topic() -> None:
    async def scene() -> None:
        broker = await with_dead_letters(b"a", b"b")
        dead_letters = broker.dead_letters
        await broker.queues.configure_group(
            TOPIC, "audit", {"delivery.dead.letter.topic": "audit.dlq"}
        )
        await reject_all(broker, group="audit")

        every = await dead_letters.search(TOPIC)
        paged = [await dead_letters.search(TOPIC, after=each.id, count_max=1) for each in every]
        audited = await dead_letters.search(TOPIC, wanted=DeadLetterFilter(group="audit"))

        ids = ["0-0", "0-1", "0-0@audit.dlq", "0-1@audit.dlq"]
        assert [each.id for each in every] == ids
        assert [each.value for each in every] == [b"a", b"b", b"a", b"b"]
        assert [[each.id for each in page] for page in paged] == [*([id_] for id_ in ids[1:]), []]
        assert audited == every[2:]
        assert [each.id for each in await dead_letters.search("audit.dlq")] == ["0-0", "0-1"]
        with pytest.raises(InvalidRequest, match=r"'0-0@other\.dlq' is not the id"):
            await dead_letters.search(TOPIC, after="0-0@other.dlq")

    run(scene())


def test_dead_letters_in_several_topics_are_dealt_with_together() -> None:
    async def scene() -> None:
        broker = await with_dead_letters(b"a", b"b")
        dead_letters = broker.dead_letters
        own = {"delivery.dead.letter.topic": "audit.dlq"}
        await broker.queues.configure_group(TOPIC, "audit", own)
        await reject_all(broker, group="audit")

        named = DeadLetterFilter(ids=frozenset(["0-0", "0-1@audit.dlq"]))
        done = await dead_letters.redrive(TOPIC, wanted=named)
        edited = await dead_letters.replace(
            TOPIC, "0-0@audit.dlq", key=None, value=b"A", headers=()
        )

        assert (done.moved, done.unknown) == (2, [])
        assert values(await receive(broker)) == [b"a", b"b"]
        assert (edited.id, edited.value, edited.group) == ("0-2@audit.dlq", b"A", "audit")
        left = await dead_letters.search(TOPIC)
        assert [(each.id, each.value) for each in left] == [("0-1", b"b"), (edited.id, b"A")]
        with pytest.raises(InvalidRequest, match="cannot be redriven to itself"):
            await dead_letters.redrive(TOPIC, to="audit.dlq")
        assert (await dead_letters.purge(TOPIC)).purged == 2
        assert await dead_letters.search(TOPIC) == await dead_letters.search("audit.dlq") == []

    run(scene())


def test_what_dies_again_and_again_is_held_back() -> None:
    async def scene() -> None:
        broker = await with_dead_letters(b"a")
        for _ in range(3):
            assert (await broker.dead_letters.redrive(TOPIC)).moved == 1
            await reject_all(broker)

        held = await broker.dead_letters.redrive(TOPIC)

        assert (held.moved, held.skipped) == (0, 1)
        (letter,) = await broker.dead_letters.search(TOPIC)
        assert letter.redriven == 3
        assert (await broker.dead_letters.redrive(TOPIC, redrives_max=9)).moved == 1

    run(scene())


def test_a_redrive_keeps_to_its_rate_and_can_go_elsewhere() -> None:
    async def scene() -> None:
        broker = await with_dead_letters(*(b"x" for _ in range(10)))
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        done = await broker.dead_letters.redrive(TOPIC, rate_per_s=5, to=TOPIC)

        assert done.moved == 10
        assert 2.0 <= loop.time() - began_s < 4
        with pytest.raises(InvalidRequest, match="cannot be redriven to itself"):
            await broker.dead_letters.redrive(TOPIC, to="orders.dlq")
        with pytest.raises(TopicNotFound):
            await broker.dead_letters.redrive(TOPIC, to="nowhere")
        with pytest.raises(InvalidRequest, match="the rate is 0 messages a second"):
            await broker.dead_letters.redrive(TOPIC, rate_per_s=0)

    run(scene())


def test_a_redrive_leaves_alone_what_died_since_its_dead_letters_were_deleted() -> None:
    async def scene() -> None:
        broker = await with_dead_letters(b"a", b"b", b"c")
        await broker.topics.create(NewTopic("elsewhere", partitions=1, replication_factor=1))
        redrive = asyncio.create_task(
            broker.dead_letters.redrive(TOPIC, rate_per_s=1, to="elsewhere")
        )
        await asyncio.sleep(0.5)
        await broker.topics.delete("orders.dlq")
        await publish(broker, b"d", b"e", b"f")
        await reject_all(broker)

        done = await redrive

        assert (done.moved, done.failed) == (1, 2)
        assert done.errors[0] == "0-1: topic 'orders.dlq' was deleted meanwhile"
        left = await broker.dead_letters.search(TOPIC)
        assert [each.value for each in left] == [b"d", b"e", b"f"]

    run(scene())


def test_an_edited_dead_letter_takes_the_place_of_the_old_one() -> None:
    async def scene() -> None:
        broker = await with_dead_letters(b"a")
        (old,) = await broker.dead_letters.search(TOPIC)

        new = await broker.dead_letters.replace(
            TOPIC, old.id, key=b"k", value=b"mended", headers=(("by", b"me"),)
        )

        assert await broker.dead_letters.search(TOPIC) == [new]
        assert (new.value, new.key, new.headers) == (b"mended", b"k", (("by", b"me"),))
        assert (new.source_id, new.group, new.error) == (old.source_id, old.group, old.error)
        with pytest.raises(MessageNotFound):
            await broker.dead_letters.replace(TOPIC, old.id, key=None, value=None, headers=())

    run(scene())


def test_what_is_redriven_has_its_headers_and_its_priority() -> None:
    async def scene() -> None:
        broker = await started_with()
        message = NewMessage(
            value=b"a",
            headers=(("colour", b"red"), ("penstock-sqs-types", b"{}")),
            priority=9,
            partition=0,
            idempotency_key="once",
            expires_at_ms=START_MS + 10**12,
        )
        await broker.messages.publish(TOPIC, [message])
        await reject_all(broker)
        (letter,) = await broker.dead_letters.search(TOPIC)
        edited = await broker.dead_letters.replace(
            TOPIC, letter.id, key=None, value=b"b", headers=(("colour", b"blue"),)
        )

        await broker.dead_letters.redrive(TOPIC)
        (again,) = await receive(broker, wait_ms=10_000)

        names = {"colour", "penstock-sqs-types", "penstock-priority"}
        assert dict(letter.headers).keys() == dict(edited.headers).keys() == names
        assert (again.value, again.priority) == (b"b", 9)
        assert dict(again.headers)["colour"] == b"blue"
        assert dict(again.headers)["penstock-sqs-types"] == b"{}"
        assert "penstock-expires-at" not in dict(again.headers)

    run(scene())


def test_purged_dead_letters_are_not_listed_also_after_more_have_come() -> None:
    async def scene() -> None:
        broker = await with_dead_letters(b"a", b"b", reasons=["one", "two"])

        purged = await broker.dead_letters.purge(TOPIC, wanted=DeadLetterFilter(reason="one"))
        await publish(broker, b"c")
        await reject_all(broker)

        assert purged.purged == 1
        assert [each.value for each in await broker.dead_letters.search(TOPIC)] == [b"b", b"c"]

    run(scene())
