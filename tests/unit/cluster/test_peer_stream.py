"""A real connection to a stream that is not greeted yet, and to one whose frames are taken."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from random import Random

import pytest
import uvloop

from penstock.cluster.peer_stream import SCRATCH_BYTES, PeerStream
from penstock.errors import InvalidRequest

HOST = "127.0.0.1"
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def send(stream: PeerStream, *parts: bytes) -> None:
    stream.send(parts, sum(map(len, parts)))


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


def run_with_raw_peer(
    scene: Callable[[PeerStream, asyncio.StreamReader], Awaitable[None]], loop_of: LoopFactory
) -> None:
    """Play a scene with a stream whose peer reads raw bytes."""

    async def play() -> None:
        accepted: asyncio.Future[PeerStream] = asyncio.get_running_loop().create_future()
        server = await asyncio.get_running_loop().create_server(
            lambda: PeerStream(bytearray(SCRATCH_BYTES), accepted.set_result), HOST, 0
        )
        reader, writer = await asyncio.open_connection(HOST, server.sockets[0].getsockname()[1])
        async with asyncio.timeout(120):
            await scene(await accepted, reader)
        writer.close()
        server.close()

    with asyncio.Runner(loop_factory=loop_of) as runner:
        runner.run(play())


@pytest.mark.parametrize("loop_of", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_frames_of_all_sizes_are_sent_in_order(loop_of: LoopFactory) -> None:
    """Small ones go at once, large ones when the transport sends them, also in one turn."""

    async def scene(stream: PeerStream, reader: asyncio.StreamReader) -> None:
        random = Random(1)
        sent = b""
        for number in range(200):
            size = random.choice((1, 1_000, 60_000, 70_000, 3_000_000 if number % 20 == 0 else 5))
            frame = [random.randbytes(4), random.randbytes(size)]
            send(stream, *frame)
            sent += b"".join(frame)
            if random.random() < 0.3:
                await asyncio.sleep(0)

        assert await reader.readexactly(len(sent)) == sent

    run_with_raw_peer(scene, loop_of)


@pytest.mark.parametrize("loop_of", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_small_frame_is_sent_in_the_turn_in_which_it_is_given(loop_of: LoopFactory) -> None:
    async def scene(stream: PeerStream, reader: asyncio.StreamReader) -> None:
        raw = reader._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        send(stream, b"head", b"body")

        with socket.socket(fileno=os.dup(raw.fileno())) as peer:
            assert peer.recv(100) == b"headbody"

    run_with_raw_peer(scene, loop_of)


@pytest.mark.parametrize("loop_of", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_peer_sees_the_end_of_a_closed_stream_after_all_that_was_sent(
    loop_of: LoopFactory,
) -> None:
    async def scene(stream: PeerStream, reader: asyncio.StreamReader) -> None:
        large = b"x" * 5_000_000
        send(stream, b"small")
        send(stream, large)
        stream.close()
        send(stream, b"late")

        assert await reader.read() == b"small" + large

    run_with_raw_peer(scene, loop_of)


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
