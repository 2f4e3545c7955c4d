"""Reads requests and writes answers: numbers in paths, JSON bodies, and whom changes come from."""

import asyncio
import re
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from penstock.errors import InvalidRequest
from penstock.protocols.http.allowed_values import allowed_instead
from penstock.protocols.http.contents import exact_number
from penstock.protocols.http.endpoints import (
    BODY_BYTES_MAX,
    JSON,
    Call,
    Endpoint,
    GuestDoor,
    Shortcut,
    WholeRequest,
)

NUMBER_MAX = 2**31 - 1
# Nobody reads this status; it is the one that proxies write into their logs.
_CALLER_LEFT = 499

Body = TypeVar("Body")

_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {}


encode_json = msgspec.json.Encoder().encode


def json_response(
    body: object, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Answer with JSON."""
    return Response(encode_json(body), status, headers, media_type=JSON)


def read_number(request: Request, name: str, *, most: int = NUMBER_MAX) -> int:
    """Return a number of the path, or raise `InvalidRequest`."""
    text: str = request.path_params[name]
    if re.fullmatch("[0-9]{1,19}", text) is None or int(text) > most:
        raise InvalidRequest(f"{name} is {text[:40]!r}, not a whole number in 0..{most}")
    return int(text)


def read_query_number(
    request: Request, name: str, *, default: int, least: int = 0, most: int = NUMBER_MAX
) -> int:
    """Return a number of the query, or raise `InvalidRequest`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if re.fullmatch("[0-9]{1,19}", text) is None or not least <= int(text) <= most:
        raise InvalidRequest(f"{name} is {text[:40]!r}, not a whole number in {least}..{most}")
    return int(text)


def read_count(request: Request, *, default: int, most: int) -> int:
    """Return how many the query asks for by `max`, or raise `InvalidRequest`."""
    return read_query_number(request, "max", default=default, least=1, most=most)


async def read_body(request: Request, kind: type[Body], *, bytes_max: int = BODY_BYTES_MAX) -> Body:
    """Decode the body of a request, or raise `InvalidRequest`; nothing stands for `{}`."""
    return decode_body(await read_bytes(request, bytes_max), kind)


def decode_body(body: bytes, kind: type[Body], *, name: str = "the body") -> Body:
    """Decode a body or a part of one, or raise `InvalidRequest`; nothing stands for `{}`."""
    try:
        decoder: msgspec.json.Decoder[Body] = _DECODERS.get(kind) or _new_decoder(kind)
        return decoder.decode(body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        shown = body[:200].decode(errors="replace")
        instead = allowed_instead(error, kind)
        raise InvalidRequest(f"{name} is {shown!r}: {error}{instead}") from error
    except RecursionError:
        shown = body[:200].decode(errors="replace")
        raise InvalidRequest(f"{name} is {shown!r}: it is nested too deeply") from None


async def read_bytes(request: Request, bytes_max: int) -> bytes:
    """Return the body as it is, or raise `InvalidRequest` when it is too large."""
    body = await _read_up_to(request, bytes_max)
    if len(body) > bytes_max:
        raise InvalidRequest(f"the body is larger than {bytes_max} bytes")
    return body


async def _read_up_to(request: Request, bytes_max: int) -> bytes:
    """Return the body; of one that is too large, a part that is too large itself."""
    _check_encoding(request)
    chunks = []
    size_bytes = 0
    try:
        async for chunk in request.stream():
            chunks.append(chunk)
            size_bytes += len(chunk)
            if size_bytes > bytes_max:
                break
    except ClientDisconnect:
        raise HTTPException(_CALLER_LEFT, "The caller left before all of its body came.") from None
    return b"".join(chunks)


def _check_encoding(request: Request) -> None:
    """Refuse a compressed body: a small one may be endless when it is unpacked."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise HTTPException(
            415,
            f"The body is sent with Content-Encoding: {encoding[:40]}; it must be sent as it is,"
            " without one.",
            headers={"Accept-Encoding": "identity"},
        )


def _new_decoder(kind: type[Body]) -> msgspec.json.Decoder[Body]:
    """Make the decoder of a body and keep it: to make it costs more than a small body does."""
    decoder = _DECODERS[kind] = msgspec.json.Decoder(kind, float_hook=exact_number)
    return decoder


def from_here(call: Call) -> Call:
    """Refuse what a browser sends for a page of another site.

    The port asks for no password as long as only trusted machines reach it, and a browser on one
    of them would lend that trust to any page.
    """

    async def checked(request: Request) -> Response:
        origin = request.headers.get("origin")
        host = request.headers.get("host")
        if origin is not None and _site_of(origin) != host:
            raise HTTPException(403, f"A page of {origin} may not change the cluster at {host}.")
        return await call(request)

    return checked


def _site_of(origin: str) -> str | None:
    """Return host and port of an origin; None when it is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def in_full(call: Call | Shortcut) -> Call:
    """Return what serves the requests that cannot take a shortcut."""
    if not isinstance(call, Shortcut):
        return call
    shortcut = call

    async def serve(request: Request) -> Response:
        body = await read_bytes(request, shortcut.body_bytes_max)
        answering = respond(request.path_params, body)
        if shortcut.is_for_callers_alone:
            return await _unless_left(request, answering)
        return await answering

    async def respond(names: Mapping[str, str], body: bytes) -> Response:
        answer = await shortcut.answer(names, body)
        return Response(answer, shortcut.status, media_type=JSON)

    return serve if shortcut.is_for_any_site else from_here(serve)


def knowing_its_query(endpoint: Endpoint) -> Call:
    """Return what serves an endpoint and refuses parameters that its query does not have.

    One that takes none lets pass what others may add, as those who collect metrics do.
    """
    call = in_full(endpoint.call)
    known = sorted(each.name for each in endpoint.parameters if each.place == "query")
    if not known:
        return call

    async def serve(request: Request) -> Response:
        for name in request.query_params:
            if name not in known:
                raise InvalidRequest(
                    f"{name[:40]!r} is no parameter of this request, which takes {', '.join(known)}"
                )
        return await call(request)

    return serve


def through(door: GuestDoor) -> Call:
    """Return what hands requests to a door of another protocol."""

    async def serve(request: Request) -> Response:
        url = request.url
        whole = WholeRequest(
            request.method,
            f"{url.scheme}://{url.netloc}",
            request.scope["raw_path"].decode(),
            url.query,
            request.headers,
            await _read_up_to(request, door.body_bytes_max),
        )
        if door.is_for_callers_alone(whole):
            return await _unless_left(request, respond(whole))
        return await respond(whole)

    async def respond(whole: WholeRequest) -> Response:
        answer = await door.answer(whole)
        return Response(answer.body, answer.status, answer.headers)

    return serve


async def _unless_left(request: Request, answering: Coroutine[Any, Any, Response]) -> Response:
    """Wait for an answer; give it up when the caller leaves, whose whole body was read."""
    answer = asyncio.create_task(answering)
    leaving = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((answer, leaving), return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else Response(status_code=_CALLER_LEFT)
    finally:
        answer.cancel()
        leaving.cancel()
