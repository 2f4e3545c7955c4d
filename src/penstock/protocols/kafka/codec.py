"""Bytes of the Kafka protocol to typed requests, and typed answers back to bytes.

The schemas come from `kio`, one set of classes for each version of each API. Handlers speak one
version only, the *pivot* of their API: a request of another version is carried over to the pivot's
classes field by field, and an answer is carried back. Fields that the other version does not have
take their default, or are left out.
"""

import dataclasses
import datetime as dt
import io
import struct
import types
import typing
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

_FIXED_HEADER = struct.Struct(">hhih")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
API_VERSIONS_KEY = 18
NO_THROTTLE = i32Timedelta.parse(dt.timedelta(0))

Buffer = bytes | bytearray | memoryview


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """What stands before every request, and where the request itself begins."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """Read the header; flexible versions have tagged fields after the client id."""
    api_key, version, correlation_id, client_bytes = _FIXED_HEADER.unpack_from(frame)
    position = _FIXED_HEADER.size
    client_id = None
    if client_bytes >= 0:
        end = position + client_bytes
        client_id = str(frame[position:end], "utf-8")
        position = end
    if is_flexible(api_key, version):
        position = skip_tagged_fields(frame, position)
    return RequestHeader(api_key, version, correlation_id, client_id, position)


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """True when this version of an API uses compact types and tagged fields."""
    try:
        return bool(load_request_schema(api_key, version).__flexible__)
    except RuntimeError:
        # An unknown version is refused before its body matters.
        return False


def read_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the number at `position` and the position after it."""
    number = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7


def write_unsigned_varint(number: int) -> bytes:
    """Return a number as a varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def length_bytes(count: int, is_flexible: bool) -> bytes:
    """Return the length of an array or of bytes, in either family of versions."""
    return write_unsigned_varint(count + 1) if is_flexible else _INT32.pack(count)


def text_bytes(text: str | None, is_flexible: bool) -> bytes:
    """Return a string that may be null, in either family of versions."""
    if text is None:
        return b"\0" if is_flexible else _INT16.pack(-1)
    data = text.encode()
    if is_flexible:
        return write_unsigned_varint(len(data) + 1) + data
    return _INT16.pack(len(data)) + data


def milliseconds(duration: dt.timedelta) -> int:
    """Return a duration as the wire gives it."""
    return round(duration.total_seconds() * 1000)


def skip_tagged_fields(buffer: Buffer, position: int) -> int:
    """Return the position after a set of tagged fields."""
    count, position = read_unsigned_varint(buffer, position)
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position)
        size, position = read_unsigned_varint(buffer, position)
        position += size
    return position


def decode_request(frame: Buffer, header: RequestHeader) -> Any:
    """Return the request in the classes of its own version."""
    read = _request_reader(header.api_key, header.version)
    # The parser insists on read-only bytes; only Produce brings many, and it is read by hand.
    request, _ = read(bytes(frame), header.body_position)
    return request


@cache
def _request_reader(api_key: int, version: int) -> Callable[[bytes, int], tuple[Any, int]]:
    # Finding a schema costs more than reading a request with it.
    schema: type[Any] = load_request_schema(api_key, version)
    return entity_reader(schema)


def response_prefix(header: RequestHeader) -> bytes:
    """Return what stands between the size and the body of a response."""
    prefix = _INT32.pack(header.correlation_id)
    # ApiVersions is answered before versions are agreed on, so its header stays plain.
    if header.api_key != API_VERSIONS_KEY and is_flexible(header.api_key, header.version):
        prefix += b"\0"
    return prefix


def encode_response(header: RequestHeader, response: Any) -> bytes:
    """Return a whole frame; `response` may be of any version of the API."""
    return frame_bytes(header, encode_body(header.api_key, header.version, response))


def encode_body(api_key: int, version: int, response: Any) -> bytes:
    """Return an answer in the bytes of one version."""
    schema: type[Any] = load_response_schema(api_key, version)
    out = io.BytesIO()
    entity_writer(schema)(out, carry_over(response, schema))
    return out.getvalue()


def frame_bytes(header: RequestHeader, body: bytes) -> bytes:
    """Put size and header before a body."""
    prefix = response_prefix(header)
    return _INT32.pack(len(prefix) + len(body)) + prefix + body


def carry_over(entity: Any, target: type[Any]) -> Any:
    """Return `entity` in the classes of another version of the same message."""
    if type(entity) is target:
        return entity
    carry = _carriers.get((type(entity), target))
    if carry is None:
        carry = _carriers[type(entity), target] = _carrier(type(entity), target)
    return carry(entity)


_carriers: dict[tuple[type[Any], type[Any]], Callable[[Any], Any]] = {}


def _carrier(source: type[Any], target: type[Any]) -> Callable[[Any], Any]:
    """Return a function that copies the fields that both versions have."""
    source_fields = {field.name for field in dataclasses.fields(source)}
    hints = typing.get_type_hints(target)
    copies: list[tuple[str, Callable[[Any], Any]]] = []
    constants: dict[str, Any] = {}
    for field in dataclasses.fields(target):
        if field.name in source_fields:
            copies.append((field.name, _value_carrier(hints[field.name])))
        else:
            constants[field.name] = _default_of(field, hints[field.name])

    def carry(entity: Any) -> Any:
        values = {name: convert(getattr(entity, name)) for name, convert in copies}
        return target(**values, **constants)

    return carry


def _value_carrier(hint: Any) -> Callable[[Any], Any]:
    """Return a function that carries over the value of one field."""
    element = _entity_in(hint)
    if element is None:
        # A string that this version requires may be null in another, and the other way round.
        return _required_text if hint is str else _same
    return lambda value: _carry_nested(value, element)


def _carry_nested(value: Any, element: type[Any]) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(carry_over(item, element) for item in value)
    return carry_over(value, element)


def _same(value: Any) -> Any:
    return value


def _required_text(value: Any) -> Any:
    return "" if value is None else value


def _entity_in(hint: Any) -> type[Any] | None:
    """Return the message class inside `X`, `X | None` or `tuple[X, ...]`."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return hint
    for argument in typing.get_args(hint):
        found = _entity_in(argument)
        if found is not None:
            return found
    return None


def _default_of(field: dataclasses.Field[Any], hint: Any) -> Any:
    """Return what a field holds when the other version does not have it."""
    if field.default is not dataclasses.MISSING:
        return field.default
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    if issubclass(hint, uuid.UUID):
        return None
    if issubclass(hint, str):
        return ""
    if issubclass(hint, bytes):
        return b""
    if issubclass(hint, bool):
        return False
    if issubclass(hint, int):
        return 0
    return hint()
