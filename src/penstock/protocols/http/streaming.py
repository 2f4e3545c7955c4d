"""`/v1/topics/{topic}/groups/{group}/stream`: messages are pushed as they become ready.

The stream is one of server-sent events: each message is an event `message` with the JSON that a
receive would answer with, and its id is the message's. `credits` messages of each partition may be
out at a time: each ack, nack or reject of one of them, and each lease that ends, lets the next one
come. A comment is sent when nothing happens, so that both sides notice when the other is gone. What
was sent to a client that went away comes back when its lease ends.
"""

import itertools
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.errors import InvalidRequest, ShuttingDown
from penstock.protocols.http.endpoints import (
    FAILURES,
    GROUP,
    TOPIC,
    Answer,
    Endpoint,
    query,
    text_query,
)
from penstock.protocols.http.exchange import read_query_number
from penstock.protocols.http.receiving import LEASE_MS_MAX, show_message
from penstock.protocols.http.times import read_duration_ms
from penstock.protocols.http.view import NodeView

CREDITS_MAX = 10_000
_CREDITS_DEFAULT = 100
_WAIT_MS = 15_000
_NUMBERS = itertools.count(1)


def streaming_endpoints(view: NodeView) -> list[Endpoint]:
    """The push stream."""

    async def stream(request: Request) -> Response:
        topic = view.topics.find(request.path_params["topic"]).name
        most = read_query_number(request, "credits", default=_CREDITS_DEFAULT, most=CREDITS_MAX)
        if most < 1:
            raise InvalidRequest(f"credits is {most}, not 1..{CREDITS_MAX}")
        lease = request.query_params.get("lease")
        lease_ms = None if lease is None else read_duration_ms("lease", lease, max_ms=LEASE_MS_MAX)
        group = request.path_params["group"]
        settings = view.queues.settings_of(topic, group)
        pushed = _push(view, topic, group, credits_max=most, lease_ms=lease_ms or settings.lease_ms)
        return StreamingResponse(
            pushed, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    return [
        Endpoint(
            path="/v1/topics/{topic}/groups/{group}/stream",
            name="stream",
            summary="Have messages pushed",
            description="Server-sent events, each with the JSON of one message. At most `credits`"
            " of each partition are out at a time; answers over ack, nack and reject let more"
            " come.",
            parameters=(
                TOPIC,
                GROUP,
                query("credits", f"Messages that may be out at a time, up to {CREDITS_MAX}."),
                text_query(
                    "lease", "How long each is out: 500ms, 30s, 5m; the group's own if left out."
                ),
            ),
            answers={
                200: Answer(meaning="Events, without end.", media_type="text/event-stream"),
                **FAILURES,
            },
            call=stream,
        )
    ]


async def _push(
    view: NodeView, topic: str, group: str, *, credits_max: int, lease_ms: int
) -> AsyncIterator[bytes]:
    consumer = f"stream-{view.node_id}-{next(_NUMBERS)}"
    while True:
        try:
            messages = await view.queues.receive(
                topic,
                group,
                count_max=credits_max,
                wait_ms=_WAIT_MS,
                lease_ms=lease_ms,
                consumer=consumer,
                consumer_in_flight_max=credits_max,
            )
        except ShuttingDown:
            return
        for message in messages:
            content = msgspec.json.encode(show_message(message))
            yield b"event: message\nid: %s\ndata: %s\n\n" % (message.id.encode(), content)
        if not messages:
            yield b": nothing new\n\n"
