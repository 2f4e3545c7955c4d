"""`/v1/topics/{topic}/records`: read the log by offset or by time, without touching any group."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker import Record
from penstock.errors import InvalidRequest
from penstock.ids import TopicPartition
from penstock.protocols.http.contents import Encoding, show_headers, to_text
from penstock.protocols.http.endpoints import (
    FAILURES,
    TOPIC,
    Answer,
    Endpoint,
    Parameter,
    query,
    text_query,
)
from penstock.protocols.http.exchange import json_response, read_count, read_query_number
from penstock.protocols.http.times import read_moment_ms
from penstock.protocols.http.view import NodeView

RECORDS_MAX = 10_000
_RECORDS_DEFAULT = 100
_READ_BYTES = 4 * 1024 * 1024


class StoredRecord(Struct, frozen=True, kw_only=True):
    """A record as it stands in the log."""

    id: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: dict[str, str | None]
    encoding: Encoding | UnsetType = UNSET
    key_encoding: Encoding | UnsetType = UNSET
    raw_headers: (
        Annotated[
            list[tuple[str, str | None]],
            Meta(description="Names and base64, where a header repeats or is not text."),
        ]
        | UnsetType
    ) = UNSET


class StoredRecords(Struct, frozen=True, kw_only=True):
    """A stretch of one partition; `next_offset` continues it."""

    records: list[StoredRecord]
    next_offset: int
    end: Annotated[int, Meta(description="The offset after the last record of the partition.")]


def record_endpoints(view: NodeView) -> list[Endpoint]:
    """Reading without a group."""

    async def records(request: Request) -> Response:
        partition = read_query_number(request, "partition", default=0)
        place = TopicPartition(view.topics.find(request.path_params["topic"]).name, partition)
        count = read_count(request, default=_RECORDS_DEFAULT, most=RECORDS_MAX)
        start = await _start(view, request, place)
        begin_ms, end_ms = _moment(request, "from_time"), _moment(request, "to_time")
        found = await view.messages.read(
            place, offset=start, count_max=count, bytes_max=_READ_BYTES
        )
        _, end = await view.messages.bounds(place)
        return json_response(
            StoredRecords(
                # Producers date their records in any order.
                records=[
                    _show(partition, each)
                    for each in found
                    if (begin_ms is None or each.timestamp >= begin_ms)
                    and (end_ms is None or each.timestamp < end_ms)
                ],
                next_offset=found[-1].offset + 1 if found else start,
                end=end,
            )
        )

    return [
        Endpoint(
            path="/v1/topics/{topic}/records",
            name="records",
            summary="Read the log",
            description="From an offset or a time on, in the order of one partition. Groups are"
            " neither asked nor changed. With `to_time`, only records dated before it.",
            parameters=(
                TOPIC,
                query("partition", "Number of the partition, from 0; 0 if left out."),
                query("offset", "The first offset to read; the oldest if left out."),
                query("max", f"How many records, up to {RECORDS_MAX}."),
                _moment_query("from_time", "The first record at or after this time."),
                _moment_query("to_time", "Only records dated before this time."),
            ),
            answers={200: Answer(meaning="What was found.", body=StoredRecords), **FAILURES},
            call=records,
        )
    ]


def _moment_query(name: str, meaning: str) -> Parameter:
    return text_query(name, f"{meaning} Milliseconds since 1970, or ISO 8601.")


async def _start(view: NodeView, request: Request, place: TopicPartition) -> int:
    time_ms = _moment(request, "from_time")
    if "offset" in request.query_params:
        if time_ms is not None:
            raise InvalidRequest("offset and from_time were both given; one of them is enough")
        return read_query_number(request, "offset", default=0, most=2**63 - 1)
    if time_ms is not None:
        return await view.messages.find_offset(place, time_ms=time_ms)
    return (await view.messages.bounds(place))[0]


def _moment(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    return None if text is None else read_moment_ms(name, text)


def _show(partition: int, record: Record) -> StoredRecord:
    value, encoding = to_text(record.value)
    key, key_encoding = to_text(record.key)
    headers, raw_headers = show_headers(record.headers)
    return StoredRecord(
        id=f"{partition}-{record.offset}",
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=key,
        value=value,
        headers=headers,
        encoding=UNSET if encoding == "text" else encoding,
        key_encoding=UNSET if key_encoding == "text" else key_encoding,
        raw_headers=raw_headers,
    )
