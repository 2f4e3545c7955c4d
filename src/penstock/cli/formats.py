r"""How `penstock consume` writes a message: format strings in the manner of kcat, or JSON.

`%t` topic, `%p` partition, `%o` offset, `%k` key, `%v` value, `%T` timestamp in milliseconds, `%h`
headers as `name=value` separated by commas, `%%` a percent sign; `\n`, `\t`, `\r`, `\0` and `\\`.
Keys and values are written as the bytes they are; a missing one is empty.
"""

import base64
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.cli.output import encode_json
from penstock.cli.times import show_time

if TYPE_CHECKING:
    from penstock.client import Header, LeasedMessage, Message

Writer = Callable[["Message | LeasedMessage"], bytes]

DEFAULT = r"%v\n"

_TOKEN = re.compile(r"%(.?)|\\(.?)|([^%\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def compile_format(text: str) -> Writer:
    """Return a function that writes one message; an unknown sign is a `ValueError`."""
    parts = [_part(match) for match in _TOKEN.finditer(text)]
    return lambda message: b"".join(
        part if isinstance(part, bytes) else part(message) for part in parts
    )


def json_line(message: "Message | LeasedMessage") -> bytes:
    """Write a message as one line of JSON; bytes that are no text become `{"base64": ...}`."""
    body = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        "timestamp": show_time(message.timestamp_ms),
        "key": json_bytes(message.key),
        "value": json_bytes(message.value),
        "headers": json_headers(message.headers),
    }
    return encode_json(body) + b"\n"


def _part(match: re.Match[str]) -> bytes | Writer:
    sign, escape, plain = match.groups()
    if plain is not None:
        return plain.encode()
    if sign is not None:
        if sign == "%":
            return b"%"
        if sign not in _FIELDS:
            known = " ".join(f"%{each}" for each in _FIELDS)
            raise ValueError(f"%{sign} is not one of {known} %%")
        return _FIELDS[sign]
    if escape not in _ESCAPES:
        raise ValueError(rf"\{escape} is not one of \n \t \r \0 \\")
    return _ESCAPES[escape]


def _headers(message: "Message | LeasedMessage") -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in message.headers)


def json_headers(headers: "Sequence[Header]") -> list[dict[str, object]]:
    """Return headers for JSON, in their order."""
    return [{"name": name, "value": json_bytes(value)} for name, value in headers]


def json_bytes(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes for JSON: text, or `{"base64": ...}` where they are none."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


_FIELDS: dict[str, Writer] = {
    "t": lambda message: message.topic.encode(),
    "p": lambda message: str(message.partition).encode(),
    "o": lambda message: str(message.offset).encode(),
    "k": lambda message: message.key or b"",
    "v": lambda message: message.value or b"",
    "T": lambda message: str(-1 if message.timestamp_ms is None else message.timestamp_ms).encode(),
    "h": _headers,
}
