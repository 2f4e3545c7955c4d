from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from penstock.errors import InvalidRequest
from penstock.protocols.http.contents import read_headers, show_headers, to_bytes, to_text
from penstock.protocols.http.exchange import decode_body


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        ("text", b"text"),
        ({"a": [1, 2]}, b'{"a":[1,2]}'),
        (3, b"3"),
        (False, b"false"),
        (None, None),
    ],
)
def test_a_string_is_text_and_other_json_is_compact(content: Any, stored: bytes | None) -> None:
    assert to_bytes("value", content, "text") == stored


def test_bytes_are_written_as_base64_in_both_directions() -> None:
    assert to_bytes("value", "/wA=", "base64") == b"\xff\x00"
    assert to_text(b"\xff\x00") == ("/wA=", "base64")


@pytest.mark.parametrize("content", ["/w", "?", 3, {}])
def test_what_is_not_base64_is_refused_by_name(content: Any) -> None:
    with pytest.raises(InvalidRequest, match="value is"):
        to_bytes("value", content, "base64")


def test_headers_are_an_object_as_long_as_that_loses_nothing() -> None:
    assert show_headers((("a", b"1"), ("b", None))) == ({"a": "1", "b": None}, UNSET)


@pytest.mark.parametrize("headers", [(("a", b"1"), ("a", b"2")), (("a", b"\xff"),)])
def test_headers_that_repeat_or_are_not_text_come_as_pairs_too(
    headers: tuple[tuple[str, bytes], ...],
) -> None:
    _, pairs = show_headers(headers)

    assert isinstance(pairs, list)
    assert [(name, to_bytes("", text, "base64")) for name, text in pairs] == list(headers)


def test_headers_can_be_given_as_pairs() -> None:
    assert read_headers([("a", "1"), ("a", None)]) == (("a", b"1"), ("a", None))


def test_a_body_that_is_not_text_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="can't decode byte 0xff"):
        decode_body(b'{"value": "\xff"}', dict)


class Body(msgspec.Struct):
    value: Any
    wait: float = 0.0


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (b"1.10", b"1.10"),
        (b"0.12345678901234567890123", b"0.12345678901234567890123"),
        (b"123456789012345678901234567890", b"123456789012345678901234567890"),
        (b"1e400", b"1E+400"),
        (b'{"price": [1.50, -0.0]}', b'{"price":[1.50,-0.0]}'),
    ],
)
def test_no_digit_of_a_number_is_lost(given: bytes, stored: bytes) -> None:
    body = decode_body(b'{"value": %s, "wait": 1.5}' % given, Body)

    assert to_bytes("value", body.value, "text") == stored
    assert body.wait == 1.5


def test_a_number_that_cannot_be_written_down_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="1e9999999999999999999 is out of range"):
        decode_body(b'{"value": 1e9999999999999999999}', Body)
