"""Share sessions (KIP-932) as clients in Java and Go use them: acks and renewals within a fetch."""

import datetime as dt
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.share_acknowledge.v2 import request as ack_in
from kio.schema.share_fetch.v2 import request as fetch_in
from kio.schema.types import GroupId
from kio.static.primitive import i8, i32, i32Timedelta, i64

from tests.conformance.test_kafka_share import new_group
from tests.kafka_clients import create_topic, delete_topic, new_topic, publish
from tests.kafka_wire import WireClient, topic_id_of
from tests.processes import NodeProcess

ACCEPT = 1
RENEW = 4
LOCK_MS = 20_000


@dataclass
class Member:
    """A member of a share group that reads partition 0 of topics."""

    client: WireClient
    group: str
    epoch: int = 0
    name: str = "member"

    def fetch(
        self,
        *topics: uuid.UUID,
        acks: dict[uuid.UUID, tuple[int, int]] | None = None,
        records_max: int = 10,
        is_renew_ack: bool = False,
        wait_ms: int = 0,
    ) -> Any:
        """Fetch in the session; an ack says what became of one offset of a topic."""
        said = dict.fromkeys(topics) | (acks or {})
        answer = self.client.ask(
            fetch_in.ShareFetchRequest(
                group_id=GroupId(self.group),
                member_id=self.name,
                share_session_epoch=i32(self.epoch),
                max_wait=i32Timedelta.parse(dt.timedelta(milliseconds=wait_ms)),
                min_bytes=i32(0),
                max_records=i32(records_max),
                batch_size=i32(records_max),
                is_renew_ack=is_renew_ack,
                topics=tuple(_wanted(topic, ack) for topic, ack in said.items()),
                forgotten_topics_data=(),
            )
        )
        self.epoch += 1
        return answer

    def acknowledge(self, topic_id: uuid.UUID, offset: int, answer: int) -> Any:
        return self.acknowledge_all(topic_id, (offset, offset, (answer,)))

    def acknowledge_all(self, topic_id: uuid.UUID, *said: tuple[int, int, tuple[int, ...]]) -> Any:
        """Say of ranges of offsets, the last one included, what became of them."""
        partition = ack_in.AcknowledgePartition(
            partition_index=i32(0),
            acknowledgement_batches=tuple(
                ack_in.AcknowledgementBatch(
                    first_offset=i64(first),
                    last_offset=i64(last),
                    acknowledge_types=tuple(map(i8, answers)),
                )
                for first, last, answers in said
            ),
        )
        result = self.client.ask(
            ack_in.ShareAcknowledgeRequest(
                group_id=GroupId(self.group),
                member_id=self.name,
                share_session_epoch=i32(self.epoch),
                topics=(ack_in.AcknowledgeTopic(topic_id=topic_id, partitions=(partition,)),),
            )
        )
        self.epoch += 1
        return result


def _wanted(topic_id: uuid.UUID, ack: tuple[int, int] | None) -> fetch_in.FetchTopic:
    batches: tuple[fetch_in.AcknowledgementBatch, ...] = ()
    if ack is not None:
        offset, answer = ack
        batches = (
            fetch_in.AcknowledgementBatch(
                first_offset=i64(offset), last_offset=i64(offset), acknowledge_types=(i8(answer),)
            ),
        )
    partition = fetch_in.FetchPartition(partition_index=i32(0), acknowledgement_batches=batches)
    return fetch_in.FetchTopic(topic_id=topic_id, partitions=(partition,))


def told(answer: Any) -> dict[uuid.UUID, tuple[ErrorCode, ErrorCode, list[int]]]:
    """Of each topic: its error, the error of its acks, and the offsets that were acquired."""
    return {
        topic.topic_id: (
            partition.error_code,
            partition.acknowledge_error_code,
            [
                offset
                for acquired in partition.acquired_records
                for offset in range(acquired.first_offset, acquired.last_offset + 1)
            ],
        )
        for topic in answer.responses
        for partition in topic.partitions
    }


def settled(answer: Any) -> list[ErrorCode]:
    """What became of the acks of each partition."""
    return [partition.error_code for topic in answer.responses for partition in topic.partitions]


OK = ErrorCode.none


def test_acks_in_a_fetch_are_answered_although_nothing_new_is_found(node: NodeProcess) -> None:
    topic, group = new_topic(node), new_group(node)
    publish(node, topic, [b"a"])
    with WireClient(node.kafka_port) as client:
        topic_id = topic_id_of(client, topic)
        member = Member(client, group)

        first = member.fetch(topic_id)
        accepted = member.fetch(acks={topic_id: (0, ACCEPT)})
        again = member.fetch(acks={topic_id: (0, ACCEPT)})

    assert told(first) == {topic_id: (OK, OK, [0])}
    assert told(accepted) == {topic_id: (OK, OK, [])}
    assert told(again) == {topic_id: (OK, ErrorCode.invalid_record_state, [])}


@pytest.mark.parametrize(
    "said",
    [
        pytest.param([(0, 0, (9,))], id="no answer"),
        pytest.param([(0, 0, (-1,))], id="a negative answer"),
        pytest.param([(0, 0, ())], id="nothing said"),
        pytest.param([(0, 2, (ACCEPT, ACCEPT))], id="too few answers"),
        pytest.param([(2, 1, (ACCEPT,))], id="no range"),
        pytest.param([(1, 1, (ACCEPT,)), (0, 0, (ACCEPT,))], id="out of order"),
    ],
)
def test_acks_that_make_no_sense_are_refused_and_settle_nothing(
    node: NodeProcess, said: list[tuple[int, int, tuple[int, ...]]]
) -> None:
    topic, group = new_topic(node), new_group(node)
    publish(node, topic, [b"a", b"b", b"c"])
    with WireClient(node.kafka_port) as client:
        topic_id = topic_id_of(client, topic)
        member = Member(client, group)
        member.fetch(topic_id)

        refused = member.acknowledge_all(topic_id, *said)
        accepted = member.acknowledge_all(topic_id, (0, 2, (ACCEPT,)))

    assert settled(refused) == [ErrorCode.invalid_request]
    assert settled(accepted) == [OK]


def test_an_ack_of_more_than_is_held_settles_what_is_held(node: NodeProcess) -> None:
    topic, group = new_topic(node), new_group(node)
    publish(node, topic, [b"a", b"b", b"c"])
    with WireClient(node.kafka_port) as client:
        topic_id = topic_id_of(client, topic)
        member = Member(client, group)
        member.fetch(topic_id)

        said = member.acknowledge_all(topic_id, (1, 2**62, (ACCEPT,)))
        left = [member.acknowledge(topic_id, offset, ACCEPT) for offset in range(3)]

    invalid = [ErrorCode.invalid_record_state]
    assert settled(said) == invalid
    assert [settled(each) for each in left] == [[OK], invalid, invalid]


def test_records_of_a_member_that_is_cut_off_go_to_others_at_once(node: NodeProcess) -> None:
    topic, group = new_topic(node), new_group(node)
    publish(node, topic, [b"a", b"b"])
    with WireClient(node.kafka_port) as survivor:
        topic_id = topic_id_of(survivor, topic)
        with WireClient(node.kafka_port) as killed:
            member = Member(killed, group, name="killed")
            assert told(member.fetch(topic_id)) == {topic_id: (OK, OK, [0, 1])}
            member.fetch(acks={topic_id: (0, ACCEPT)})
        other = Member(survivor, group, name="survivor")

        found = other.fetch(topic_id, wait_ms=LOCK_MS // 2)

        assert told(found) == {topic_id: (OK, OK, [1])}
        ((acquired,),) = [
            partition.acquired_records
            for topic in found.responses
            for partition in topic.partitions
        ]
        assert acquired.delivery_count == 2


def test_a_session_ends_with_the_connection_that_used_it_last_and_no_other(
    node: NodeProcess,
) -> None:
    topic, group = new_topic(node), new_group(node)
    publish(node, topic, [b"a"])
    with WireClient(node.kafka_port) as second:
        topic_id = topic_id_of(second, topic)
        with WireClient(node.kafka_port) as first:
            member = Member(first, group)
            assert told(member.fetch(topic_id)) == {topic_id: (OK, OK, [0])}
            member.client = second
            member.fetch()
        # Whoever asks here is answered after the node has noticed that the first is gone.
        with WireClient(node.kafka_port) as third:
            topic_id_of(third, topic)

        accepted = member.fetch(acks={topic_id: (0, ACCEPT)})

        assert accepted.error_code is OK
        assert told(accepted) == {topic_id: (OK, OK, [])}


def test_a_fetch_that_renews_a_lease_acquires_nothing(node: NodeProcess) -> None:
    topic = new_topic(node)
    group = new_group(node, **{"share.record.lock.duration.ms": f"{LOCK_MS}"})
    publish(node, topic, [b"a", b"b"])
    with WireClient(node.kafka_port) as client:
        topic_id = topic_id_of(client, topic)
        member = Member(client, group)

        first = member.fetch(topic_id, records_max=1)
        renewed = member.fetch(acks={topic_id: (0, RENEW)}, records_max=0, is_renew_ack=True)
        accepted = member.fetch(acks={topic_id: (0, ACCEPT)})

    assert told(first) == {topic_id: (OK, OK, [0])}
    assert told(renewed) == {topic_id: (OK, OK, [])}
    assert told(accepted) == {topic_id: (OK, OK, [1])}


def test_every_answer_tells_how_long_records_are_leased(node: NodeProcess) -> None:
    topic = new_topic(node)
    group = new_group(node, **{"share.record.lock.duration.ms": f"{LOCK_MS}"})
    publish(node, topic, [b"a"])
    with WireClient(node.kafka_port) as client:
        topic_id = topic_id_of(client, topic)
        member = Member(client, group)

        answers = [
            member.fetch(),
            member.fetch(topic_id),
            member.fetch(),
            member.acknowledge(topic_id, 0, RENEW),
        ]

    expected = dt.timedelta(milliseconds=LOCK_MS)
    assert [each.acquisition_lock_timeout for each in answers] == [expected] * len(answers)


def test_a_deleted_topic_is_told_and_others_are_read(node: NodeProcess) -> None:
    kept, gone, group = new_topic(node), new_topic(node), new_group(node)
    with WireClient(node.kafka_port) as client:
        kept_id, gone_id = topic_id_of(client, kept), topic_id_of(client, gone)
        member = Member(client, group)
        member.fetch(kept_id, gone_id)

        delete_topic(node, gone)
        publish(node, kept, [b"a"])
        missing = member.fetch()
        create_topic(node, gone)
        publish(node, gone, [b"new"])
        other = member.fetch(acks={kept_id: (0, ACCEPT)})

    error = ErrorCode.unknown_topic_id
    assert told(missing) == {kept_id: (OK, OK, [0]), gone_id: (error, OK, [])}
    assert told(other) == {kept_id: (OK, OK, []), gone_id: (error, OK, [])}


def test_an_answer_for_a_deleted_topic_settles_nothing_of_the_one_that_took_its_name(
    node: NodeProcess,
) -> None:
    topic = new_topic(node)
    group = new_group(node)
    publish(node, topic, ["old"])
    with WireClient(node.kafka_port) as client:
        member = Member(client, group)
        old_id = topic_id_of(client, topic)
        assert told(member.fetch(old_id))[old_id][2] == [0]
        delete_topic(node, topic)
        create_topic(node, topic)
        publish(node, topic, ["new"])
        new_id = topic_id_of(client, topic)
        assert told(member.fetch(new_id, wait_ms=5_000))[new_id][2] == [0]

        (late,) = member.acknowledge(old_id, 0, ACCEPT).responses
        (own,) = member.acknowledge(new_id, 0, ACCEPT).responses

    assert [each.error_code for each in late.partitions] == [ErrorCode.unknown_topic_id]
    assert [each.error_code for each in own.partitions] == [OK]
