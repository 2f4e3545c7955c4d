"""The short way of the HTTP port answers as the long way does, and both share a connection."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from penstock.broker import Statistics
from penstock.errors import InvalidRequest, NotLeader, PenstockError
from penstock.protocols.http import serve_http
from penstock.protocols.http.endpoints import GuestDoor, Shortcut, WholeRequest
from penstock.protocols.http.exchange import in_full, through
from penstock.protocols.http.failures import Failures, status_of
from penstock.protocols.http.routing import Shapes, ShortWay

LIMIT_BYTES = 1_000_000
WAIT_S = 120


async def short(path: Mapping[str, str], body: bytes) -> bytes:
    match body:
        case b"bad":
            raise InvalidRequest("this is bad")
        case b"busy":
            raise NotLeader("nobody leads")
        case b"broken":
            raise RuntimeError("a fault of ours")
        case b"slow":
            await asyncio.sleep(0.2)
    return b'{"name":"%s","size":%d}' % (path["name"].encode(), len(body))


async def long(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"long {len(await request.body())}")


async def wait(_path: Mapping[str, str], _body: bytes) -> bytes:
    try:
        await asyncio.sleep(WAIT_S)
    except asyncio.CancelledError:
        GIVEN_UP[-1].set()
        raise
    return b"{}"


class Told(NamedTuple):
    """What a guest answers: all that it was told."""

    status: int
    headers: dict[str, str]
    body: bytes


async def guest(request: WholeRequest) -> Told:
    if len(request.body) > LIMIT_BYTES:
        return Told(413, {"Content-Type": "text/plain"}, b"too large")
    if request.body == b"broken":
        raise RuntimeError("a fault of the guest")
    if request.body == b"wait":
        await wait({}, b"")
    parts = (request.method, request.site, request.path, request.query, request.headers["x-of"])
    return Told(418, {"Content-Type": "text/plain", "X-To": "you"}, "|".join(parts).encode())


# Set when a wait is given up; each test has one of its own.
GIVEN_UP: list[asyncio.Event] = []
SHORTCUT = Shortcut(short, LIMIT_BYTES)
WAIT = Shortcut(wait, LIMIT_BYTES, is_for_callers_alone=True)
GUEST = GuestDoor(guest, LIMIT_BYTES, lambda request: request.body == b"wait")
SHORTCUTS: Shapes[Shortcut | GuestDoor] = Shapes()
SHORTCUTS.add("POST", "/things/{name}/put", SHORTCUT)
SHORTCUTS.add("POST", "/wait", WAIT)
SHORTCUTS.add("POST", "/", GUEST)
STATISTICS = Statistics()
SHORT_WAY = ShortWay(SHORTCUTS, Failures(STATISTICS))


async def in_words(request: Request) -> PlainTextResponse:
    """The same endpoint, when it is not reached by the short way."""
    answer = await in_full(SHORTCUT)(request)
    return PlainTextResponse(b"in full " + bytes(answer.body), answer.status_code)


async def refused(_request: Request, error: Exception) -> PlainTextResponse:
    assert isinstance(error, PenstockError)
    return PlainTextResponse(str(error), status_of(error))


APP = Starlette(
    exception_handlers={PenstockError: refused},
    routes=[
        Route("/things/{name}/put", in_words, methods=["POST"]),
        Route("/long", long, methods=["GET", "POST"]),
        Route("/wait", in_full(WAIT), methods=["POST"]),
        Route("/", through(GUEST), methods=["POST"]),
    ],
)

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def converse(talk: Talk) -> None:
    """Connect to a server and talk to it."""

    async def scenario() -> None:
        server = await serve_http(APP, "127.0.0.1", 0, short_way=SHORT_WAY)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            async with asyncio.timeout(WAIT_S):
                await talk(reader, writer)
            writer.close()
        finally:
            await server.stop()

    asyncio.run(scenario())


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: node", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


def test_a_plain_request_takes_the_short_way() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(post("/things/a/put", b"123"))
        status, headers, body = await answer_of(reader)

        assert (status, body) == (200, b'{"name":"a","size":3}')
        assert headers["content-type"] == "application/json"
        assert "date" in headers
        assert "connection" not in headers

    converse(talk)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 60_000])
def test_a_request_may_come_in_pieces(chunk_bytes: int) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = post("/things/a/put", b"x" * (40 if chunk_bytes < 10 else LIMIT_BYTES))
        for start in range(0, len(request), chunk_bytes):
            writer.write(request[start : start + chunk_bytes])
            await asyncio.sleep(0)

        assert (await answer_of(reader))[0] == 200

    converse(talk)


@pytest.mark.parametrize("pause_at", [None, 5, 60, -2])
def test_a_head_that_is_known_is_answered_as_the_first_time(pause_at: int | None) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for size in (1, 1, 250, 0, 40_000, 1):
            request = post("/things/a/put", b"x" * size)
            writer.write(request[:pause_at])
            if pause_at is not None:
                await asyncio.sleep(0.01)
                writer.write(request[pause_at:])

            assert (await answer_of(reader))[2] == b'{"name":"a","size":%d}' % size
        writer.write(post("/things/b/put", b""))
        assert (await answer_of(reader))[2] == b'{"name":"b","size":0}'

    converse(talk)


def test_requests_with_known_heads_that_are_sent_ahead_are_answered_in_their_order() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for name in ("a", "b"):
            writer.write(post(f"/things/{name}/put", b""))
            await answer_of(reader)
        writer.write(post("/things/a/put", b"slow"))
        await asyncio.sleep(0.01)
        writer.write(post("/things/b/put", b""))
        await asyncio.sleep(0.01)
        writer.write(post("/things/a/put", b"1") + post("/things/b/put", b"12"))
        bodies = [(await answer_of(reader))[2] for _ in range(4)]

        assert [body.removeprefix(b"in full ") for body in bodies] == [
            b'{"name":"a","size":4}',
            b'{"name":"b","size":0}',
            b'{"name":"a","size":1}',
            b'{"name":"b","size":2}',
        ]

    converse(talk)


def test_a_known_head_with_a_body_above_the_limit_is_refused() -> None:
    limited = Shapes[Shortcut | GuestDoor]()
    limited.add("POST", "/things/{name}/put", Shortcut(short, 3))

    async def scenario() -> None:
        short_way = ShortWay(limited, Failures(STATISTICS))
        server = await serve_http(APP, "127.0.0.1", 0, short_way=short_way)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        found = []
        for size in (3, 3, 4, 3):
            writer.write(post("/things/a/put", b"x" * size))
            found.append((await answer_of(reader))[2])

        assert found == [
            b'{"name":"a","size":3}',
            b'{"name":"a","size":3}',
            # The long way knows another limit here.
            b'in full {"name":"a","size":4}',
            b'{"name":"a","size":3}',
        ]
        writer.close()
        await server.stop()

    asyncio.run(scenario())


def test_requests_that_are_sent_ahead_are_answered_in_their_order() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            post("/things/a/put", b"slow")
            + post("/long", b"12")
            + post("/things/b/put", b"")
            + post("/things/c/put", b"bad")
        )
        bodies = [(await answer_of(reader))[2] for _ in range(4)]

        assert bodies[:2] == [b'{"name":"a","size":4}', b"long 2"]
        assert bodies[2:] == [b'in full {"name":"b","size":0}', b"this is bad"]
        writer.write(post("/things/d/put", b""))
        assert (await answer_of(reader))[2] == b'{"name":"d","size":0}'

    converse(talk)


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(post("/things/a%62/put", b"1"), id="an escape"),
        pytest.param(post("/things/ab/put?x=1", b"1"), id="a query"),
        pytest.param(
            b"POST /things/ab/put HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"1\r\n1\r\n0\r\n\r\n",
            id="chunks",
        ),
        pytest.param(post("/things/ab/put", b"1", "Origin: http://node"), id="a page of our own"),
        pytest.param(post("/things/ab/put", b"1", "Content-Encoding: identity"), id="an encoding"),
    ],
)
def test_whatever_is_not_plain_takes_the_long_way_to_the_same_answer(request_bytes: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request_bytes)
        assert (await answer_of(reader))[2] == b'in full {"name":"ab","size":1}'

    converse(talk)


OFFERS = {
    "as Java does": ("Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAEA", "Upgrade: h2c"),
    "a WebSocket": ("Connection: keep-alive, Upgrade", "Upgrade: websocket", "Origin: http://node"),
}


@pytest.mark.parametrize("chunk_bytes", [1_000, 7])
@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
def test_a_client_that_offers_another_protocol_is_answered_in_this_one(
    offer: tuple[str, ...], chunk_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    sent = (
        post("/things/a/put", b"before")
        + post("/things/b/put", b"body", *offer)
        + post("/things/c/put", b"", *offer, "Connection: close")
    )

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for start in range(0, len(sent), chunk_bytes):
            writer.write(sent[start : start + chunk_bytes])
            await asyncio.sleep(0)
        bodies = [(await answer_of(reader))[2] for _ in range(3)]

        assert bodies[0] == b'{"name":"a","size":6}'
        assert [body.removeprefix(b"in full ") for body in bodies[1:]] == [
            b'{"name":"b","size":4}',
            b'{"name":"c","size":0}',
        ]
        assert await reader.read() == b""

    converse(talk)

    assert caplog.records == []


@pytest.mark.parametrize(
    "more",
    [(), ("Origin: http://page",), ("Expect: 100-continue",), *OFFERS.values()],
    ids=["", "from a page", "waiting for a sign", *OFFERS],
)
def test_a_node_is_no_proxy(more: tuple[str, ...]) -> None:
    lines = ["CONNECT node:443 HTTP/1.1", "Host: node:443", *more, "", ""]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join(lines).encode())
        assert (await answer_of(reader))[0] in (400, 404)

    converse(talk)


@pytest.mark.parametrize("detour", ["", "Origin: http://page"])
def test_a_guest_is_told_everything_and_answers_in_its_own_way(detour: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        headers = ["X-Of: me", *([detour] if detour else [])]
        # The next request must not change what the guest is told about this one.
        writer.write(post("/", b"1", *headers) + post("/things/a/put", b"", "X-Of: another"))
        status, told, body = await answer_of(reader)

        assert (status, told["content-type"], told["x-to"]) == (418, "text/plain", "you")
        assert body == b"POST|http://node|/||me"
        assert (await answer_of(reader))[0] == 200
        writer.write(post("/", b"broken", *headers))
        assert (await answer_of(reader))[0] == 500

    converse(talk)


def test_a_guest_refuses_what_is_too_large_itself() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(post("/", b"x" * (LIMIT_BYTES + 1), "X-Of: me"))
        assert (await answer_of(reader))[0] == 413

    converse(talk)


def test_a_client_may_ask_before_it_sends_the_body() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = post("/things/a/put", b"12", "Expect: 100-continue")
        writer.write(request[:-2])
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")

        writer.write(request[-2:])
        assert (await answer_of(reader))[2] == b'in full {"name":"a","size":2}'

    converse(talk)


def test_a_body_above_the_limit_is_refused_before_all_of_it_has_come() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"POST /things/a/put HTTP/1.1\r\nHost: node\r\nContent-Length: {10**9}\r\n\r\n"
        writer.write(head.encode() + b"x" * (LIMIT_BYTES + 1))

        status, _, body = await answer_of(reader)
        assert (status, body) == (400, f"the body is larger than {LIMIT_BYTES} bytes".encode())

    converse(talk)


def test_errors_are_answered_from_the_table_and_the_connection_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = []
        for body in (b"bad", b"busy", b"broken", b""):
            writer.write(post("/things/a/put", body))
            found.append(await answer_of(reader))

        assert [status for status, _, _ in found] == [400, 503, 500, 200]
        assert b"this is bad" in found[0][2]
        assert found[1][1]["retry-after"] == "1"
        assert b"fault of ours" not in found[2][2]

    STATISTICS.errors.clear()
    with caplog.at_level(logging.ERROR):
        converse(talk)
    assert "a fault of ours" in caplog.text
    assert STATISTICS.errors == {
        ("http", "InvalidRequest"): 1,
        ("http", "NotLeader"): 1,
        ("http", "InternalError"): 1,
    }


def test_a_client_that_wants_the_connection_closed_gets_that() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(post("/things/a/put", b"", "Connection: close"))
        assert (await answer_of(reader))[1]["connection"] == "close"
        assert await reader.read() == b""

    converse(talk)


def test_a_server_that_stops_gives_the_answers_that_it_owes() -> None:
    async def scenario() -> None:
        server = await serve_http(APP, "127.0.0.1", 0, short_way=SHORT_WAY)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(post("/things/a/put", b"slow"))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(WAIT_S):
            await server.stop()
            _, headers, body = await answer_of(reader)

        assert body == b'{"name":"a","size":4}'
        assert headers["connection"] == "close"
        assert await reader.read() == b""
        writer.close()

    asyncio.run(scenario())


def test_a_connection_is_closed_when_it_has_been_idle_for_long_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.protocols.http.server.KEEP_ALIVE_S", 1)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(4):
            writer.write(post("/things/a/put", b"slow"))
            assert (await answer_of(reader))[0] == 200
            await asyncio.sleep(0.3)
        head, body = post("/things/a/put", b"12"), 2
        writer.write(head[:-body])
        # Longer than an idle connection is kept: a request that is being sent is not cut off.
        await asyncio.sleep(1.5)
        writer.write(head[-body:])
        assert (await answer_of(reader))[0] == 200
        assert await reader.read() == b""

    converse(talk)


def test_a_client_that_sends_nothing_more_is_answered_before_the_end() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(post("/things/anna/put", b"slow"))
        writer.write_eof()

        assert (await answer_of(reader))[0] == 200
        assert await reader.read() == b""

    converse(talk)


def test_a_wait_ends_without_an_answer_when_its_client_sends_nothing_more() -> None:
    GIVEN_UP.append(asyncio.Event())

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(post("/wait", b"{}"))
        writer.write_eof()

        assert await reader.read() == b""

    converse(talk)


def test_a_client_that_leaves_before_its_answer_disturbs_nobody() -> None:
    async def scenario() -> None:
        server = await serve_http(APP, "127.0.0.1", 0, short_way=SHORT_WAY)
        _, leaving = await asyncio.open_connection("127.0.0.1", server.port)
        leaving.write(post("/things/a/put", b"slow"))
        await asyncio.sleep(0.05)
        leaving.transport.abort()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(post("/things/b/put", b"slow"))
        async with asyncio.timeout(WAIT_S):
            assert (await answer_of(reader))[0] == 200
            writer.close()
            await server.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["/things/a/put", "/things/a/put?x=1", "/", "/?x=1"])
def test_a_client_that_leaves_before_all_of_its_body_came_is_no_fault_of_ours(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(post(path, b"half of it")[:-5])
        await asyncio.sleep(0.05)
        writer.transport.abort()
        await asyncio.sleep(0.05)

    converse(talk)

    assert caplog.records == []


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(post("/wait", b""), id="the short way"),
        pytest.param(post("/wait?x=1", b""), id="the long way"),
        pytest.param(post("/", b"wait", "X-Of: me"), id="a guest"),
        pytest.param(post("/?x=1", b"wait", "X-Of: me"), id="a guest on the long way"),
    ],
)
def test_what_is_for_its_caller_alone_is_given_up_when_the_caller_leaves(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        GIVEN_UP.append(asyncio.Event())
        writer.write(request_bytes)
        await asyncio.sleep(0.05)
        assert not GIVEN_UP[-1].is_set()
        writer.transport.abort()
        await GIVEN_UP[-1].wait()

    converse(talk)

    assert caplog.records == []
