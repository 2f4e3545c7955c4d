"""Fetch: ranges of the log, sent from the file to the socket.

Requests are read with the schemas of `kio`; answers are framed by hand, so that record bytes are
neither copied nor even read. Up to version 12 topics are named, from version 13 on they have ids.
"""

import asyncio
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.broker import Broker, Fetched, FetchRequest
from penstock.errors import PenstockError, TopicIdMismatch, TopicNotFound
from penstock.ids import TopicPartition
from penstock.protocols.kafka.api import Api, Reply, Request
from penstock.protocols.kafka.codec import (
    RequestHeader,
    decode_request,
    length_bytes,
    milliseconds,
    response_prefix,
    text_bytes,
)
from penstock.protocols.kafka.errors import code_of, count_error
from penstock.protocols.kafka.fetch_session import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    FetchSession,
    FetchSessions,
)
from penstock.protocols.kafka.outbox import Part

KEY = 1
VERSIONS = range(4, 19)
_FLEXIBLE_FROM = 12
_IDS_FROM = 13
_SESSIONS_FROM = 7
_START_OFFSET_FROM = 5
_READ_REPLICA_FROM = 11

# What stands for an id that is missing.
_NO_ID = uuid.UUID(int=0)

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">ihi")
_PARTITION = struct.Struct(">ihqq")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What goes into a response."""

    found: Sequence[Fetched]
    ids: dict[str, uuid.UUID]
    session_id: int = 0
    error: PenstockError | None = None


def fetch_api() -> Api:
    """Return the API with the sessions of its clients."""
    sessions = FetchSessions()

    def start(request: Request, reply: Reply) -> asyncio.Task[None]:
        message = decode_request(request.frame, request.header)
        return asyncio.create_task(_answer(request, message, sessions, reply))

    return Api(KEY, "Fetch", VERSIONS[0], VERSIONS[-1], start, may_wait=True)


async def _answer(request: Request, message: Any, sessions: FetchSessions, reply: Reply) -> None:
    broker = request.context.broker
    names = _TopicNames(broker, uses_ids=request.header.version >= _IDS_FROM)
    wanted = _wanted(message, names)
    try:
        session = _session_of(message, wanted, names, sessions)
    except PenstockError as error:
        count_error(error, broker)
        reply(encode_fetch(request.header, _Answer((), {}, 0, error)))
        return
    requests = names.known(session) if session else wanted
    if session and names.unknown:
        # A session would tell of them once. Without it the client asks for everything again.
        sessions.end(session.session_id)
    found = await broker.fetcher.fetch(
        requests,
        wait_ms=0 if names.unknown else milliseconds(message.max_wait),
        bytes_min=message.min_bytes,
        bytes_max=message.max_bytes,
    )
    found += names.unknown
    if session and message.session_epoch != FIRST_EPOCH:
        found = session.news(found)
    elif session:
        session.news(found)
    for fetched in found:
        if fetched.error is not None:
            count_error(fetched.error, broker)
    session_id = session.session_id if session and not names.unknown else 0
    reply(encode_fetch(request.header, _Answer(found, names.ids, session_id)))


class _TopicNames:
    """Finds the name of each topic of a request, whichever way the client says it."""

    def __init__(self, broker: Broker, *, uses_ids: bool) -> None:
        self._metadata = broker.metadata
        self._uses_ids = uses_ids
        self.ids: dict[str, uuid.UUID] = {}
        # Partitions of ids that no topic has; each is answered with its error.
        self.unknown: list[Fetched] = []

    @property
    def version(self) -> int:
        """Changes whenever topics may have got other names."""
        return self._metadata.names_version

    def place(self, topic: Any, partition: int) -> TopicPartition | None:
        """Return the partition, or None when its topic id is unknown."""
        if not self._uses_ids:
            return TopicPartition(topic.topic, partition)
        topic_id = topic.topic_id or _NO_ID
        try:
            name = self._metadata.topic_by_public_id(topic_id).name
        except TopicNotFound:
            # The id stands in for the name, so that the answer can be put together.
            self._add_unknown(TopicPartition(f"?{topic_id}", partition), topic_id)
            return None
        self.ids[name] = topic_id
        return TopicPartition(name, partition)

    def known(self, session: FetchSession) -> list[FetchRequest]:
        """Return what a session reads, without topics that are gone or are others by now."""
        requests = list(session.requests.values())
        return [request for request in requests if self._is_known(request.place, session)]

    def _is_known(self, place: TopicPartition, session: FetchSession) -> bool:
        if not self._uses_ids:
            return True
        topic_id = session.ids.get(place.topic, _NO_ID)
        topic = self._metadata.topics.get(place.topic)
        if topic is None or topic.public_id != topic_id:
            self._add_unknown(place, topic_id)
            return False
        self.ids[place.topic] = topic_id
        return True

    def _add_unknown(self, place: TopicPartition, topic_id: uuid.UUID) -> None:
        self.ids[place.topic] = topic_id
        error = TopicIdMismatch(f"there is no topic with id {topic_id}")
        self.unknown.append(Fetched(place, error=error))


def _wanted(message: Any, names: _TopicNames) -> list[FetchRequest]:
    wanted = []
    for topic in message.topics:
        for partition in topic.partitions:
            place = names.place(topic, partition.partition)
            if place is not None:
                epoch = getattr(partition, "current_leader_epoch", -1)
                wanted.append(
                    FetchRequest(
                        place, partition.fetch_offset, partition.partition_max_bytes, epoch
                    )
                )
    return wanted


def _session_of(
    message: Any, wanted: list[FetchRequest], names: _TopicNames, sessions: FetchSessions
) -> FetchSession | None:
    """Return the session that the request begins or belongs to; None without one."""
    session_id = getattr(message, "session_id", 0)
    epoch = getattr(message, "session_epoch", FINAL_EPOCH)
    if epoch == FINAL_EPOCH:
        sessions.end(session_id)
        return None
    if epoch == FIRST_EPOCH:
        sessions.end(session_id)
        session = sessions.begin(names.version)
    else:
        session = sessions.resume(session_id, epoch, names.version)
        session.forget(_forgotten(message, session))
    session.update(wanted, names.ids)
    return session


def _forgotten(message: Any, session: FetchSession) -> list[TopicPartition]:
    """Return what the client reads no longer, also of topics that are gone."""
    names = {topic_id: name for name, topic_id in session.ids.items()}
    return [
        TopicPartition(name, partition)
        for topic in message.forgotten_topics_data
        if (name := getattr(topic, "topic", None) or names.get(topic.topic_id)) is not None
        for partition in topic.partitions
    ]


def encode_fetch(header: RequestHeader, answer: _Answer) -> list[Part]:
    """Return the response as bytes and file ranges in between."""
    version = header.version
    is_flexible = version >= _FLEXIBLE_FROM
    out = _Parts(response_prefix(header))
    code = code_of(answer.error).value if answer.error else 0
    if version >= _SESSIONS_FROM:
        out.add(_HEAD.pack(0, code, answer.session_id))
    else:
        out.add(_INT32.pack(0))
    by_topic: dict[str, list[Fetched]] = {}
    for fetched in answer.found:
        by_topic.setdefault(fetched.place.topic, []).append(fetched)
    out.add(length_bytes(len(by_topic), is_flexible))
    for topic, partitions in by_topic.items():
        if version >= _IDS_FROM:
            out.add(answer.ids[topic].bytes)
        else:
            out.add(text_bytes(topic, is_flexible))
        out.add(length_bytes(len(partitions), is_flexible))
        for fetched in partitions:
            _encode_partition(out, fetched, version)
        if is_flexible:
            out.add(b"\0")
    if is_flexible:
        out.add(b"\0")
    return out.framed()


def _encode_partition(out: "_Parts", fetched: Fetched, version: int) -> None:
    is_flexible = version >= _FLEXIBLE_FROM
    code = code_of(fetched.error).value if fetched.error else 0
    # Without transactions everything that is committed is stable.
    out.add(
        _PARTITION.pack(
            fetched.place.partition, code, fetched.high_watermark, fetched.high_watermark
        )
    )
    if version >= _START_OFFSET_FROM:
        out.add(_INT64.pack(fetched.start_offset))
    out.add(length_bytes(0, is_flexible))
    if version >= _READ_REPLICA_FROM:
        out.add(_INT32.pack(-1))
    out.add(length_bytes(fetched.size_bytes, is_flexible))
    if fetched.data is not None:
        out.add_range(fetched.data)
    if is_flexible:
        out.add(b"\0")


class _Parts:
    """Collects bytes, and keeps file ranges apart from them."""

    __slots__ = ("_bytes", "_parts", "_size_bytes")

    def __init__(self, prefix: bytes) -> None:
        # Room for the size, which is known last.
        self._bytes = bytearray(_SIZE.size)
        self._bytes += prefix
        self._parts: list[Part] = []
        self._size_bytes = 0

    def add(self, data: bytes) -> None:
        self._bytes += data

    def add_range(self, data: Any) -> None:
        self._cut()
        self._parts.append(data)
        self._size_bytes += data.size_bytes

    def _cut(self) -> None:
        self._size_bytes += len(self._bytes)
        self._parts.append(bytes(self._bytes))
        self._bytes.clear()

    def framed(self) -> list[Part]:
        self._cut()
        first = self._parts[0]
        assert isinstance(first, bytes)
        self._parts[0] = _SIZE.pack(self._size_bytes - _SIZE.size) + first[_SIZE.size :]
        return self._parts
