"""Heads of requests are found by their bytes, whatever their bodies have for a length."""

import pytest

from penstock.protocols.http.endpoints import Shortcut
from penstock.protocols.http.known_heads import Errand, KnownHeads, whole_request


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
