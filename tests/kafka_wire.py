"""A Kafka client that sends exactly the bytes it is told to, for tests of the wire itself."""

import io
import socket
import struct
import uuid
from types import TracebackType
from typing import Any, Self

from kio.index import load_request_schema, load_response_schema
from kio.schema.metadata.v12 import request as metadata_in
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32

ANSWER_WAIT_S = 120.0
_SIZE = struct.Struct(">i")
_CLIENT_ID = "wire-test"


class WireClient:
    """One connection; requests and answers are messages of `kio`, or plain bytes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_WAIT_S)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask(self, request: Any) -> Any:
        """Send a request and return its answer."""
        self.send(request)
        return self.receive(type(request))

    def send(self, request: Any) -> int:
        """Send a request without waiting; return its correlation id."""
        self._correlation_id += 1
        self.send_frame(request_frame(request, self._correlation_id))
        return self._correlation_id

    def receive(self, request_type: Any, *, version: int | None = None) -> Any:
        """Return the next answer, which must belong to a request of this type."""
        _, frame = self.receive_frame()
        key = request_type.__api_key__
        schema: Any = load_response_schema(
            key, request_type.__version__ if version is None else version
        )
        header_reader = entity_reader(schema.__header_schema__)
        _, position = header_reader(frame, 0)
        response, _ = entity_reader(schema)(frame, position)
        return response

    def send_frame(self, frame: bytes) -> None:
        """Send one frame."""
        self.send_bytes(_SIZE.pack(len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def receive_frame(self) -> tuple[int, bytes]:
        """Return the correlation id of the next answer and its frame."""
        (size,) = _SIZE.unpack(self._receive_exactly(_SIZE.size))
        frame = self._receive_exactly(size)
        return _SIZE.unpack_from(frame)[0], frame

    def is_closed_by_peer(self) -> bool:
        """Wait until the node closes the connection or sends something."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def _receive_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionError(f"the node closed the connection after {len(data)} bytes")
            data += part
        return bytes(data)


def request_frame(request: Any, correlation_id: int) -> bytes:
    """Return header and body of a request."""
    schema = load_request_schema(request.__api_key__, request.__version__)
    header_schema: Any = schema.__header_schema__
    header = header_schema(
        request_api_key=i16(request.__api_key__),
        request_api_version=i16(request.__version__),
        correlation_id=i32(correlation_id),
        client_id=_CLIENT_ID,
    )
    out = io.BytesIO()
    entity_writer(header_schema)(out, header)
    entity_writer(type(request))(out, request)
    return out.getvalue()


def topic_id_of(client: WireClient, topic: str) -> uuid.UUID:
    """Return the id by which clients know a topic."""
    wanted = metadata_in.MetadataRequestTopic(topic_id=None, name=TopicName(topic))
    request = metadata_in.MetadataRequest(
        topics=(wanted,),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    (found,) = client.ask(request).topics
    topic_id = found.topic_id
    assert isinstance(topic_id, uuid.UUID), f"there is no topic {topic}"
    return topic_id
