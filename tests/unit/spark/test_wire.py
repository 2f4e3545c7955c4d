"""Fetch in the words of this room is Fetch in the words of a whole codec."""

import io

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.request import FetchRequest as WholeRequest
from kio.schema.fetch.v11.response import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.types import BrokerId, ProducerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta, i64

from penstock.errors import InvalidRequest
from penstock.spark.wire import FetchRequest, decode_fetch, encode_fetch

REQUEST = FetchRequest(
    topic="orders",
    partition=3,
    offset=1 << 40,
    size_bytes_max=1 << 20,
    wait_ms=500,
    is_committed_only=True,
)


def test_a_fetch_request_is_what_the_codec_reads() -> None:
    frame = encode_fetch(REQUEST, 17)
    header, position = entity_reader(RequestHeader)(frame[4:], 0)
    request, _ = entity_reader(WholeRequest)(frame[4:], position)

    (topic,) = request.topics
    (partition,) = topic.partitions
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (
        1,
        11,
        17,
    )
    assert (topic.topic, partition.partition, partition.fetch_offset) == ("orders", 3, 1 << 40)
    assert (request.max_bytes, partition.partition_max_bytes) == (1 << 20, 1 << 20)
    assert (request.isolation_level, request.session_epoch) == (1, -1)


def answer(records: bytes) -> memoryview:
    whole = FetchResponse(
        throttle_time=i32Timedelta.parse(__import__("datetime").timedelta(0)),
        error_code=ErrorCode.none,
        session_id=i32(0),
        responses=(
            FetchableTopicResponse(
                topic=TopicName("orders"),
                partitions=(
                    PartitionData(
                        partition_index=i32(3),
                        error_code=ErrorCode.none,
                        high_watermark=i64(90),
                        last_stable_offset=i64(80),
                        log_start_offset=i64(5),
                        aborted_transactions=(
                            AbortedTransaction(producer_id=ProducerId(8), first_offset=i64(2)),
                        ),
                        preferred_read_replica=BrokerId(-1),
                        records=records,
                    ),
                ),
            ),
        ),
    )
    out = io.BytesIO()
    out.write((17).to_bytes(4, "big"))
    entity_writer(FetchResponse)(out, whole)
    return memoryview(out.getvalue())


def test_a_fetch_answer_is_cut_where_the_codec_put_it() -> None:
    found = decode_fetch(answer(b"records"))

    assert (found.error_code, found.high_watermark, found.start_offset) == (0, 90, 5)
    assert (bytes(found.records), found.aborted) == (b"records", ((8, 2),))


def test_an_answer_that_is_cut_short_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a fetch answer of 30 bytes is cut short"):
        decode_fetch(answer(b"records")[:30])
