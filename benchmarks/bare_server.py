"""A server that does what the disk and the socket demand for a publish, and nothing else.

It takes a frame, appends it to a file whose blocks are there already, writes a row to a second
file, syncs the first, and sends a Produce answer that was made beforehand. No node in Python can be
quicker, so its rate says what the machine allows: how far the disk's rate is out of reach, and how
much of the rest is ours.

With the ports of others like it, it passes each frame on to them first, and answers when its own
copy and that of one of them are synced: what three nodes cannot do without.

`python -m benchmarks.bare_server DIRECTORY TOPIC [PORT ...]` prints its port and runs until it is
killed.
"""

import asyncio
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import uvloop

# How far the file goes before it is written from its beginning again.
_FILE_BYTES = 64 * 1024 * 1024
_SIZE_BYTES = 4
_ROW = bytes(60)
_ANSWER = struct.Struct(">ihqqqi")


class _Follower(asyncio.Protocol):
    """A connection to another server; `answered` counts the frames that it has synced."""

    def __init__(self, answer_bytes: int) -> None:
        self.answered = 0
        self.on_answer: Callable[[], None] = lambda: None
        self._answer_bytes = answer_bytes
        self._received_bytes = 0
        self._socket: socket.socket | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = _quick_socket(transport)

    def send(self, frame: bytes) -> None:
        assert self._socket is not None
        os.write(self._socket.fileno(), frame)

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        self.answered = self._received_bytes // self._answer_bytes
        self.on_answer()


class _Publishes(asyncio.Protocol):
    """One connection, with one frame in flight."""

    def __init__(self, directory: Path, topic: str, followers: Sequence[_Follower]) -> None:
        self._log = os.open(directory / "bare.log", os.O_CREAT | os.O_RDWR, 0o644)
        self._rows = os.open(directory / "bare.index", os.O_CREAT | os.O_RDWR, 0o644)
        os.pwrite(self._log, bytes(_FILE_BYTES), 0)
        os.fsync(self._log)
        self._position = self._count = 0
        self._received = b""
        self._answer = _answer(topic)
        self._answered = 0
        self._socket: socket.socket | None = None
        self._followers = followers
        for follower in followers:
            follower.on_answer = self._answer_if_stored

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = _quick_socket(transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        size_bytes = _SIZE_BYTES + int.from_bytes(self._received[:_SIZE_BYTES])
        if len(self._received) < size_bytes:
            return
        for follower in self._followers:
            follower.send(self._received)
        if self._position + size_bytes > _FILE_BYTES:
            self._position = 0
        os.pwritev(self._log, [self._received], self._position)
        os.pwritev(self._rows, [_ROW], self._count * len(_ROW))
        os.fdatasync(self._log)
        self._position += size_bytes
        self._count += 1
        self._received = b""
        self._answer_if_stored()

    def _answer_if_stored(self) -> None:
        """Answer when this server has the frame, and one of the others, if there are any."""
        copies = [follower.answered for follower in self._followers] or [self._count]
        if min(self._count, max(copies)) > self._answered:
            self._answered += 1
            assert self._socket is not None
            os.write(self._socket.fileno(), self._answer)


def _quick_socket(transport: asyncio.BaseTransport) -> socket.socket:
    found: socket.socket = cast("asyncio.Transport", transport).get_extra_info("socket")
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def _answer(topic: str) -> bytes:
    """Return the answer to Produce version 7 for the first partition of a topic."""
    name = topic.encode()
    body = struct.pack(">iih", 1, 1, len(name)) + name + struct.pack(">i", 1)
    body += _ANSWER.pack(0, 0, 0, -1, 0, 0)
    return struct.pack(">i", len(body)) + body


async def _serve(directory: Path, topic: str, others: Sequence[int]) -> None:
    loop = asyncio.get_running_loop()
    followers = []
    answer_bytes = len(_answer(topic))
    for port in others:
        _, follower = await loop.create_connection(
            lambda: _Follower(answer_bytes), "127.0.0.1", port
        )
        followers.append(follower)
    server = await loop.create_server(
        lambda: _Publishes(directory, topic, followers), "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def bare_server(
    directory: Path, topic: str, others: Sequence[int] = (), program: Sequence[str] = ()
) -> Iterator[int]:
    """Run one in a process of its own, under `program` where there is one; give its port."""
    directory.mkdir()
    module = "benchmarks.bare_server"
    command = [sys.executable, "-m", *program, module, str(directory), topic]
    process = subprocess.Popen([*command, *map(str, others)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1]), sys.argv[2], [int(port) for port in sys.argv[3:]]))
