"""Requests of one client that wait for an earlier one, and are then answered at once."""

import asyncio
import logging
import socket
import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.protocols.kafka.api import Api, Reply, Request
from penstock.protocols.kafka.connection import Connection
from penstock.protocols.kafka.server import KafkaServer

# More than Python nests calls.
MANY = 3_000
SLOW, QUICK = 10, 11


class FakeTransport:
    """What a connection needs of its transport."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.is_aborted = False

    def get_extra_info(self, name: str) -> Any:
        return self._socket if name == "socket" else ("127.0.0.1", 1)

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


class Scene:
    """A connection with one API that answers when it is told to, and one that answers at once."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.started = 0
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.client = socket.create_connection(listener.getsockname())
            own, _ = listener.accept()
        self.transport = FakeTransport(own)
        apis = {
            SLOW: Api(SLOW, "Slow", 0, 0, self._start_slow),
            QUICK: Api(QUICK, "Quick", 0, 0, self._start_quick),
        }
        server = SimpleNamespace(
            apis=apis,
            broker=None,
            scratch=bytearray(1 << 20),
            frame_bytes_max=1 << 20,
            requests_in_flight_max=2 * MANY,
            is_draining=False,
            statistics=SimpleNamespace(count_request=lambda *_: None, frames_malformed=0),
            admit=lambda _: True,
            next_connection=lambda: 1,
        )
        self.connection = Connection(cast("KafkaServer", server))
        self.connection.connection_made(cast("asyncio.Transport", self.transport))

    def _start_slow(self, request: Request, reply: Reply) -> None:
        del request
        self.replies.append(reply)

    def _start_quick(self, request: Request, reply: Reply) -> None:
        self.started += 1
        reply([struct.pack(">i", request.header.correlation_id)])

    def receive(self, *keys: int) -> None:
        """Let requests arrive, numbered in their order."""
        frames = b"".join(
            struct.pack(">ihhih", 10, key, 0, number, -1) for number, key in enumerate(keys)
        )
        self.connection.get_buffer(-1)[: len(frames)] = frames
        self.connection.buffer_updated(len(frames))


def test_any_number_of_requests_may_wait_for_one() -> None:
    async def scene() -> None:
        scene = Scene()
        scene.receive(SLOW, *[QUICK] * MANY)
        assert scene.started == 0

        scene.replies[0]([struct.pack(">i", 0)])

        assert scene.started == MANY
        answers = scene.client.recv(4 * (MANY + 1), socket.MSG_WAITALL)
        numbers = [number for (number,) in struct.iter_unpack(">i", answers)]
        assert numbers == list(range(MANY + 1))
        assert not scene.transport.is_aborted

    asyncio.run(scene())


def test_nothing_is_begun_for_a_client_that_has_gone(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        scene = Scene()
        scene.receive(SLOW, *[QUICK] * MANY)
        # A reset, as when the client's process has died.
        scene.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        scene.client.close()

        with caplog.at_level(logging.INFO):
            scene.replies[0]([struct.pack(">i", 0)])

        assert scene.transport.is_aborted
        assert scene.started == 0
        assert len(caplog.records) == 1

    asyncio.run(scene())
