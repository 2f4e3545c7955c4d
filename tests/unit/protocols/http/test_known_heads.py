"""Heads of requests are found by their bytes, whatever their bodies have for a length."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from penstock.broker import Statistics
from penstock.protocols.http.connection import Connection, connection_class
from penstock.protocols.http.endpoints import Shortcut
from penstock.protocols.http.failures import Failures
from penstock.protocols.http.known_heads import Errand, KnownHeads, whole_request
from penstock.protocols.http.routing import Shapes, ShortWay


async def nothing(_names: object, _body: bytes) -> bytes:
    return b"{}"


ERRAND = Errand(Shortcut(nothing), {})


def request(body: bytes, *, length: str = "Content-Length: {}", more: str = "") -> bytes:
    return f"POST /x HTTP/1.1\r\n{length.format(len(body))}\r\n{more}\r\n".encode() + body


@pytest.mark.parametrize("more", ["", "Host: node\r\n"])
@pytest.mark.parametrize(
    "length", ["Content-Length: {}", "content-length: {}", "X-Strength: 4\r\nContent-Length: {}"]
)
def test_requests_that_differ_in_their_bodies_alone_have_one_head(length: str, more: str) -> None:
    heads = set()
    for body in (b"", b"1", b"\r\n\r\n", b"x" * 12_345):
        whole = whole_request(request(body, length=length, more=more))
        assert whole is not None
        assert whole[1] == body
        heads.add(whole[0])

    assert len(heads) == 1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(request(b"body")[:-1], id="a part of the body is missing"),
        pytest.param(request(b"body") + b"P", id="another one begins"),
        pytest.param(request(b"")[:-2], id="a part of the head is missing"),
        pytest.param(request(b"body", length="X: {}"), id="no length"),
        pytest.param(request(b"body", length="Strength: {}"), id="another name"),
        pytest.param(request(b"body", length="X-Content-Length: {}"), id="a longer name"),
        pytest.param(request(b"body", length="Content-Length: +{}"), id="a sign"),
        pytest.param(request(b"body", length="Content-Length: 4_"), id="no number"),
        pytest.param(request(b"body", length="Content-Length: " + "0" * 12 + "4"), id="long"),
        pytest.param(request(b"body", more="X-Strength: 4\r\n"), id="another number behind"),
    ],
)
def test_what_is_not_one_request_with_its_length_is_left_to_the_parser(data: bytes) -> None:
    assert whole_request(data) is None


def test_heads_with_other_headers_are_others() -> None:
    heads = [whole_request(request(b"", more=more)) for more in ("", "A: 1\r\n", "A: 2\r\n")]

    assert len({whole[0] for whole in heads if whole}) == 3


def test_too_many_heads_are_forgotten_and_long_ones_are_not_kept() -> None:
    known = KnownHeads()
    for number in range(3_000):
        known.learn((b"%d" % number, b""), ERRAND)
    known.learn((b"x" * 2_000, b"x" * 2_000), ERRAND)

    kept = [number for number in range(3_000) if known.find((b"%d" % number, b""))]
    assert kept == list(range(kept[0], 3_000))
    assert len(kept) <= 1_024
    assert known.find((b"x" * 2_000, b"x" * 2_000)) is None


# What may stand in a request that clients send again and again, and what makes it another one.
_HEADERS = (
    "Host: node",
    "X-Strength: 4",
    "ength: 3",
    "Authorization: Basic abc",
    "Connection: keep-alive",
    "Connection: close",
    "Connection: Upgrade\r\nUpgrade: h2c",
    "Expect: 100-continue",
    "Origin: http://elsewhere",
    "Transfer-Encoding: chunked",
    "Content-Length: 3",
)
_BODIES = (b"", b"123", b"\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n", b"ength: 5\r\n\r\nhello", b"x" * 300)


class Wire(asyncio.Transport):
    """Keeps what a connection answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = b""
        self._is_closed = False

    def write(self, data: Any) -> None:
        self.answers += b"" if self._is_closed else data

    def close(self) -> None:
        self._is_closed = True

    def is_closing(self) -> bool:
        return self._is_closed

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""


async def short(names: Mapping[str, str], body: bytes) -> bytes:
    return b"short %s %r" % (names["name"].encode(), body)


async def long(scope: Scope, receive: Receive, send: Send) -> None:
    body, has_more = b"", True
    while has_more:
        part = await receive()
        body, has_more = body + part.get("body", b""), part.get("more_body", False)
    answer = b"long %s %r" % (scope["path"].encode(), body)
    head = [(b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": answer})


def connections() -> type[Connection]:
    shortcuts: Shapes[Any] = Shapes()
    shortcuts.add("POST", "/{name}/put", Shortcut(short))
    return connection_class(ShortWay(shortcuts, Failures(Statistics())))


def some_request(random: Random) -> bytes:
    body = random.choice(_BODIES)
    lines = random.sample(_HEADERS, random.choice((0, 0, 1, 1, 2)))
    name = random.choice(("Content-Length", "content-length"))
    length = len(body) + (random.random() < 0.05)
    lines.insert(random.randint(0, len(lines)), f"{name}: {length}")
    path = random.choice(("/a/put", "/a/put", "/b/put", "/c"))
    data = bytearray("\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode() + body)
    if random.random() < 0.15:
        place = random.randrange(len(data))
        data[place : place + random.randrange(2)] = random.choice(
            (b"", b" ", b"\r", b"\n", b"0", b":")
        )
    return bytes(data)


async def answers_of(kind: type[Connection], parts: list[bytes]) -> bytes:
    """Send the parts one after the other, each when the one before is answered."""
    config = Config(long, http=kind, ws="none", lifespan="off", log_config=None)
    wire = Wire()
    connection = kind(config, ServerState(), {})
    connection.connection_made(wire)
    for part in parts:
        if not wire.is_closing():
            connection.data_received(part)
            for _ in range(30):
                await asyncio.sleep(0)
    connection.connection_lost(None)
    return wire.answers


@pytest.mark.parametrize("seed", range(4))
def test_requests_are_answered_alike_whether_or_not_their_heads_are_known(seed: int) -> None:
    async def scene() -> int:
        random = Random(seed)
        knowing, forgetful = connections(), connections()
        finds = 0
        find = knowing.known_heads.find

        def counted(head: Any) -> Errand | None:
            nonlocal finds
            errand = find(head)
            finds += errand is not None
            return errand

        knowing.known_heads.find = counted  # type: ignore[assignment]
        forgetful.known_heads.find = lambda *_: None  # type: ignore[assignment]
        for _ in range(300):
            parts = [some_request(random) for _ in range(3)]
            whole = b"".join(parts)
            cut = random.randrange(len(whole))
            if random.random() < 0.2:
                parts = [whole[:cut], whole[cut:]]
            elif random.random() < 0.2:
                parts = [parts[0][:cut], some_request(random), some_request(random)]

            assert await answers_of(knowing, parts) == await answers_of(forgetful, parts), parts
        return finds

    assert asyncio.run(scene()) > 50
