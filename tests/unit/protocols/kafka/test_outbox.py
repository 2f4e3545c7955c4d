"""Answers on their way to a client that takes them at once, slowly, or not at all."""

import asyncio
import socket

import pytest

from penstock.protocols.kafka.outbox import Outbox

LARGE = bytes(range(256)) * 8_192


class Scene:
    """An outbox, and the client at the other end of its connection."""

    def __init__(self) -> None:
        ours, self.client = socket.socketpair()
        self.client.setblocking(False)
        self.drained = 0
        self.lost: list[OSError] = []
        self.outbox = Outbox(
            asyncio.get_running_loop(),
            ours.fileno(),
            on_drained=self._note_drained,
            on_lost=self.lost.append,
        )
        # The outbox has a descriptor of its own.
        ours.close()

    def _note_drained(self) -> None:
        self.drained += 1

    async def read(self, size_bytes: int) -> bytes:
        loop = asyncio.get_running_loop()
        received = b""
        while len(received) < size_bytes:
            received += await loop.sock_recv(self.client, size_bytes - len(received))
        return received

    def close(self) -> None:
        self.outbox.close()
        self.client.close()


def test_an_answer_that_the_socket_takes_is_gone_at_once() -> None:
    async def scene() -> None:
        stage = Scene()

        stage.outbox.send([b"first"])
        stage.outbox.send([b"second, ", b"in parts"])

        assert not stage.outbox.is_blocked
        assert await stage.read(20) == b"firstsecond, in part"
        assert stage.drained == 0
        stage.close()

    asyncio.run(scene())


def test_what_a_slow_client_does_not_take_waits_in_order() -> None:
    async def scene() -> None:
        stage = Scene()

        stage.outbox.send([LARGE])
        stage.outbox.send([b"behind it"])
        assert stage.outbox.is_blocked
        received = await stage.read(len(LARGE) + 9)

        assert received == LARGE + b"behind it"
        assert not stage.outbox.is_blocked
        assert stage.drained == 1
        stage.outbox.send([b"and on"])
        assert await stage.read(6) == b"and on"
        stage.close()

    asyncio.run(scene())


def test_a_full_socket_keeps_a_whole_answer_waiting() -> None:
    async def scene() -> None:
        stage = Scene()
        sent = 0
        while not stage.outbox.is_blocked:
            stage.outbox.send([b"x" * 1_000])
            sent += 1

        assert await stage.read(sent * 1_000) == b"x" * 1_000 * sent
        assert not stage.outbox.is_blocked
        stage.close()

    asyncio.run(scene())


@pytest.mark.parametrize("parts", [[b"gone"], [LARGE, b"gone"]])
def test_a_client_that_has_left_is_told_of_once(parts: list[bytes]) -> None:
    async def scene() -> None:
        stage = Scene()
        stage.client.close()

        stage.outbox.send([*parts])
        stage.outbox.send([b"more"])

        assert len(stage.lost) == 1
        assert not stage.outbox.is_blocked
        stage.close()

    asyncio.run(scene())
