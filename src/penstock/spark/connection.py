"""One socket to one broker.

Requests are answered in their order, and several may be outstanding. Answers are received into
memory of their own, in which record bytes stay where they are.
"""

import socket
from typing import Any, NamedTuple

import numpy as np

from penstock.errors import InvalidRequest, Unavailable
from penstock.ids import TopicPartition
from penstock.spark.wire import (
    SIZE,
    FetchAnswer,
    FetchRequest,
    ProduceAnswer,
    correlation_id_of,
    decode_answer,
    decode_fetch,
    decode_produce,
    encode_fetch,
    encode_produce,
    encode_request,
)

CONNECT_WAIT_S = 5.0
PORT_DEFAULT = 9092
# Below what the first bytes of other protocols, such as HTTP, would mean as a size.
FRAME_BYTES_MAX = 1 << 30


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def addresses_of(bootstrap: str) -> list[Address]:
    """Read `host:port` pairs that are separated by commas."""
    return [_address(each.strip()) for each in bootstrap.split(",") if each.strip()]


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(PORT_DEFAULT)
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise InvalidRequest(f"kafka.bootstrap.servers has {text!r}, not HOST or HOST:PORT")
    return Address(host.strip("[]"), int(port))


class BrokerConnection:
    """One socket; requests are answered in their order."""

    def __init__(self, address: Address, wait_s: float) -> None:
        self.address = address
        self.outstanding = 0
        self._sent = 0
        self._received = 0
        try:
            self._socket = socket.create_connection(address, CONNECT_WAIT_S)
            self._socket.settimeout(wait_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise Unavailable(f"broker {address} cannot be reached: {_reason(error)}") from None

    def ask(self, message: Any) -> Any:
        """Send a `kio` request and return its answer."""
        self._send(encode_request(message, self._sent + 1))
        return decode_answer(type(message), self._receive())

    def send_fetch(self, request: FetchRequest) -> None:
        """Send a Fetch; its answer is waited for later."""
        self._send(encode_fetch(request, self._sent + 1))

    def receive_fetch(self) -> FetchAnswer:
        """Return the answer to the oldest Fetch that is outstanding."""
        return decode_fetch(self._receive())

    def send_produce(self, place: TopicPartition, batch: bytearray, wait_ms: int) -> None:
        """Send one batch; its answer is waited for later."""
        self._send(
            encode_produce(
                place.topic,
                place.partition,
                len(batch),
                wait_ms=wait_ms,
                correlation_id=self._sent + 1,
            ),
            batch,
        )

    def receive_produced(self) -> ProduceAnswer:
        """Return the answer to the oldest Produce that is outstanding."""
        return decode_produce(self._receive())

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _send(self, *parts: bytes | bytearray) -> None:
        try:
            for part in parts:
                self._socket.sendall(part)
        except OSError as error:
            raise Unavailable(f"broker {self.address} went away: {_reason(error)}") from None
        self._sent += 1
        self.outstanding += 1

    def _receive(self) -> memoryview:
        (size,) = SIZE.unpack(self._receive_exactly(SIZE.size))
        if not SIZE.size <= size <= FRAME_BYTES_MAX:
            raise Unavailable(f"broker {self.address} announced an answer of {size} bytes")
        frame = self._receive_exactly(size)
        self._received += 1
        self.outstanding -= 1
        if correlation_id_of(frame) != self._received:
            raise Unavailable(f"broker {self.address} answered out of order")
        return frame

    def _receive_exactly(self, size: int) -> memoryview:
        # numpy's memory is not cleared first, which would cost as much as receiving it.
        data = np.empty(size, np.uint8).data
        position = 0
        while position < size:
            try:
                count = self._socket.recv_into(data[position:], 0, socket.MSG_WAITALL)
            except OSError as error:
                message = f"broker {self.address} gave no answer: {_reason(error)}"
                raise Unavailable(message) from None
            if count == 0:
                raise Unavailable(f"broker {self.address} closed the connection")
            position += count
        return data


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
