"""A connection of the HTTP port, with a short way for the endpoints that are asked all the time.

uvicorn's protocol carries every request through the ASGI interface: a scope, two callables, several
messages and the framework's layers, 80 µs and more before an endpoint begins. For a publish or an
ack of a few messages that is most of the work. So a request that one of the *shortcuts* answers is
served right here: its body is collected, the shortcut's coroutine runs as one task, and the answer
leaves in one write.

The short way is for plain requests alone. Whatever else a request may be (of an unknown path, with
escapes or a query, in chunks, larger than its limit, waiting for a `100 Continue`, from a page in a
browser, or sent before the answer to the one before) is left to uvicorn and the application, which
answers the same, only later. Both ways share uvicorn's notion of the request under way
(`self.cycle`), so pipelined requests are answered in their order, idle connections are closed, and
a server that stops waits for the answers that it owes.
"""

import asyncio
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from penstock.errors import PenstockError
from penstock.protocols.http.endpoints import JSON, Shortcut
from penstock.protocols.http.failures import Refusal, refusal_of, surprise
from penstock.protocols.http.routing import Shapes

logger = logging.getLogger(__name__)

# A request that has one of these is not plain.
_DETOURS = frozenset((b"expect", b"origin", b"transfer-encoding", b"upgrade"))
_LENGTH_DIGITS_MAX = 12


class _Unheard:
    """Where uvicorn wakes an application, a shortcut does not sleep."""

    def set(self) -> None:
        """Wake nobody."""


class _Visit:
    """A request on the short way, as uvicorn sees it."""

    __slots__ = ("disconnected", "keep_alive", "names", "parts", "response_complete", "shortcut")

    message_event: ClassVar[_Unheard] = _Unheard()

    def __init__(self, shortcut: Shortcut, names: Mapping[str, str], *, keep_alive: bool) -> None:
        self.shortcut = shortcut
        self.names = names
        self.keep_alive = keep_alive
        self.parts: list[bytes] = []
        self.disconnected = False
        self.response_complete = False


class Connection(HttpToolsProtocol):
    """One client. What uvicorn does for all requests is left to it."""

    shortcuts: ClassVar[Shapes[Shortcut]]
    # The beginnings of good answers by their status, and uvicorn's headers that they are made with.
    _heads: ClassVar[dict[int, bytes]] = {}
    _heads_from: ClassVar[list[tuple[bytes, bytes]] | None] = None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._is_plain = True
        self._length = 0

    # What the parser finds, in this order.

    def on_message_begin(self) -> None:
        """A request begins; what the application needs is made when that is clear."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._is_plain = True
        self._length = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and look at those that decide about the way."""
        name = name.lower()
        if name == b"content-length":
            is_number = value.isdigit() and len(value) <= _LENGTH_DIGITS_MAX
            self._length = int(value) if is_number else -1
        elif name in _DETOURS:
            self._is_plain = False
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Choose the way."""
        visit = self._visit() if self._is_plain else None
        if visit is not None:
            self.cycle = cast("RequestResponseCycle", visit)
            return
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expects
        self.scope["headers"] = headers
        super().on_headers_complete()

    def _visit(self) -> _Visit | None:
        """Return the request when it may go the short way."""
        if self.cycle is not None and not self.cycle.response_complete:
            return None
        url = self.url
        if b"%" in url or b"?" in url or not url.isascii():
            return None
        found = self.shortcuts.find(self.parser.get_method().decode(), url.decode())
        if found is None:
            return None
        shortcut, names = found
        if not 0 <= self._length <= shortcut.body_bytes_max:
            return None
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        return _Visit(shortcut, names, keep_alive=keep_alive)

    def on_body(self, body: bytes) -> None:
        """Collect what a shortcut is given."""
        cycle = cast("object", self.cycle)
        if isinstance(cycle, _Visit):
            cycle.parts.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Let a shortcut begin."""
        cycle = cast("object", self.cycle)
        if isinstance(cycle, _Visit):
            task = self.loop.create_task(self._serve(cycle))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        else:
            super().on_message_complete()

    # The answer.

    async def _serve(self, visit: _Visit) -> None:
        refusal: Refusal | None = None
        answer = b""
        try:
            body = b"".join(visit.parts)
            answer = await visit.shortcut.answer(visit.names, body)
        except PenstockError as error:
            refusal = refusal_of(error)
        except asyncio.CancelledError:
            # The server stops and has waited long enough.
            self.transport.close()
            raise
        except Exception:
            logger.exception("a request failed")
            refusal = surprise()
        if self.flow.write_paused:
            await self.flow.drain()
        if not self.transport.is_closing():
            if refusal is None:
                self._write(visit, self._good_head(visit.shortcut.status), answer)
            else:
                self._write(visit, self._bad_head(refusal), refusal.body)
        visit.response_complete = True
        self.on_response_complete()

    def _write(self, visit: _Visit, head: bytes, body: bytes) -> None:
        end = b"%d\r\n\r\n" if visit.keep_alive else b"%d\r\nconnection: close\r\n\r\n"
        self.transport.write(b"".join((head, end % len(body), body)))
        if not visit.keep_alive:
            self.transport.close()

    def _good_head(self, status: int) -> bytes:
        """Return the beginning of an answer, to which its length is added."""
        if Connection._heads_from is not self.server_state.default_headers:
            # They hold the time, and are made anew every second.
            Connection._heads_from = self.server_state.default_headers
            Connection._heads.clear()
        head = Connection._heads.get(status)
        if head is None:
            head = Connection._heads[status] = self._made_head(HTTPStatus(status))
        return head

    def _bad_head(self, refusal: Refusal) -> bytes:
        headers = (refusal.headers or {}).items()
        more = [(name.encode(), value.encode()) for name, value in headers]
        return self._made_head(HTTPStatus(refusal.status), *more)

    def _made_head(self, status: HTTPStatus, *more: tuple[bytes, bytes]) -> bytes:
        lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode())]
        headers = (*self.server_state.default_headers, *more, (b"content-type", JSON.encode()))
        lines += [name.lower() + b": " + value for name, value in headers]
        return b"\r\n".join((*lines, b"content-length: "))


def connection_class(shortcuts: Shapes[Shortcut]) -> type[Connection]:
    """Return the connections of a server that has these shortcuts."""
    return type("Connection", (Connection,), {"shortcuts": shortcuts})
