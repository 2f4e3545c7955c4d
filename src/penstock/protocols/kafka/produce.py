"""Produce: record batches in, offsets out.

Requests and answers are read and written by hand, because the batches must not be copied: each is a
view of the frame that it came in, from the socket to the disk. Versions 3 to 8 use plain lengths;
versions 9 to 12 use varint lengths and tagged fields.

acks=0 is not answered, acks=1 when the leader has the batch on disk, acks=all when it is committed:
on disk on a majority of the replicas.
"""

import struct
from functools import lru_cache

import msgspec

from penstock.broker import Broker, Publication
from penstock.errors import (
    InvalidAcks,
    InvalidRecords,
    InvalidRequest,
    PenstockError,
    TimedOut,
    Unavailable,
)
from penstock.ids import TopicPartition
from penstock.protocols.kafka.api import Api, Reply, Request
from penstock.protocols.kafka.codec import (
    frame_bytes,
    length_bytes,
    read_unsigned_varint,
    skip_tagged_fields,
    text_bytes,
)
from penstock.protocols.kafka.deadlines import Deadlines, Due
from penstock.protocols.kafka.errors import code_of, count_error

VERSIONS = range(3, 13)
_ACKS = (-1, 0, 1)
_FLEXIBLE_FROM = 9
_MESSAGES_FROM = 8
_START_OFFSET_FROM = 5
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
# The length of a transactional id that is null, acks, timeout, number of topics.
_PLAIN_HEAD = struct.Struct(">hhii")
_PLAIN_PARTITION = struct.Struct(">ii")
# The number of partitions, and of the first of them.
_COUNT_AND_NUMBER = struct.Struct(">ii")
# Lengths that are one byte each: transactional id, acks, timeout, number of topics, name.
_FLEXIBLE_HEAD = struct.Struct(">BhiBB")
_COUNT_AND_NUMBER_FLEXIBLE = struct.Struct(">Bi")
# After the one batch: of the partition, of the topic and of the request.
_NO_TAGS = b"\0\0\0"
_NAME_BYTES_MAX = 249
_HEADS_MAX = 4_096
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PARTITION_ANSWER = struct.Struct(">ihqqq")
_START_OFFSET_BYTES = 8
_PLAIN_BEGIN = struct.Struct(">ih")
_NO_THROTTLE = _INT32.pack(0)
_ONE = _INT32.pack(1)


class PartitionData(msgspec.Struct, frozen=True, gc=False):
    """What a request brings for one partition."""

    place: TopicPartition
    records: memoryview


class ProduceRequest(msgspec.Struct, frozen=True, gc=False):
    """A decoded request; the records are views of its frame."""

    acks: int
    timeout_ms: int
    partitions: list[PartitionData]


class PartitionAnswer(msgspec.Struct, frozen=True):
    """What is answered for one partition."""

    place: TopicPartition
    offset: int
    append_time_ms: int
    start_offset: int
    error: PenstockError | None


_NOT_YET = PartitionAnswer(TopicPartition("", -1), -1, -1, -1, None)


def produce_api() -> Api:
    """Return the API. Versions 0 to 2 are listed because old clients look for them there."""
    deadlines = Deadlines()

    def start(request: Request, reply: Reply) -> None:
        header = request.header
        if header.version not in VERSIONS:
            raise InvalidRequest(
                f"Produce version {header.version} carries a record format that is not"
                f" supported; versions {VERSIONS[0]} to {VERSIONS[-1]} are"
            )
        decoded = decode_produce(request.frame, header.body_position, header.version)
        _ProduceCall(request, decoded, reply, deadlines).start()

    return Api(0, "Produce", 0, VERSIONS[-1], start, is_pipelined=True)


class _ProduceCall:
    """The batches of one request on their way to being committed."""

    __slots__ = (
        "_answers",
        "_broker",
        "_deadlines",
        "_decoded",
        "_due",
        "_missing",
        "_reply",
        "_request",
    )

    def __init__(
        self, request: Request, decoded: ProduceRequest, reply: Reply, deadlines: Deadlines
    ) -> None:
        self._request = request
        self._decoded = decoded
        self._reply = reply
        self._deadlines = deadlines
        self._broker: Broker = request.context.broker
        self._missing = len(decoded.partitions)
        self._answers = [_NOT_YET] * self._missing
        self._due: Due | None = None

    def start(self) -> None:
        """Propose every batch, and answer when the last of them is settled."""
        decoded = self._decoded
        acks, partitions = decoded.acks, decoded.partitions
        if acks == 0:
            self._reply(None)
        if not partitions:
            self._finish()
            return
        for number, data in enumerate(partitions):
            self._publish(number, data, acks)
        if acks == 0:
            self._check_unanswered()
        if self._missing:
            self._due = self._deadlines.add(decoded.timeout_ms / 1000, self._time_out)

    def _publish(self, number: int, data: PartitionData, acks: int) -> None:
        try:
            if acks not in _ACKS:
                raise InvalidAcks(f"acks is {acks}, not -1, 0 or 1")
            publication = self._broker.publisher.publish(
                data.place,
                data.records,
                waits_for_commit=acks == -1,
                on_settled=lambda: self._settle(number, _answer(data.place, publication)),
            )
        except PenstockError as error:
            self._settle(number, _failure(data.place, error))

    def _settle(self, number: int, answer: PartitionAnswer) -> None:
        if self._answers[number] is not _NOT_YET:
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
            if isinstance(answer.error, Unavailable):
                raise answer.error

    def _finish(self) -> None:
        if self._due is not None:
            self._deadlines.remove(self._due)
        for answer in self._answers:
            if answer.error is not None:
                count_error(answer.error, self._broker)
        if self._decoded.acks != 0:
            header = self._request.header
            self._reply([frame_bytes(header, encode_answers(self._answers, header.version))])


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


# Reading. Each family of versions is read in one go, because a request may carry one small batch.


class _Head(msgspec.Struct, frozen=True, gc=False):
    """What stands before the batch of a request that has one."""

    acks: int
    timeout_ms: int
    place: TopicPartition


def decode_produce(frame: bytearray, position: int, version: int) -> ProduceRequest:
    """Read a request; nothing of the records is copied."""
    view = memoryview(frame)
    if version >= _FLEXIBLE_FROM:
        return _one_flexible(view, position) or _decode_flexible(view, position)
    return _one_plain(view, position) or _decode_plain(view, position)


# Most requests bring one batch, and what a client writes before it is the same each time. So it is
# read once, and found by its bytes from then on.


def _one_plain(view: memoryview, position: int) -> ProduceRequest | None:
    """Read a request with one batch for a topic of a usual name; None when it is another."""
    name_at = position + _PLAIN_HEAD.size
    if len(view) < name_at + _INT16.size:
        return None
    (name_bytes,) = _INT16.unpack_from(view, name_at)
    size_at = name_at + _INT16.size + name_bytes + _COUNT_AND_NUMBER.size
    start = size_at + _INT32.size
    if not 0 < name_bytes <= _NAME_BYTES_MAX or len(view) < start:
        return None
    head = _plain_head(bytes(view[position:size_at]))
    (size,) = _INT32.unpack_from(view, size_at)
    if head is None or start + size != len(view):
        return None
    return ProduceRequest(head.acks, head.timeout_ms, [PartitionData(head.place, view[start:])])


def _one_flexible(view: memoryview, position: int) -> ProduceRequest | None:
    """The same where lengths are varints, of one byte each before the batch."""
    name_bytes = view[position + _FLEXIBLE_HEAD.size - 1] - 1
    size_at = position + _FLEXIBLE_HEAD.size + name_bytes + _COUNT_AND_NUMBER_FLEXIBLE.size
    if not 0 < name_bytes < 0x7F or len(view) <= size_at:
        return None
    head = _flexible_head(bytes(view[position:size_at]))
    if head is None:
        return None
    length, start = read_unsigned_varint(view, size_at)
    end = start + length - 1
    if length < 1 or view[end:] != _NO_TAGS:
        return None
    return ProduceRequest(head.acks, head.timeout_ms, [PartitionData(head.place, view[start:end])])


@lru_cache(_HEADS_MAX)
def _plain_head(head: bytes) -> _Head | None:
    transactional_bytes, acks, timeout_ms, topics = _PLAIN_HEAD.unpack_from(head)
    count, number = _COUNT_AND_NUMBER.unpack_from(head, len(head) - _COUNT_AND_NUMBER.size)
    if transactional_bytes >= 0 or topics != 1 or count != 1:
        return None
    name = head[_PLAIN_HEAD.size + _INT16.size : -_COUNT_AND_NUMBER.size]
    return _Head(acks, timeout_ms, TopicPartition(name.decode(), number))


@lru_cache(_HEADS_MAX)
def _flexible_head(head: bytes) -> _Head | None:
    transactional, acks, timeout_ms, topics, _ = _FLEXIBLE_HEAD.unpack_from(head)
    count, number = _COUNT_AND_NUMBER_FLEXIBLE.unpack_from(
        head, len(head) - _COUNT_AND_NUMBER_FLEXIBLE.size
    )
    # A compact length is one more than the length; 0 stands for null.
    if transactional != 0 or topics != 2 or count != 2:
        return None
    name = head[_FLEXIBLE_HEAD.size : -_COUNT_AND_NUMBER_FLEXIBLE.size]
    return _Head(acks, timeout_ms, TopicPartition(name.decode(), number))


def _decode_plain(view: memoryview, position: int) -> ProduceRequest:
    transactional_bytes, acks, timeout_ms, topics = _PLAIN_HEAD.unpack_from(view, position)
    if transactional_bytes >= 0:
        raise _no_transactions()
    position += _PLAIN_HEAD.size
    partitions: list[PartitionData] = []
    for _ in range(topics):
        (size,) = _INT16.unpack_from(view, position)
        end = _end_of_field(view, position + _INT16.size, size)
        topic = str(view[position + _INT16.size : end], "utf-8")
        (count,) = _INT32.unpack_from(view, end)
        position = end + _INT32.size
        for _ in range(count):
            number, size = _PLAIN_PARTITION.unpack_from(view, position)
            position += _PLAIN_PARTITION.size
            end = _end_of_field(view, position, size)
            partitions.append(PartitionData(TopicPartition(topic, number), view[position:end]))
            position = end
    return ProduceRequest(acks, timeout_ms, partitions)


def _decode_flexible(view: memoryview, position: int) -> ProduceRequest:
    # A compact length is one more than the length; 0 stands for null.
    length, position = read_unsigned_varint(view, position)
    if length:
        raise _no_transactions()
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(view, position)
    topics, position = read_unsigned_varint(view, position + _ACKS_AND_TIMEOUT.size)
    partitions: list[PartitionData] = []
    for _ in range(topics - 1):
        length, position = read_unsigned_varint(view, position)
        end = _end_of_field(view, position, length - 1)
        topic = str(view[position:end], "utf-8")
        count, position = read_unsigned_varint(view, end)
        for _ in range(count - 1):
            (number,) = _INT32.unpack_from(view, position)
            length, position = read_unsigned_varint(view, position + _INT32.size)
            end = _end_of_field(view, position, length - 1)
            partitions.append(PartitionData(TopicPartition(topic, number), view[position:end]))
            position = skip_tagged_fields(view, end)
        position = skip_tagged_fields(view, position)
    return ProduceRequest(acks, timeout_ms, partitions)


def _end_of_field(view: memoryview, position: int, size: int) -> int:
    """Return where a field ends; one that is null ends where it begins."""
    end = position + size if size > 0 else position
    if end > len(view):
        raise InvalidRequest(f"a field of {size} bytes at {position} passes the end of the frame")
    return end


def _no_transactions() -> InvalidRequest:
    return InvalidRequest("transactions are not supported by this node")


# Writing.


def encode_answers(answers: list[PartitionAnswer], version: int) -> bytes:
    """Return the body of the response."""
    if len(answers) == 1 and version < _FLEXIBLE_FROM:
        return _encode_plain(answers[0], version)
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
    out += _NO_THROTTLE, tags
    return b"".join(out)


def _encode_plain(answer: PartitionAnswer, version: int) -> bytes:
    """Return the body for one partition: the answer of every producer that sends one batch."""
    topic = answer.place.topic.encode()
    begin = _PLAIN_BEGIN.pack(1, len(topic))
    return b"".join((begin, topic, _ONE, _encode_answer(answer, version), _NO_THROTTLE))


def _encode_answer(answer: PartitionAnswer, version: int) -> bytes:
    code = code_of(answer.error).value if answer.error else 0
    out = _PARTITION_ANSWER.pack(
        answer.place.partition, code, answer.offset, answer.append_time_ms, answer.start_offset
    )
    if version < _MESSAGES_FROM:
        return out if version >= _START_OFFSET_FROM else out[:-_START_OFFSET_BYTES]
    is_flexible = version >= _FLEXIBLE_FROM
    message = str(answer.error) if answer.error else None
    out += _encode_faults(answer.error, is_flexible) + text_bytes(message, is_flexible)
    return out + b"\0" if is_flexible else out


def _encode_faults(error: PenstockError | None, is_flexible: bool) -> bytes:
    """Return what is wrong with single records, by their place in the batch."""
    if not isinstance(error, InvalidRecords):
        return length_bytes(0, is_flexible)
    out = [length_bytes(len(error.faults), is_flexible)]
    for place, fault in error.faults.items():
        out += _INT32.pack(place), text_bytes(fault, is_flexible)
        if is_flexible:
            out.append(b"\0")
    return b"".join(out)
