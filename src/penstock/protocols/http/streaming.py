"""`/v1/topics/{topic}/groups/{group}/stream`: messages are pushed as they become ready.

The stream is one of server-sent events: each message is an event `message` with the JSON that a
receive would answer with, and its id is the message's. `credits` messages of each partition may be
out at a time: each ack, nack or reject of one of them, and each lease that ends, lets the next one
come. A comment is sent when nothing happens, so that both sides notice when the other is gone. What
was sent to a client that went away comes back when its lease ends.

A client that reads slowly keeps messages waiting here while their leases run. What it has not
taken when half of the lease is over is not sent any more but given back, at no cost of an attempt
unless the lease has ended by then: it would reach the client when it is another's already.

What is wrong from the start is answered as for any request. What goes wrong later, such as the
deletion of the topic, is the last event, `error`, with the JSON of a failure.
"""

import itertools
from collections.abc import AsyncIterator, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.broker import Message, Nack
from penstock.errors import InvalidRequest, PenstockError, ShuttingDown
from penstock.protocols.http.answers import FailureAnswer
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
from penstock.protocols.http.failures import Failures
from penstock.protocols.http.receiving import LEASE_MS_MAX, show_message
from penstock.protocols.http.times import read_duration_ms
from penstock.protocols.http.view import NodeView

CREDITS_MAX = 10_000
_CREDITS_DEFAULT = 100
_WAIT_MS = 15_000
_NUMBERS = itertools.count(1)


def streaming_endpoints(view: NodeView, failures: Failures) -> list[Endpoint]:
    """The push stream."""

    async def stream(request: Request) -> Response:
        topic = view.topics.find(request.path_params["topic"]).name
        most = read_query_number(
            request, "credits", default=_CREDITS_DEFAULT, least=1, most=CREDITS_MAX
        )
        group = request.path_params["group"]
        lease_ms = _read_lease_ms(request)
        if lease_ms is None:
            lease_ms = view.queues.settings_of(topic, group).lease_ms
        source = _Source(view, topic, group, credits_max=most, lease_ms=lease_ms)
        pushed = _push(source, await source.receive(wait_ms=0), failures)
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
            " come. An event `error` ends the stream.",
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


def _read_lease_ms(request: Request) -> int | None:
    """Return the lease that the query asks for."""
    text = request.query_params.get("lease")
    if text is None:
        return None
    lease_ms = read_duration_ms("lease", text, max_ms=LEASE_MS_MAX)
    if lease_ms == 0:
        raise InvalidRequest(f"lease is {text!r}; messages would be pushed again without a pause")
    return lease_ms


class _Source:
    """Where the messages of a stream come from."""

    def __init__(
        self, view: NodeView, topic: str, group: str, *, credits_max: int, lease_ms: int
    ) -> None:
        self._queues = view.queues
        self._now_ms = view.now_ms
        self._topic = topic
        self._group = group
        self._credits_max = credits_max
        self._lease_ms = lease_ms
        self._consumer = f"stream-{view.node_id}-{next(_NUMBERS)}"

    async def receive(self, *, wait_ms: int) -> list[Message]:
        """Return what is ready, as far as there are credits."""
        return await self._queues.receive(
            self._topic,
            self._group,
            count_max=self._credits_max,
            wait_ms=wait_ms,
            lease_ms=self._lease_ms,
            consumer=self._consumer,
            consumer_in_flight_max=self._credits_max,
        )

    def is_late(self, message: Message) -> bool:
        """Whether too little is left of a message's lease for whoever gets it now."""
        return self._now_ms() > message.lease_until_ms - self._lease_ms // 2

    async def give_back(self, messages: Sequence[Message]) -> None:
        """Let messages be received again that were not sent; a lease that has ended is no loss."""
        nacks = [Nack(message.receipt, is_counted=False) for message in messages]
        await self._queues.nack(self._topic, self._group, nacks)


async def _push(
    source: _Source, messages: list[Message], failures: Failures
) -> AsyncIterator[bytes]:
    """Yield events: of the messages that are there, and then of those that come."""
    while True:
        late = len(messages)
        for number, message in enumerate(messages):
            if source.is_late(message):
                late = number
                break
            content = msgspec.json.encode(show_message(message))
            yield b"event: message\nid: %s\ndata: %s\n\n" % (message.id.encode(), content)
        try:
            if late < len(messages):
                await source.give_back(messages[late:])
            messages = await source.receive(wait_ms=_WAIT_MS)
        except ShuttingDown:
            return
        except PenstockError as error:
            answer = FailureAnswer(error=failures.of(error))
            yield b"event: error\ndata: %s\n\n" % msgspec.json.encode(answer)
            return
        if not messages:
            yield b": nothing new\n\n"
