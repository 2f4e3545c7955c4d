"""One client's connection: frames in, answers out, in the order in which the requests came.

Produce requests are pipelined: several may wait for the disk at once, which is what lets one client
fill a group commit. Any other request is started when all before it are answered, as with Kafka.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import PenstockError, Unavailable
from penstock.frames import FrameReader
from penstock.protocols.kafka.api import Api, Client, Context, Request
from penstock.protocols.kafka.codec import API_VERSIONS_KEY, read_request_header
from penstock.protocols.kafka.outbox import Outbox, Part

if TYPE_CHECKING:
    from penstock.protocols.kafka.server import KafkaServer

logger = logging.getLogger(__name__)


class _Call:
    """A request that is being answered."""

    __slots__ = ("_on_answer", "api", "has_answer", "parts", "task")

    def __init__(self, api: Api, on_answer: Callable[[], None]) -> None:
        self.api = api
        self.task: asyncio.Task[None] | None = None
        self.parts: list[Part] | None = None
        self.has_answer = False
        self._on_answer = on_answer

    def reply(self, parts: list[Part] | None) -> None:
        """Take the answer; None when there is to be none."""
        self.parts = parts
        self.has_answer = True
        self._on_answer()


class Connection(asyncio.BufferedProtocol):
    """Reads requests and sees that each is answered, or ends the connection."""

    def __init__(self, server: "KafkaServer") -> None:
        self._server = server
        self.number = server.next_connection()
        self._frames = FrameReader(server.scratch, server.frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self._waiting: deque[tuple[Api, Request]] = deque()
        self._calls: deque[_Call] = deque()
        self._is_advancing = False
        self._is_paused = False
        self._peer = "unknown"
        self._context: Context | None = None

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take up a new client, or turn it away when there are too many."""
        # uvloop's transports have the methods of asyncio's without being subclasses.
        self._transport = transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if peer else "unknown"
        if not self._server.admit(self):
            transport.abort()
            return
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._outbox = Outbox(
            asyncio.get_running_loop(),
            sock.fileno(),
            on_drained=self._advance,
            on_lost=lambda error: self._end(f"sending failed: {error}"),
        )

    def get_buffer(self, sizehint: int) -> Any:  # noqa: ARG002
        """Return where to read to."""
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Take the frames that have become whole."""
        try:
            for frame in self._frames.received(nbytes):
                self._take(frame)
        except PenstockError as error:
            self._refuse(str(error))
        except Exception as error:  # noqa: BLE001 (a client must not be able to harm others)
            self._refuse(f"a frame could not be read: {error!r}")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Forget the client; what it published is carried out all the same."""
        self._server.dismiss(self)
        for call in self._calls:
            if call.task is not None:
                call.task.cancel()
        self._calls.clear()
        self._waiting.clear()
        if self._outbox is not None:
            self._outbox.close()

    # Requests and their order.

    def _take(self, frame: bytearray) -> None:
        header = read_request_header(frame)
        api = self._server.apis.get(header.api_key)
        if api is None:
            raise _unknown_api(header.api_key)
        is_known = api.version_min <= header.version <= api.version_max
        # ApiVersions itself answers a version that it does not know.
        if not is_known and header.api_key != API_VERSIONS_KEY:
            raise _unsupported_version(api, header.version)
        self._server.statistics.count_request("kafka", api.name)
        request = Request(header, frame, self._context_of(header.client_id or ""))
        if not self._waiting and self._is_turn_of(api):
            self._start(api, request)
        else:
            self._waiting.append((api, request))
        if len(self._waiting) + len(self._calls) >= self._server.requests_in_flight_max:
            self._pause()

    def _context_of(self, client_id: str) -> Context:
        """Return what handlers may use; a client seldom changes its name between two requests."""
        context = self._context
        if context is None or context.client.client_id != client_id:
            client = Client(client_id, self._peer)
            context = Context(self._server.broker, client, self.number)
            self._context = context
        return context

    def _advance(self) -> None:
        """Start every request whose turn has come."""
        if self._is_advancing:
            # A request that is answered at once comes back here; the loop below goes on with it.
            return
        self._is_advancing = True
        try:
            while self._waiting and self._is_turn_of(self._waiting[0][0]):
                api, request = self._waiting.popleft()
                self._start(api, request)
        finally:
            self._is_advancing = False
        if self._is_paused and len(self._waiting) < self._server.requests_in_flight_max // 2:
            self._resume()

    def _is_turn_of(self, api: Api) -> bool:
        if self._server.is_draining:
            return False
        if not self._calls:
            return self._outbox is not None and not self._outbox.is_blocked
        return api.is_pipelined and self._calls[-1].api.is_pipelined

    def _start(self, api: Api, request: Request) -> None:
        call = _Call(api, self._send_answers)
        self._calls.append(call)
        try:
            call.task = api.start(request, call.reply)
        except Unavailable as error:
            self._end(f"{api.name} cannot be carried out: {error}")
            return
        except PenstockError as error:
            self._refuse(str(error))
            return
        except Exception as error:  # noqa: BLE001 (a client must not be able to harm others)
            self._refuse(f"{api.name} could not be read: {error!r}")
            return
        if call.task is not None:
            call.task.add_done_callback(lambda task: self._check_task(api, request, task))

    def _check_task(self, api: Api, request: Request, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Unavailable):
            self._end(f"{api.name} cannot be answered: {error}")
        elif error is not None:
            logger.error(
                "request failed",
                exc_info=error,
                extra={"api": api.name, "version": request.header.version, "peer": self._peer},
            )
            self._end(f"{api.name} could not be answered")

    def _send_answers(self) -> None:
        """Send what is ready, up to the first request that is not."""
        while self._calls and self._calls[0].has_answer:
            parts = self._calls.popleft().parts
            if parts is not None and self._outbox is not None:
                self._outbox.send(parts)
        if self._waiting or self._is_paused:
            self._advance()

    # Flow and end.

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    @property
    def is_idle(self) -> bool:
        """True when nothing of this client is being worked on but waits for something to happen."""
        is_sending = self._outbox is not None and self._outbox.is_blocked
        return not is_sending and all(call.api.may_wait for call in self._calls)

    def end(self) -> None:
        """Close the connection because the node stops."""
        if self._transport is not None:
            self._transport.abort()

    def _refuse(self, reason: str) -> None:
        self._server.statistics.frames_malformed += 1
        self._end(reason, level=logging.WARNING)

    def _end(self, reason: str, *, level: int = logging.INFO) -> None:
        logger.log(level, "connection closed", extra={"peer": self._peer, "reason": reason})
        self._waiting.clear()
        if self._transport is not None:
            self._transport.abort()


def _unknown_api(key: int) -> PenstockError:
    return PenstockError(f"API key {key} is not supported")


def _unsupported_version(api: Api, version: int) -> PenstockError:
    return PenstockError(
        f"{api.name} version {version} is not supported,"
        f" only {api.version_min} to {api.version_max} are"
    )
