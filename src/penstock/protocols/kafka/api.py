"""What an API of the protocol is to a connection: a key, its versions, and how it is answered."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from kio.index import load_request_schema

from penstock.broker import Broker
from penstock.protocols.kafka.codec import (
    RequestHeader,
    carry_over,
    decode_request,
    encode_response,
)
from penstock.protocols.kafka.outbox import Part


class Client(NamedTuple):
    """Who sent a request."""

    client_id: str
    host: str


class Context(NamedTuple):
    """What a handler may use."""

    broker: Broker
    client: Client
    connection: int
    """The number of the client's connection, which no other one of the node has."""


class Request(msgspec.Struct, frozen=True):
    """One frame of a client."""

    header: RequestHeader
    frame: bytearray
    context: Context


Reply = Callable[[list[Part] | None], None]


@dataclass(frozen=True, slots=True)
class Api:
    """One API.

    `start` reads a request, raises when it makes no sense, and calls `reply` once, with the parts
    of the answer or None when there is to be none. APIs that are pipelined are started while
    earlier ones of their kind are still being answered; all others wait their turn. An API that may
    wait holds back its answer until something happens, so a node that stops does not wait for it.
    """

    key: int
    name: str
    version_min: int
    version_max: int
    start: Callable[[Request, Reply], asyncio.Task[None] | None]
    is_pipelined: bool = False
    may_wait: bool = False


def plain_api(
    key: int,
    name: str,
    versions: range,
    handle: Callable[[Any, Context], Awaitable[Any]],
    *,
    pivot: int | None = None,
    upgrade: Callable[[Any], Any] | None = None,
    downgrade: Callable[[Any, int], Any] | None = None,
    may_wait: bool = False,
) -> Api:
    """Return an API whose handler takes and gives messages of the `pivot` version.

    `upgrade` and `downgrade` bridge versions that are built differently; where only fields were
    added, nothing needs to be said.
    """
    pivot_version = versions[-1] if pivot is None else pivot

    async def answer(request: Request, message: Any, reply: Reply) -> None:
        response = await handle(message, request.context)
        if downgrade is not None:
            response = downgrade(response, request.header.version)
        reply([encode_response(request.header, response)])

    def start(request: Request, reply: Reply) -> asyncio.Task[None]:
        message = decode_request(request.frame, request.header)
        if upgrade is not None:
            message = upgrade(message)
        message = carry_over(message, load_request_schema(key, pivot_version))
        return asyncio.create_task(answer(request, message, reply))

    return Api(key, name, versions[0], versions[-1], start, may_wait=may_wait)
