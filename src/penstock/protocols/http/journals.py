"""`/v1/topics/{topic}/journal`: what happened to the messages of one partition, in bulk."""

from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker import JournalEntry, JournalKind
from penstock.ids import TopicPartition
from penstock.protocols.http.endpoints import FAILURES, TOPIC, Answer, Endpoint, query
from penstock.protocols.http.exchange import json_response, read_count, read_query_number
from penstock.protocols.http.view import NodeView

ENTRIES_MAX = 10_000
_ENTRIES_DEFAULT = 1000


class DeliveryEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of one queue group; offsets are half open, times are milliseconds since 1970."""

    index: int
    kind: JournalKind
    group: str
    at: int
    runs: Annotated[
        list[tuple[int, int, int]],
        Meta(description="Delivery, first offset, offset after the last; delivery -1: none."),
    ] = []
    failures: Annotated[
        list[tuple[int, int, str]], Meta(description="Delivery, offset, reason.")
    ] = []
    deliveries: Annotated[
        list[int], Meta(description="Deliveries whose leases ended at their deadline.")
    ] = []
    dropped: Annotated[
        list[tuple[int, int]], Meta(description="Offsets settled unread: too old, or gone.")
    ] = []
    until: Annotated[int, Meta(description="When the lease ends.")] = 0
    consumer: str = ""
    floor: Annotated[int, Meta(description="Where a group begins.")] = 0


class DeliveryJournal(Struct, frozen=True, kw_only=True):
    """A stretch of the journal; `next_index` continues it, until it is `end`."""

    entries: list[DeliveryEntry]
    start: int
    next_index: int
    end: int


def journal_endpoints(view: NodeView) -> list[Endpoint]:
    """Reading the journal."""

    async def journal(request: Request) -> Response:
        partition = read_query_number(request, "partition", default=0)
        place = TopicPartition(view.topics.find(request.path_params["topic"]).name, partition)
        count = read_count(request, default=_ENTRIES_DEFAULT, most=ENTRIES_MAX)
        index, since_ms = _optional(request, "index"), _optional(request, "since")
        page = await view.queues.journal(place, index=index, since_ms=since_ms, count_max=count)
        return json_response(
            DeliveryJournal(
                entries=[_show(entry) for entry in page.entries],
                start=page.start,
                next_index=page.next_index,
                end=page.end,
            )
        )

    return [
        Endpoint(
            path="/v1/topics/{topic}/journal",
            name="journal",
            summary="The delivery journal",
            description="What happened to the messages of one partition, in the order of its log,"
            " for all queue groups: leases, acks, returns, expiries, dead letters. It begins where"
            " the log begins, and may be read in pages by any number of readers.",
            parameters=(
                TOPIC,
                query("partition", "Number of the partition, from 0; 0 if left out."),
                query("index", "The first entry to read; the oldest if left out."),
                query("since", "In place of an index: begin with events of this time."),
                query("max", f"How many entries, up to {ENTRIES_MAX}; a page may hold fewer."),
            ),
            answers={200: Answer(meaning="What was found.", body=DeliveryJournal), **FAILURES},
            call=journal,
        )
    ]


def _optional(request: Request, name: str) -> int | None:
    if name not in request.query_params:
        return None
    return read_query_number(request, name, default=0, most=2**63 - 1)


def _show(entry: JournalEntry) -> DeliveryEntry:
    return DeliveryEntry(
        index=entry.index,
        kind=entry.kind,
        group=entry.group,
        at=entry.at_ms,
        runs=entry.runs,
        failures=entry.failures,
        deliveries=entry.deliveries,
        dropped=entry.dropped,
        until=entry.until_ms,
        consumer=entry.consumer,
        floor=entry.floor,
    )
