"""Fetch sessions (KIP-227), which clients in Java begin and librdkafka does not."""

import datetime as dt
import uuid
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17 import request as fetch_in
from kio.static.primitive import i32, i32Timedelta, i64

from tests.kafka_clients import create_topic, delete_topic, new_topic, publish
from tests.kafka_wire import WireClient, topic_id_of
from tests.processes import NodeProcess


def fetch(
    client: WireClient,
    *wanted: tuple[uuid.UUID, int],
    session_id: int = 0,
    epoch: int = 0,
    forgotten: tuple[uuid.UUID, ...] = (),
) -> Any:
    """Ask for partition 0 of topics from offsets, in a session."""
    return client.ask(
        fetch_in.FetchRequest(
            max_wait=i32Timedelta.parse(dt.timedelta()),
            min_bytes=i32(1),
            session_id=i32(session_id),
            session_epoch=i32(epoch),
            topics=tuple(_wanted(topic_id, offset) for topic_id, offset in wanted),
            forgotten_topics_data=tuple(
                fetch_in.ForgottenTopic(topic_id=each, partitions=(i32(0),)) for each in forgotten
            ),
        )
    )


def _wanted(topic_id: uuid.UUID, offset: int) -> fetch_in.FetchTopic:
    partition = fetch_in.FetchPartition(
        partition=i32(0), fetch_offset=i64(offset), partition_max_bytes=i32(1_000_000)
    )
    return fetch_in.FetchTopic(topic_id=topic_id, partitions=(partition,))


def told(answer: Any) -> dict[uuid.UUID, tuple[ErrorCode, bool]]:
    """The error of each topic in an answer, and whether there are records."""
    return {
        topic.topic_id: (topic.partitions[0].error_code, bool(topic.partitions[0].records))
        for topic in answer.responses
    }


def create_anew(node: NodeProcess, topic: str) -> None:
    """Put another topic with one record under the name of one that was read."""
    delete_topic(node, topic)
    create_topic(node, topic)
    publish(node, topic, [b"new"])


def test_a_session_tells_what_is_new(node: NodeProcess) -> None:
    quiet, busy = new_topic(node), new_topic(node)
    with WireClient(node.kafka_port) as client:
        ids = [topic_id_of(client, topic) for topic in (quiet, busy)]

        first = fetch(client, (ids[0], 0), (ids[1], 0))
        publish(node, busy, [b"a"])
        second = fetch(client, session_id=first.session_id, epoch=1)

    assert set(told(first)) == set(ids)
    assert second.session_id == first.session_id
    assert told(second) == {ids[1]: (ErrorCode.none, True)}


def test_a_deleted_topic_is_told_and_ends_the_session(node: NodeProcess) -> None:
    kept, gone = new_topic(node), new_topic(node)
    with WireClient(node.kafka_port) as client:
        kept_id, gone_id = topic_id_of(client, kept), topic_id_of(client, gone)
        first = fetch(client, (kept_id, 0), (gone_id, 0))

        delete_topic(node, gone)
        publish(node, kept, [b"a"])
        second = fetch(client, session_id=first.session_id, epoch=1)
        third = fetch(client, session_id=first.session_id, epoch=2)

    assert told(second) == {
        kept_id: (ErrorCode.none, True),
        gone_id: (ErrorCode.unknown_topic_id, False),
    }
    assert second.session_id == 0
    assert third.error_code == ErrorCode.fetch_session_id_not_found


def test_a_topic_that_was_created_anew_is_not_read_by_its_old_id(node: NodeProcess) -> None:
    topic = new_topic(node)
    with WireClient(node.kafka_port) as client:
        old_id = topic_id_of(client, topic)
        first = fetch(client, (old_id, 0))

        create_anew(node, topic)
        second = fetch(client, session_id=first.session_id, epoch=1)

    assert told(second) == {old_id: (ErrorCode.unknown_topic_id, False)}


def test_a_session_goes_on_with_a_topic_that_was_created_anew(node: NodeProcess) -> None:
    topic = new_topic(node)
    with WireClient(node.kafka_port) as client:
        old_id = topic_id_of(client, topic)
        first = fetch(client, (old_id, 0))

        create_anew(node, topic)
        new_id = topic_id_of(client, topic)
        second = fetch(
            client, (new_id, 0), session_id=first.session_id, epoch=1, forgotten=(old_id,)
        )

    assert told(second) == {new_id: (ErrorCode.none, True)}
    assert second.session_id == first.session_id
