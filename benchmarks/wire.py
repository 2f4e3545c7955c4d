"""A Kafka connection that costs the client next to nothing: its requests are made beforehand."""

import socket
import statistics
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from benchmarks.answers import DISK_RATE, RATE
from penstock.record import Record, encode_batch

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
_TIMEVAL = struct.Struct("@ll")
_CLIENT_ID = b"bench"
_PRODUCE = (0, 7)
_API_VERSIONS = (18, 0)
_WAIT_S = 30
_WAIT_MS = 30_000
_ANSWER_BYTES_MAX = 65536


class WireClient:
    """One connection; answers come in the order of the requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Python's own timeouts cost a poll before each call; the kernel's cost nothing.
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(_WAIT_S, 0))
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, request: bytes) -> None:
        """Send a whole request."""
        self._socket.sendall(request)

    def receive(self) -> bytes:
        """Return the next answer, without its size."""
        received = self._received or self._socket.recv(_ANSWER_BYTES_MAX)
        if len(received) > _SIZE.size and len(received) == _SIZE.size + _size_of(received):
            # What comes is most often one whole answer.
            self._received = b""
            return received[_SIZE.size :]
        while len(received) < _SIZE.size or len(received) < _SIZE.size + _size_of(received):
            part = self._socket.recv(_ANSWER_BYTES_MAX)
            if not part:
                raise ConnectionError("the node closed the connection")
            received += part
        end = _SIZE.size + _size_of(received)
        self._received = received[end:]
        return received[_SIZE.size : end]


def _size_of(received: bytes) -> int:
    return int(_SIZE.unpack_from(received)[0])


def api_versions_request() -> bytes:
    """Return what a client asks first."""
    return _framed(_API_VERSIONS, b"")


def produce_request(topic: str, partition: int, *, records: int, value_bytes: int) -> bytes:
    """Return a request that publishes one batch and is answered when the batch is committed."""
    return produce_values_request(topic, partition, [b"x" * value_bytes] * records)


def produce_values_request(topic: str, partition: int, values: Sequence[bytes]) -> bytes:
    """Return a request that publishes one batch of these values."""
    now_ms = time.time_ns() // 1_000_000
    batch = encode_batch(
        [Record(number, now_ms, None, value) for number, value in enumerate(values)]
    )
    body = struct.pack(">hhi", -1, -1, _WAIT_MS) + struct.pack(">i", 1) + _text(topic.encode())
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    return _framed(_PRODUCE, body)


def check_produced(topic: str, answer: bytes) -> None:
    """Raise unless the answer says that the batch is committed."""
    (code,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    if code != 0:
        raise RuntimeError(f"a publish into {topic} failed with error code {code}")


def _framed(api: tuple[int, int], body: bytes) -> bytes:
    frame = _HEADER.pack(*api, 1, len(_CLIENT_ID)) + _CLIENT_ID + body
    return _SIZE.pack(len(frame)) + frame


def _text(data: bytes) -> bytes:
    return struct.pack(">h", len(data)) + data


@dataclass(frozen=True, slots=True)
class Loop:
    """What a closed loop has achieved."""

    latencies_s: Sequence[float]

    @property
    def per_s(self) -> float:
        """Acknowledged requests per second."""
        return len(self.latencies_s) / sum(self.latencies_s)

    def percentile_ms(self, share: float) -> float:
        """Return the latency that `share` of the requests stay below."""
        return percentile(self.latencies_s, share) * 1000


def publish_in_turn(client: WireClient, topic: str, request: bytes, seconds: float) -> Loop:
    """Send the same request again and again, each after the answer to the one before."""
    latencies: list[float] = []
    answers: list[bytes] = []
    begin = time.perf_counter()
    end = begin + seconds
    while begin < end:
        client.send(request)
        answers.append(client.receive())
        finish = time.perf_counter()
        latencies.append(finish - begin)
        begin = finish
    for answer in answers:
        check_produced(topic, answer)
    return Loop(latencies)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of all stay below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def figures_beside(loops: Sequence[Loop], disk: Sequence[float]) -> dict[str, float]:
    """Return the figures of several slices, beside what the disk did between them."""
    together = Loop([latency for loop in loops for latency in loop.latencies_s])
    return {
        RATE: statistics.median(loop.per_s for loop in loops),
        DISK_RATE: statistics.median(disk),
        "p50_ms": together.percentile_ms(0.5),
        "p99_ms": together.percentile_ms(0.99),
    }
