"""Format strings and JSON lines of `penstock consume`."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.formats import DEFAULT, compile_format, json_line
from penstock.client import Header, Message


def message(
    *,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: tuple[Header, ...] = (),
    timestamp_ms: int | None = 1_700_000_000_123,
) -> Message:
    return Message(
        topic="orders",
        partition=3,
        offset=42,
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
        headers=headers,
    )


def test_every_sign_writes_its_field() -> None:
    write = compile_format(r"%t|%p|%o|%k|%v|%T|%h|%%\t\\\n")
    headers = (Header("a", b"1"), Header("a", None))

    written = write(message(headers=headers))

    assert written == b"orders|3|42|k|v|1700000000123|a=1,a=|%\t\\\n"


def test_the_default_writes_the_value_and_a_line_break() -> None:
    assert compile_format(DEFAULT)(message(value=b"hello")) == b"hello\n"


def test_missing_keys_and_values_are_empty_and_a_missing_time_is_minus_one() -> None:
    write = compile_format("[%k][%v][%T]")

    assert write(message(key=None, value=None, timestamp_ms=None)) == b"[][][-1]"


@pytest.mark.parametrize("text", ["%z", "%", r"\x", "\\"])
def test_an_unknown_sign_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        compile_format(text)


@given(st.binary(), st.binary())
def test_keys_and_values_are_written_byte_for_byte(key: bytes, value: bytes) -> None:
    assert compile_format("%k%v")(message(key=key, value=value)) == key + value


@given(st.text(alphabet=st.characters(exclude_characters="%\\", exclude_categories=["Cs"])))
def test_plain_text_is_written_as_it_is(text: str) -> None:
    assert compile_format(text)(message()) == text.encode()


def test_a_json_line_holds_everything_that_is_known_of_a_message() -> None:
    line = json_line(message(key=None, headers=(Header("h", b"x"), Header("h", None))))

    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp_ms": 1_700_000_000_123,
        "timestamp": "2023-11-14T22:13:20.123Z",
        "key": None,
        "value": "v",
        "headers": [{"name": "h", "value": "x"}, {"name": "h", "value": None}],
    }


def test_bytes_that_are_no_text_become_base64_in_json() -> None:
    assert json.loads(json_line(message(value=b"\xff\x00")))["value"] == {"base64": "/wA="}


@given(st.binary())
def test_a_json_line_is_one_line_whatever_the_value_holds(value: bytes) -> None:
    assert json_line(message(value=value)).count(b"\n") == 1
