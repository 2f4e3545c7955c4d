"""A real connection to a stream that is not greeted yet, and to one whose frames are taken."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.cluster.peer_stream import SCRATCH_BYTES, PeerStream
from penstock.errors import InvalidRequest

HOST = "127.0.0.1"


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what travels over sockets, which keep their own time."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.001)


def run(scene: Callable[[PeerStream, asyncio.StreamWriter], Awaitable[None]]) -> None:
    """Play a scene with a stream that a raw peer is connected to."""

    async def play() -> None:
        accepted: asyncio.Future[PeerStream] = asyncio.get_running_loop().create_future()
        scratch = bytearray(SCRATCH_BYTES)
        server = await asyncio.get_running_loop().create_server(
            lambda: PeerStream(scratch, accepted.set_result), HOST, 0
        )
        _, writer = await asyncio.open_connection(HOST, server.sockets[0].getsockname()[1])
        async with asyncio.timeout(120):
            await scene(await accepted, writer)
        writer.close()
        server.close()

    asyncio.run(play())


def test_frames_that_come_early_are_kept_in_order() -> None:
    async def scene(stream: PeerStream, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(b"hello", b"one", b"two"))
        taken: list[bytes] = []
        first = await stream.first_frame()
        running = asyncio.ensure_future(stream.run(lambda frame: taken.append(bytes(frame))))
        large = b"x" * (3 * SCRATCH_BYTES)
        writer.write(framed(large, b"last"))
        await until(lambda: len(taken) == 4)

        assert first == b"hello"
        assert taken == [b"one", b"two", large, b"last"]
        writer.close()
        with pytest.raises(OSError, match="closed"):
            await running

    run(scene)


def test_the_first_frame_is_not_waited_for_when_the_peer_has_gone() -> None:
    async def scene(stream: PeerStream, writer: asyncio.StreamWriter) -> None:
        waiting = asyncio.ensure_future(stream.first_frame())
        await asyncio.sleep(0)
        writer.close()
        with pytest.raises(OSError, match="closed"):
            await waiting
        with pytest.raises(OSError, match="closed"):
            await stream.first_frame()

    run(scene)


def test_what_the_taker_raises_ends_the_connection() -> None:
    async def scene(stream: PeerStream, writer: asyncio.StreamWriter) -> None:
        def refuse(frame: bytearray) -> None:
            raise InvalidRequest(f"{bytes(frame)!r} makes no sense")

        running = asyncio.ensure_future(stream.run(refuse))
        await asyncio.sleep(0)
        writer.write(framed(b"nonsense"))

        with pytest.raises(InvalidRequest, match="nonsense"):
            await running

    run(scene)


def test_a_frame_that_is_too_large_ends_the_connection() -> None:
    async def scene(stream: PeerStream, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\xff\xff\xff\xff")

        with pytest.raises(InvalidRequest, match="was announced"):
            await stream.first_frame()

    run(scene)
