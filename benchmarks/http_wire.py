"""An HTTP connection that costs the client next to nothing: its requests are made beforehand."""

import re
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import msgspec

_WAIT_S = 60
_READ_BYTES = 1024 * 1024
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_RECEIPT = re.compile(rb'"receipt":"([^"]+)"')
_FAILED = re.compile(rb'"failed":\[\]')


class HttpWire:
    """One connection that is kept; answers come in the order of the requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def exchange(self, request: bytes) -> bytes:
        """Send a whole request and return the body of its answer; raise when it failed."""
        self._socket.sendall(request)
        received = self._socket.recv(_READ_BYTES)
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._more()
        found = _LENGTH.search(received, 0, end)
        assert found is not None, "an answer has a length"
        parts, missing = [received[end + 4 :]], int(found[1]) - (len(received) - end - 4)
        while missing > 0:
            parts.append(self._more())
            missing -= len(parts[-1])
        body = b"".join(parts)
        if not received.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"a request failed: {received[:end]!r} {body!r}")
        return body

    def _more(self) -> bytes:
        part = self._socket.recv(_READ_BYTES)
        if not part:
            raise ConnectionError("the node closed the connection")
        return part


def post(path: str, body: Any) -> bytes:
    """Return a whole request."""
    return framed(path, msgspec.json.encode(body))


def framed(path: str, content: bytes) -> bytes:
    """Return a whole request whose body is encoded already."""
    head = f"POST {path} HTTP/1.1\r\nHost: node\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def receipts_of(answer: bytes) -> list[bytes]:
    """Return the receipts of received messages."""
    return _RECEIPT.findall(answer)


def publish_batch_request(topic: str, *, messages: int, value_bytes: int) -> bytes:
    """Return a request that publishes many messages."""
    value = "x" * value_bytes
    return post(f"/v1/topics/{topic}/messages", {"messages": [{"value": value}] * messages})


def publish_for(
    ready: Callable[[], None], port: int, request: bytes, seconds: float
) -> list[float]:
    """Send a request again and again, each after the answer; return how long each one took."""
    latencies = []
    with HttpWire(port) as wire:
        wire.exchange(request)
        ready()
        end = time.perf_counter() + seconds
        begin = time.perf_counter()
        while begin < end:
            answer = wire.exchange(request)
            finish = time.perf_counter()
            if b'"error"' in answer:
                raise RuntimeError(f"a publish failed: {answer[:500]!r}")
            latencies.append(finish - begin)
            begin = time.perf_counter()
    return latencies


def consume_all(ready: Callable[[], None], port: int, group: str, count_max: int) -> int:
    """Receive and acknowledge until nothing is left; return how many acks were accepted."""
    receive = post(f"{group}/receive", {"max": count_max, "wait": 1})
    settled = 0
    with HttpWire(port) as wire:
        ready()
        while receipts := receipts_of(wire.exchange(receive)):
            content = b'{"receipts":["%s"]}' % b'","'.join(receipts)
            if not _FAILED.search(wire.exchange(framed(f"{group}/ack", content))):
                raise RuntimeError("an ack was refused")
            settled += len(receipts)
    return settled


def exchange_all(ready: Callable[[], None], port: int, group: str, count_max: int) -> int:
    """The same with one request for both: each receive acknowledges what the one before gave."""
    fields = b'{"max":%d,"wait":1' % count_max
    settled = 0
    receipts: list[bytes] = []
    with HttpWire(port) as wire:
        ready()
        while True:
            acks = b',"ack":["%s"]' % b'","'.join(receipts) if receipts else b""
            answer = wire.exchange(framed(f"{group}/receive", fields + acks + b"}"))
            if receipts and not _FAILED.search(answer):
                raise RuntimeError("an ack was refused")
            settled += len(receipts)
            receipts = receipts_of(answer)
            if not receipts:
                return settled
