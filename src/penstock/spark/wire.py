"""Bytes of the Kafka protocol, for a client that wants record batches as they are.

Requests and answers have the schemas of `kio`, except Fetch and Produce: they are cut by hand, so
that record bytes stay where they are. Both are spoken in the newest version without compact types,
which every broker of the last years answers.
"""

import io
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32

from penstock.errors import InvalidRequest

CLIENT_ID = "penstock-spark"
FETCH_KEY = 1
FETCH_VERSION = 11
PRODUCE_KEY = 0
PRODUCE_VERSION = 8
SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
_FETCH = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqqi")
_ANSWER = struct.Struct(">ihi")
_ANSWER_PARTITION = struct.Struct(">ihqqq")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ABORTED = struct.Struct(">qq")
_PRODUCE = struct.Struct(">hhii")
_PRODUCE_PARTITION = struct.Struct(">iii")
_PRODUCED = struct.Struct(">ihqqq")
_ALL_REPLICAS = -1
_CONSUMER = -1
_NO_SESSION = (0, -1)
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """Asks for records of one partition from `offset` on."""

    topic: str
    partition: int
    offset: int
    size_bytes_max: int
    wait_ms: int
    is_committed_only: bool = False


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """What one partition answered; `records` is a view of the frame.

    `aborted` names transactions that were taken back, by producer id and first offset.
    """

    error_code: int
    high_watermark: int
    start_offset: int
    records: memoryview
    aborted: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    """What became of one batch; the message may say more than the code."""

    error_code: int
    base_offset: int
    message: str


def encode_request(message: Any, correlation_id: int) -> bytes:
    """Return the frame of a `kio` request, with its size in front."""
    header_schema = load_request_schema(message.__api_key__, message.__version__).__header_schema__
    header: Any = header_schema(
        request_api_key=i16(message.__api_key__),
        request_api_version=i16(message.__version__),
        correlation_id=i32(correlation_id),
        client_id=CLIENT_ID,
    )
    out = io.BytesIO()
    entity_writer(header_schema)(out, header)
    entity_writer(type(message))(out, message)
    return SIZE.pack(out.tell()) + out.getvalue()


def decode_answer(request_type: Any, frame: memoryview) -> Any:
    """Return the `kio` answer in a frame to a request of that type."""
    read_header, read = _readers(request_type.__api_key__, request_type.__version__)
    data = bytes(frame)
    _, position = read_header(data, 0)
    answer, _ = read(data, position)
    return answer


@cache
def _readers(key: int, version: int) -> tuple[Any, Any]:
    schema: Any = load_response_schema(key, version)
    return entity_reader(schema.__header_schema__), entity_reader(schema)


def correlation_id_of(frame: memoryview) -> int:
    """Return the number of the request that a frame answers."""
    return int(_INT32.unpack_from(frame)[0])


def encode_fetch(request: FetchRequest, correlation_id: int) -> bytes:
    """Return the frame of a Fetch for one partition, with its size in front."""
    body = b"".join(
        (
            _HEADER.pack(FETCH_KEY, FETCH_VERSION, correlation_id, len(CLIENT_ID)),
            CLIENT_ID.encode(),
            _FETCH.pack(
                _CONSUMER,
                request.wait_ms,
                1,
                request.size_bytes_max,
                request.is_committed_only,
                *_NO_SESSION,
            ),
            _INT32.pack(1),
            _text(request.topic),
            _INT32.pack(1),
            _FETCH_PARTITION.pack(
                request.partition, _UNKNOWN, request.offset, _UNKNOWN, request.size_bytes_max
            ),
            _INT32.pack(0),
            _text(""),
        )
    )
    return SIZE.pack(len(body)) + body


def decode_fetch(frame: memoryview) -> FetchAnswer:
    """Cut the answer to a Fetch for one partition."""
    try:
        return _decode_fetch(frame)
    except struct.error as error:
        raise InvalidRequest(f"a fetch answer of {len(frame)} bytes is cut short") from error


def _decode_fetch(frame: memoryview) -> FetchAnswer:
    position = _INT32.size
    _, error_code, _ = _ANSWER.unpack_from(frame, position)
    position += _ANSWER.size
    (topics,) = _INT32.unpack_from(frame, position)
    if topics < 1:
        return FetchAnswer(error_code, -1, -1, frame[:0])
    position += _INT32.size
    (name_bytes,) = _INT16.unpack_from(frame, position)
    position += _INT16.size + name_bytes + _INT32.size
    _, code, high_watermark, _, start_offset = _ANSWER_PARTITION.unpack_from(frame, position)
    position += _ANSWER_PARTITION.size
    (count,) = _INT32.unpack_from(frame, position)
    position += _INT32.size
    end = position + max(count, 0) * _ABORTED.size
    aborted = tuple(_ABORTED.iter_unpack(frame[position:end]))
    # After the aborted transactions comes the replica that the broker would prefer.
    position = end + _INT32.size
    (size_bytes,) = _INT32.unpack_from(frame, position)
    position += _INT32.size
    records = frame[position : position + max(size_bytes, 0)]
    return FetchAnswer(error_code or code, high_watermark, start_offset, records, aborted)


def encode_produce(
    topic: str, partition: int, batch_bytes: int, *, wait_ms: int, correlation_id: int
) -> bytes:
    """Return what comes before the bytes of one batch in its Produce, with the size in front."""
    body = b"".join(
        (
            _HEADER.pack(PRODUCE_KEY, PRODUCE_VERSION, correlation_id, len(CLIENT_ID)),
            CLIENT_ID.encode(),
            _PRODUCE.pack(-1, _ALL_REPLICAS, wait_ms, 1),
            _text(topic),
            _PRODUCE_PARTITION.pack(1, partition, batch_bytes),
        )
    )
    return SIZE.pack(len(body) + batch_bytes) + body


def decode_produce(frame: memoryview) -> ProduceAnswer:
    """Cut the answer to a Produce of one batch."""
    try:
        return _decode_produce(frame)
    except struct.error as error:
        raise InvalidRequest(f"a produce answer of {len(frame)} bytes is cut short") from error


def _decode_produce(frame: memoryview) -> ProduceAnswer:
    # The number of the request and the count of topics come first.
    position = 2 * _INT32.size
    (name_bytes,) = _INT16.unpack_from(frame, position)
    position += _INT16.size + name_bytes + _INT32.size
    _, error_code, base_offset, _, _ = _PRODUCED.unpack_from(frame, position)
    position += _PRODUCED.size
    (count,) = _INT32.unpack_from(frame, position)
    position += _INT32.size
    messages = []
    for _ in range(count):
        message, position = _nullable_text(frame, position + _INT32.size)
        messages.append(message)
    message, _ = _nullable_text(frame, position)
    return ProduceAnswer(error_code, base_offset, message or "; ".join(filter(None, messages)))


def _nullable_text(frame: memoryview, position: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(frame, position)
    position += _INT16.size
    end = position + max(size, 0)
    return bytes(frame[position:end]).decode(errors="replace"), end


def _text(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data
