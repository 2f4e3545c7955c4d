"""Produce requests as the schemas write them, read by hand."""

import datetime as dt
import io
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_writer
from kio.static.primitive import i16, i32, i32Timedelta

from penstock.errors import InvalidRequest
from penstock.ids import TopicPartition
from penstock.protocols.kafka.produce import VERSIONS, decode_produce

SENT = {"orders": {0: b"first", 3: b""}, "päckchen": {7: b"x" * 300}}


def encoded(version: int, *, transactional_id: str | None = None) -> bytearray:
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
            for topic, partitions in SENT.items()
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


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_records_are_views_of_the_frame_that_can_be_stamped(version: int) -> None:
    frame = encoded(version)
    request = decode_produce(frame, len(b"header"), version)

    request.partitions[0].records[:5] = b"FIRST"
    assert b"FIRST" in frame


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_a_transaction_is_refused(version: int) -> None:
    with pytest.raises(InvalidRequest, match="transactions"):
        decode_produce(encoded(version, transactional_id="t"), len(b"header"), version)


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_a_field_that_passes_the_end_of_the_frame_is_refused(version: int) -> None:
    frame = encoded(version)
    end = frame.index(b"x" * 300) + 299
    with pytest.raises(InvalidRequest, match=r"300 bytes at .* passes the end of the frame"):
        decode_produce(frame[:end], len(b"header"), version)
