"""The bytes of one connection to a peer, cut into frames.

Frames are handed over in the turn of the loop in which they arrive, without a task in between: one
that carries entries or their acknowledgement is on somebody's way to an answer. For the same reason
a small one is sent at once, past the transport, which would keep it until the end of the turn. That
is done while the transport has nothing to send itself, where it has a plain socket: not with TLS.
"""

import asyncio
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from penstock.frames import FrameReader

Buffer = bytes | bytearray | memoryview

_FRAME_BYTES_MAX = 256 * 1024 * 1024
# Larger ones are as well off with the transport, which knows what to do with the rest.
_AT_ONCE_BYTES_MAX = 64 * 1024
_AT_ONCE_PARTS_MAX = 64
SCRATCH_BYTES = 256 * 1024
"""How much is read at a time; larger frames are read straight into their own memory."""


class PeerStream(asyncio.BufferedProtocol):
    """One connection, from either side."""

    def __init__(
        self, scratch: bytearray, on_made: Callable[["PeerStream"], None] | None = None
    ) -> None:
        self._frames = FrameReader(scratch, _FRAME_BYTES_MAX)
        self._on_made = on_made
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        # Whether the transport was given something in this turn of the loop: it may keep it.
        self._is_queued = False
        self._take: Callable[[bytearray], None] | None = None
        # What came before anybody took it.
        self._early: deque[bytearray] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; on the side that was dialled, tell whoever listens."""
        # uvloop's transports have the methods of asyncio's without being subclasses.
        self._transport = cast("asyncio.Transport", transport)
        own = transport.get_extra_info("socket")
        if own is not None and transport.get_extra_info("sslcontext") is None:
            self._socket = socket.socket(fileno=os.dup(own.fileno()))
            self._socket.setblocking(False)
        if self._on_made is not None:
            self._on_made(self)

    def get_buffer(self, sizehint: int) -> Any:  # noqa: ARG002
        """Return where to read to."""
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Hand over the frames that have become whole."""
        take = self._take or self._keep
        try:
            for frame in self._frames.received(nbytes):
                take(frame)
        except Exception as error:  # noqa: BLE001 (whoever waits for the end hears of it)
            self._finish(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell those who wait."""
        self._finish(exc or ConnectionResetError("the peer has closed the connection"))

    def _keep(self, frame: bytearray) -> None:
        self._early.append(frame)
        if self._transport is not None:
            # A peer says hello and then waits to be greeted; more than that is not kept.
            self._transport.pause_reading()
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _finish(self, error: Exception) -> None:
        for waiter in (self._end, self._arrival):
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
        # Nobody may be waiting yet, or any more.
        self._end.exception()
        self.close()

    # What the owner calls.

    @property
    def peer_host(self) -> str:
        """Where the connection comes from, as far as this side can tell."""
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(name[0]) if name else "unknown"

    async def first_frame(self) -> bytearray:
        """Wait for the first frame, or raise why there is none."""
        if not self._early:
            if self._end.done():
                self._end.result()
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return self._early.popleft()

    async def run(self, take: Callable[[bytearray], None]) -> None:
        """Hand every frame to `take` until the connection ends or `take` fails; raise why."""
        while self._early:
            take(self._early.popleft())
        self._take = take
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        await asyncio.shield(self._end)

    def send(
        self, parts: Sequence[Buffer], size_bytes: int, *, unsent_bytes_max: float = math.inf
    ) -> None:
        """Send parts of `size_bytes` together, back to back; one that is closing sends nothing.

        They are dropped when more than `unsent_bytes_max` wait for the peer to take them.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        unsent_bytes = transport.get_write_buffer_size()
        if (
            self._socket is not None
            and not (unsent_bytes or self._is_queued)
            and size_bytes <= _AT_ONCE_BYTES_MAX
            and len(parts) <= _AT_ONCE_PARTS_MAX
        ):
            parts = _send_at_once(self._socket, parts, size_bytes)
        if parts and unsent_bytes <= unsent_bytes_max:
            transport.writelines(parts)
            if not self._is_queued:
                self._is_queued = True
                asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """The transport has sent what it could; what is left it tells."""
        self._is_queued = False

    def close(self) -> None:
        """End the connection after what was sent."""
        if self._transport is not None:
            self._transport.close()
        if self._socket is not None:
            # The connection ends with the last descriptor.
            self._socket.close()
            self._socket = None


def _send_at_once(
    sock: socket.socket, parts: Sequence[Buffer], size_bytes: int
) -> Sequence[Buffer]:
    """Return what could not be sent."""
    try:
        sent_bytes = sock.sendmsg(parts)
    except OSError:
        # A peer that takes nothing now, or is gone, is the transport's business.
        return parts
    return () if sent_bytes == size_bytes else [b"".join(parts)[sent_bytes:]]
