"""Keys, values and headers as JSON: text where the bytes are text, base64 where they are not.

A value that is other JSON is stored compact, with all digits of its numbers.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import msgspec

from penstock.errors import InvalidRequest

Encoding = Literal["text", "base64"]
Headers = tuple[tuple[str, bytes | None], ...]

_encode = msgspec.json.Encoder(decimal_format="number").encode


def exact_number(text: str) -> Decimal:
    """Read a number with a fraction or an exponent so that no digit of it is lost."""
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"the number {text[:60]} is out of range") from None


def to_bytes(name: str, content: Any, encoding: Encoding) -> bytes | None:
    """Return what is stored: a text as UTF-8, other JSON compact, null as nothing."""
    if content is None:
        return None
    if encoding == "base64":
        return _from_base64(name, content)
    if isinstance(content, str):
        try:
            return content.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"{name} holds half a surrogate pair at {error.start}") from None
    return encode_content(name, content)


def encode_content(name: str, content: Any) -> bytes:
    """Return JSON as it is stored, or raise `InvalidRequest`."""
    try:
        return _encode(content)
    except RecursionError:
        raise InvalidRequest(f"{name} is nested too deeply") from None


def _from_base64(name: str, content: Any) -> bytes:
    if not isinstance(content, str):
        raise InvalidRequest(f"{name} is {type(content).__name__}, base64 is written as a string")
    try:
        return b64decode(content, validate=True)
    except (Base64Error, ValueError) as error:
        raise InvalidRequest(f"{name} is not base64: {error}") from None


def to_text(content: bytes | None) -> tuple[str | None, Encoding]:
    """Return stored bytes for JSON, and how they are written there."""
    if content is None:
        return None, "text"
    try:
        return content.decode(), "text"
    except UnicodeDecodeError:
        return b64encode(content).decode(), "base64"


def read_headers(headers: dict[str, str | None] | list[tuple[str, str | None]]) -> Headers:
    """Return headers that a caller gave as an object, or as pairs where a name repeats."""
    pairs = headers.items() if isinstance(headers, dict) else headers
    return tuple((name, to_bytes(f"header {name!r}", text, "text")) for name, text in pairs)


def show_headers(
    headers: Headers,
) -> tuple[dict[str, str | None], list[tuple[str, str | None]] | msgspec.UnsetType]:
    """Return headers as an object, and as pairs of name and base64 where that loses something."""
    shown: dict[str, str | None] = {}
    is_whole = True
    for name, content in headers:
        text, encoding = to_text(content)
        is_whole = is_whole and encoding == "text" and name not in shown
        shown[name] = text
    if is_whole:
        return shown, msgspec.UNSET
    return shown, [
        (name, None if content is None else b64encode(content).decode())
        for name, content in headers
    ]
