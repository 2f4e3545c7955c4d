"""A push stream and a client that is slow to take what it is sent."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import StreamingResponse

from penstock.broker import Message, Nack, Statistics
from penstock.protocols.http.failures import Failures
from penstock.protocols.http.streaming import streaming_endpoints
from penstock.protocols.http.view import NodeView

LEASE_MS = 30_000


class FakeQueues:
    """Three messages, and again whatever was given back."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.ready = [0, 1, 2]
        self.given_back: list[Nack] = []

    def settings_of(self, _topic: str, _group: str) -> Any:
        return SimpleNamespace(lease_ms=LEASE_MS)

    async def receive(self, _topic: str, _group: str, **_limits: Any) -> list[Message]:
        offsets, self.ready = self.ready, []
        return [self._lease(offset) for offset in offsets]

    async def nack(self, _topic: str, _group: str, items: Sequence[Nack]) -> list[None]:
        self.given_back += items
        self.ready += [int(item.receipt) for item in items]
        return [None for _ in items]

    def _lease(self, offset: int) -> Message:
        return Message(
            topic="t",
            partition=0,
            offset=offset,
            id=f"0-{offset}",
            receipt=str(offset),
            attempt=1,
            first_delivered_ms=self.now_ms,
            lease_until_ms=self.now_ms + LEASE_MS,
            timestamp=0,
            priority=4,
            key=None,
            value=b"",
            headers=(),
        )


async def opened(queues: FakeQueues) -> AsyncIterator[bytes]:
    view = SimpleNamespace(
        node_id=1,
        queues=queues,
        topics=SimpleNamespace(find=lambda name: SimpleNamespace(name=name)),
        now_ms=lambda: queues.now_ms,
    )
    (endpoint,) = streaming_endpoints(cast("NodeView", view), Failures(Statistics()))
    path = {"topic": "t", "group": "g"}
    scope = {"type": "http", "query_string": b"", "headers": [], "path_params": path}
    response = await cast("Any", endpoint.call)(Request(scope))
    assert isinstance(response, StreamingResponse)
    return cast("AsyncIterator[bytes]", response.body_iterator)


def test_a_slow_reader_is_not_sent_what_it_left_lying_for_half_of_the_lease() -> None:
    async def scenario() -> tuple[FakeQueues, list[Any]]:
        queues = FakeQueues()
        events = await opened(queues)
        seen = [await anext(events)]
        queues.now_ms += LEASE_MS // 2
        seen.append(await anext(events))
        queues.now_ms += 1
        seen.append(await anext(events))
        return queues, [json.loads(event.split(b"data: ")[1]) for event in seen]

    queues, seen = asyncio.run(scenario())

    assert [each["id"] for each in seen] == ["0-0", "0-1", "0-2"]
    assert queues.given_back == [Nack("2", is_counted=False)]
    assert seen[2]["lease_until"] == queues.now_ms + LEASE_MS
