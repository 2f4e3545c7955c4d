"""Produce requests as the schemas write them, read by hand, and answers the other way round."""

import datetime as dt
import io
from collections.abc import Mapping
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i32Timedelta

from penstock.errors import InvalidAcks, InvalidRecords, InvalidRequest
from penstock.ids import TopicPartition
from penstock.protocols.kafka.produce import (
    VERSIONS,
    PartitionAnswer,
    decode_produce,
    encode_answers,
)

SENT = {"orders": {0: b"first", 3: b""}, "päckchen": {7: b"x" * 300}}


def encoded(
    version: int,
    *,
    transactional_id: str | None = None,
    sent: Mapping[str, Mapping[int, bytes]] = SENT,
) -> bytearray:
    schema: Any = load_request_schema(0, version)
    module = __import__(schema.__module__, fromlist=["TopicProduceData", "PartitionProduceData"])
    request = schema(
        transactional_id=transactional_id,
        acks=i16(-1),
        timeout=i32Timedelta.parse(dt.timedelta(milliseconds=1500)),
        topic_data=tuple(
            module.TopicProduceData(
                name=topic,
                partition_data=tuple(
                    module.PartitionProduceData(index=i32(number), records=records)
                    for number, records in partitions.items()
                ),
            )
            for topic, partitions in sent.items()
        ),
    )
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, request)
    return bytearray(b"header" + buffer.getvalue())


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_read(version: int) -> None:
    request = decode_produce(encoded(version), len(b"header"), version)

    assert (request.acks, request.timeout_ms) == (-1, 1500)
    assert [(each.place, bytes(each.records)) for each in request.partitions] == [
        (TopicPartition(topic, number), records)
        for topic, partitions in SENT.items()
        for number, records in partitions.items()
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "sent",
    [
        {"orders": {0: b"first"}},
        {"orders": {0: b"second, and longer" * 20}},
        {"orders": {7: b"first"}},
        {"other": {0: b"first"}},
        {"orders": {0: b""}},
        {"x" * 126: {0: b"first"}},
        {"x" * 127: {0: b"first"}},
        {"x" * 249: {0: b"first"}},
        {"x" * 400: {0: b"first"}},
        {"": {0: b"first"}},
        {"orders": {0: b"first", 1: b"second"}},
        {"orders": {}},
        {},
    ],
)
def test_what_a_request_brings_does_not_depend_on_those_before(
    version: int, sent: Mapping[str, Mapping[int, bytes]]
) -> None:
    for _ in range(2):
        request = decode_produce(encoded(version, sent=sent), len(b"header"), version)

        assert (request.acks, request.timeout_ms) == (-1, 1500)
        assert [(each.place, bytes(each.records)) for each in request.partitions] == [
            (TopicPartition(topic, number), records)
            for topic, partitions in sent.items()
            for number, records in partitions.items()
        ]


@pytest.mark.parametrize("sent", [SENT, {"orders": {0: b"first"}}])
@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_records_are_views_of_the_frame_that_can_be_stamped(
    version: int, sent: Mapping[str, Mapping[int, bytes]]
) -> None:
    frame = encoded(version, sent=sent)
    request = decode_produce(frame, len(b"header"), version)

    request.partitions[0].records[:5] = b"FIRST"
    assert b"FIRST" in frame


@pytest.mark.parametrize("sent", [SENT, {"orders": {0: b"first"}}])
@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_a_transaction_is_refused(version: int, sent: Mapping[str, Mapping[int, bytes]]) -> None:
    frame = encoded(version, transactional_id="t", sent=sent)
    with pytest.raises(InvalidRequest, match="transactions"):
        decode_produce(frame, len(b"header"), version)


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_a_field_that_passes_the_end_of_the_frame_is_refused(version: int) -> None:
    frame = encoded(version)
    end = frame.index(b"x" * 300) + 299
    with pytest.raises(InvalidRequest, match=r"300 bytes at .* passes the end of the frame"):
        decode_produce(frame[:end], len(b"header"), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_name_the_records_that_are_refused_where_the_version_has_room(version: int) -> None:
    faults = {0: "too early", 7: "too läte"}
    answers = [
        PartitionAnswer(TopicPartition("orders", 0), 5, -1, 2, None),
        PartitionAnswer(TopicPartition("orders", 1), -1, -1, -1, InvalidRecords.of(faults)),
        PartitionAnswer(TopicPartition("other", 2), -1, -1, -1, InvalidAcks("acks is 3")),
    ]

    for told in (answers, answers[1:2]):
        body = encode_answers(told, version)
        response, end = entity_reader(load_response_schema(0, version))(body, 0)

        assert end == len(body)
        found = {
            each.index: each for topic in response.responses for each in topic.partition_responses
        }
        assert found[1].error_code is ErrorCode.invalid_record
        if version >= 8:
            assert {
                each.batch_index: each.batch_index_error_message for each in found[1].record_errors
            } == faults
            assert "record 0 of the batch: too early, and 1 more" in found[1].error_message
            assert all(not each.record_errors for number, each in found.items() if number != 1)
