"""Produce: record batches in, offsets out.

Requests and answers are read and written by hand, because the batches must not be copied: each is a
view of the frame that it came in, from the socket to the disk. Versions 3 to 8 use plain lengths;
versions 9 to 12 use varint lengths and tagged fields.

acks=0 is not answered, acks=1 when the leader has the batch on disk, acks=all when it is committed:
on disk on a majority of the replicas.
"""

import asyncio
import struct
from typing import NamedTuple

from penstock.broker import Broker, Publication
from penstock.errors import InvalidRequest, PenstockError, TimedOut, Unavailable
from penstock.ids import TopicPartition
from penstock.protocols.kafka.api import Api, Reply, Request
from penstock.protocols.kafka.codec import (
    frame_bytes,
    length_bytes,
    read_unsigned_varint,
    skip_tagged_fields,
    text_bytes,
)
from penstock.protocols.kafka.errors import error_code

VERSIONS = range(3, 13)
_FLEXIBLE_FROM = 9
_MESSAGES_FROM = 8
_START_OFFSET_FROM = 5
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PARTITION_ANSWER = struct.Struct(">ihqq")
_INT64 = struct.Struct(">q")


class PartitionData(NamedTuple):
    """What a request brings for one partition."""

    place: TopicPartition
    records: memoryview


class ProduceRequest(NamedTuple):
    """A decoded request; the records are views of its frame."""

    acks: int
    timeout_ms: int
    partitions: list[PartitionData]


class PartitionAnswer(NamedTuple):
    """What is answered for one partition."""

    place: TopicPartition
    offset: int
    append_time_ms: int
    start_offset: int
    error: PenstockError | None


def produce_api() -> Api:
    """Return the API. Versions 0 to 2 are listed because old clients look for them there."""
    return Api(0, "Produce", 0, VERSIONS[-1], _start, is_pipelined=True)


def _start(request: Request, reply: Reply) -> None:
    if request.header.version not in VERSIONS:
        raise InvalidRequest(
            f"Produce version {request.header.version} carries a record format that is not"
            f" supported; versions {VERSIONS[0]} to {VERSIONS[-1]} are"
        )
    decoded = decode_produce(request.frame, request.header.body_position, request.header.version)
    _ProduceCall(request, decoded, reply).start()


class _ProduceCall:
    """The batches of one request on their way to being committed."""

    def __init__(self, request: Request, decoded: ProduceRequest, reply: Reply) -> None:
        self._request = request
        self._decoded = decoded
        self._reply = reply
        self._broker: Broker = request.context.broker
        self._answers: list[PartitionAnswer | None] = [None] * len(decoded.partitions)
        self._missing = len(decoded.partitions)
        self._deadline: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Propose every batch, and answer when the last of them is settled."""
        if self._decoded.acks == 0:
            self._reply(None)
        if not self._decoded.partitions:
            self._finish()
            return
        for number, data in enumerate(self._decoded.partitions):
            self._publish(number, data)
        if self._decoded.acks == 0:
            self._check_unanswered()
        if self._missing:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._decoded.timeout_ms / 1000, self._time_out)

    def _publish(self, number: int, data: PartitionData) -> None:
        try:
            if self._decoded.acks not in (-1, 0, 1):
                raise InvalidRequest(f"acks is {self._decoded.acks}, not -1, 0 or 1")
            publication = self._broker.publisher.publish(
                data.place, data.records, waits_for_commit=self._decoded.acks == -1
            )
        except PenstockError as error:
            self._settle(number, _failure(data.place, error))
            return
        publication.offset.add_done_callback(
            lambda _: self._settle(number, _answer(data.place, publication))
        )

    def _settle(self, number: int, answer: PartitionAnswer) -> None:
        if self._answers[number] is not None:
            return
        self._answers[number] = answer
        self._missing -= 1
        if self._missing == 0:
            self._finish()

    def _time_out(self) -> None:
        error = TimedOut(f"the batch was not committed within {self._decoded.timeout_ms} ms")
        for number, data in enumerate(self._decoded.partitions):
            self._settle(number, _failure(data.place, error))

    def _check_unanswered(self) -> None:
        """A producer that wants no answer learns of a wrong leader by the end of its connection."""
        for answer in self._answers:
            if answer is not None and isinstance(answer.error, Unavailable):
                raise answer.error

    def _finish(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        answers = [answer for answer in self._answers if answer is not None]
        for answer in answers:
            if answer.error is not None:
                self._broker.statistics.count_error("kafka", type(answer.error).__name__)
        if self._decoded.acks != 0:
            body = encode_answers(answers, self._request.header.version)
            self._reply([frame_bytes(self._request.header, body)])


def _answer(place: TopicPartition, publication: Publication) -> PartitionAnswer:
    error = publication.offset.exception()
    if error is None:
        offset = publication.offset.result()
        return PartitionAnswer(
            place, offset, publication.append_time_ms, publication.start_offset, None
        )
    assert isinstance(error, PenstockError), error
    return _failure(place, error)


def _failure(place: TopicPartition, error: PenstockError) -> PartitionAnswer:
    return PartitionAnswer(place, -1, -1, -1, error)


# Reading.


def decode_produce(frame: bytearray, position: int, version: int) -> ProduceRequest:
    """Read a request; nothing of the records is copied."""
    reader = _Reader(memoryview(frame), position, is_flexible=version >= _FLEXIBLE_FROM)
    transactional_id = reader.text_or_none()
    if transactional_id is not None:
        raise InvalidRequest("transactions are not supported by this node")
    acks, timeout_ms = reader.acks_and_timeout()
    partitions: list[PartitionData] = []
    for _ in range(reader.count()):
        topic = reader.text_or_none() or ""
        for _ in range(reader.count()):
            place = TopicPartition(topic, reader.int32())
            partitions.append(PartitionData(place, reader.bytes()))
            reader.tags()
        reader.tags()
    reader.tags()
    return ProduceRequest(acks, timeout_ms, partitions)


class _Reader:
    """Walks through a request of either family of versions."""

    __slots__ = ("_is_flexible", "_position", "_view")

    def __init__(self, view: memoryview, position: int, *, is_flexible: bool) -> None:
        self._view = view
        self._position = position
        self._is_flexible = is_flexible

    def acks_and_timeout(self) -> tuple[int, int]:
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(self._view, self._position)
        self._position += _ACKS_AND_TIMEOUT.size
        return acks, timeout_ms

    def int32(self) -> int:
        (number,) = _INT32.unpack_from(self._view, self._position)
        self._position += _INT32.size
        return int(number)

    def count(self) -> int:
        return self._compact_length() if self._is_flexible else self.int32()

    def _compact_length(self) -> int:
        length, self._position = read_unsigned_varint(self._view, self._position)
        return length - 1

    def text_or_none(self) -> str | None:
        if self._is_flexible:
            length = self._compact_length()
        else:
            (length,) = _INT16.unpack_from(self._view, self._position)
            self._position += _INT16.size
        return None if length < 0 else bytes(self._take(length)).decode()

    def bytes(self) -> memoryview:
        length = self.count()
        return self._take(max(0, length))

    def _take(self, length: int) -> memoryview:
        end = self._position + length
        if end > len(self._view):
            raise InvalidRequest(
                f"a field of {length} bytes at {self._position} passes the end of the frame"
            )
        part = self._view[self._position : end]
        self._position = end
        return part

    def tags(self) -> None:
        if self._is_flexible:
            self._position = skip_tagged_fields(self._view, self._position)


# Writing.


def encode_answers(answers: list[PartitionAnswer], version: int) -> bytes:
    """Return the body of the response."""
    is_flexible = version >= _FLEXIBLE_FROM
    by_topic: dict[str, list[PartitionAnswer]] = {}
    for answer in answers:
        by_topic.setdefault(answer.place.topic, []).append(answer)
    tags = b"\0" if is_flexible else b""
    out = [length_bytes(len(by_topic), is_flexible)]
    for topic, partitions in by_topic.items():
        out += text_bytes(topic, is_flexible), length_bytes(len(partitions), is_flexible)
        out += [_encode_answer(answer, version) for answer in partitions]
        out.append(tags)
    out += _INT32.pack(0), tags
    return b"".join(out)


def _encode_answer(answer: PartitionAnswer, version: int) -> bytes:
    is_flexible = version >= _FLEXIBLE_FROM
    code = error_code(answer.error).value if answer.error else 0
    out = _PARTITION_ANSWER.pack(answer.place.partition, code, answer.offset, answer.append_time_ms)
    if version >= _START_OFFSET_FROM:
        out += _INT64.pack(answer.start_offset)
    if version >= _MESSAGES_FROM:
        message = str(answer.error) if answer.error else None
        out += length_bytes(0, is_flexible) + text_bytes(message, is_flexible)
    return out + (b"\0" if is_flexible else b"")
