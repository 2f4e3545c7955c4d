"""A connection of the HTTP port, with a short way for the endpoints that are asked all the time.

uvicorn's protocol carries every request through the ASGI interface: a scope, two callables, several
messages and the framework's layers, 80 µs and more before an endpoint begins. For a publish or an
ack of a few messages that is most of the work. So a request that one of the *shortcuts* answers, or
a door of another protocol on this port, is served right here: its body is collected, the coroutine
that answers runs as one task, and the answer leaves in one write.

The short way is for plain requests alone. Whatever else a request may be (of an unknown path, with
escapes or a query, in chunks, larger than its limit, waiting for a `100 Continue`, from a page in a
browser, or sent before the answer to the one before) is left to uvicorn and the application, which
answers the same, only later. Both ways share uvicorn's notion of the request under way
(`self.cycle`), so pipelined requests are answered in their order, and a server that stops waits for
the answers that it owes.

A head that has led to a shortcut before is found by its bytes (`known_heads.py`), and the parser
does not see it again.

uvicorn sets a timer after each answer and takes it back with the next request. Here a connection
has one timer, which looks whether the connection has been idle for long and otherwise goes on.

No other protocol is spoken here, so a client that offers to change to one (Java's does, to HTTP/2,
until it was answered once) is answered as if it had not (RFC 9110, section 7.8). The parser takes
no body of such a request, so it is given the request once more, without the offer.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, ClassVar

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.errors import PenstockError
from penstock.protocols.http.endpoints import JSON, GuestDoor, Shortcut, WholeRequest
from penstock.protocols.http.failures import Failures, Refusal
from penstock.protocols.http.known_heads import Errand, Head, KnownHeads, whole_request
from penstock.protocols.http.routing import Shapes, ShortWay

logger = logging.getLogger(__name__)

# A request that has one of these is not plain.
_DETOURS = frozenset((b"content-encoding", b"expect", b"origin", b"transfer-encoding", b"upgrade"))
# The names of an offer to change to another protocol, as headers and in `Connection`.
_OFFER = frozenset((b"upgrade", b"http2-settings"))
_LENGTH_DIGITS_MAX = 12


class _Unheard:
    """Where uvicorn wakes an application, a shortcut does not sleep."""

    def set(self) -> None:
        """Wake nobody."""


class _Visit(msgspec.Struct, eq=False):
    """A request on the short way, as uvicorn sees it."""

    message_event: ClassVar[_Unheard] = _Unheard()

    goal: Shortcut | GuestDoor
    names: Mapping[str, str]
    keep_alive: bool
    parts: list[bytes] = []
    head: WholeRequest | None = None
    """The request without its body, for a guest's door."""
    disconnected: bool = False
    response_complete: bool = False
    task: asyncio.Task[None] | None = None

    def give_up(self) -> None:
        """The caller has left: messages that it waits for must not be handed out to nobody."""
        if self.task is None or self.response_complete:
            return
        if isinstance(self.goal, Shortcut):
            is_given_up = self.goal.is_for_callers_alone
        else:
            is_given_up = self.goal.is_for_callers_alone(self.whole())
        if is_given_up:
            self.task.cancel()

    def whole(self) -> WholeRequest:
        """Return the request with its body, for a guest's door."""
        assert self.head is not None, "a guest's door is given the whole request"
        return self.head._replace(body=b"".join(self.parts))


class Connection(HttpToolsProtocol):
    """One client. What uvicorn does for all requests is left to it."""

    shortcuts: ClassVar[Shapes[Shortcut | GuestDoor]] = Shapes()
    failures: ClassVar[Failures]
    # What uvicorn takes for its own is a visit on the short way.
    cycle: Any
    known_heads: ClassVar[KnownHeads]
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
        self._is_offer = False
        # True where the parser is in the middle of a request.
        self._is_within = False
        # When the last answer was given; None while a request is under way.
        self._idle_since_s: float | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
        cycle = self.cycle
        if isinstance(cycle, _Visit):
            cycle.give_up()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    # Of asyncio, where it says whether the connection stays half open.
    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends nothing more, and may still read: what is answered already goes out.

        Messages in that answer would be out with nobody, and a client that leaves in good order
        waits for them to give them back.
        """
        visit = self.cycle
        if not isinstance(visit, _Visit) or visit.task is None or visit.task.done():
            return False
        visit.give_up()
        visit.task.add_done_callback(lambda _: self.transport.close())
        return True

    def data_received(self, data: bytes) -> None:
        """Take in what the client sends."""
        self._unset_keepalive_if_required()
        cycle = self.cycle
        if self._is_within or not (cycle is None or cycle.response_complete):
            self._parse(data)
            return
        whole = whole_request(data)
        if whole is None:
            self._parse(data)
            return
        head, body = whole
        errand = self.known_heads.find(head)
        if errand is not None and len(body) <= errand.goal.body_bytes_max:
            self._begin(_Visit(errand.goal, errand.names, True, [body]))
            return
        self._parse(data)
        visit = self.cycle
        if visit is not cycle and not self._is_within and self._length == len(body):
            self._learn(head, visit)

    def _learn(self, head: Head, visit: Any) -> None:
        """Keep the head of a request that took the short way."""
        if isinstance(visit, _Visit) and isinstance(visit.goal, Shortcut) and visit.keep_alive:
            self.known_heads.learn(head, Errand(visit.goal, visit.names))

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as stop:
                if not self._is_offer:
                    # Behind a CONNECT comes no HTTP.
                    self._is_within = True
                    return
                data = self._without_offer() + data[stop.args[0] :]
                # The one that has stopped takes no more where the client wants the end after this.
                self.parser = HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            except HttpParserError:
                message = "Invalid HTTP request received."
                self.logger.warning(message)
                self.send_400_response(message)
                return
            else:
                return

    # What the parser finds, in this order.

    def on_message_begin(self) -> None:
        """A request begins; what the application needs is made when that is clear."""
        self._is_within = True
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._is_plain = True
        self._length = 0
        self._is_offer = False

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
        if not self._is_plain and self.parser.should_upgrade():
            # A CONNECT looks like an offer, and would do so again without its headers.
            self._is_offer = b"upgrade" in dict(self.headers)
            if self._is_offer:
                return
        visit = self._visit() if self._is_plain else None
        if visit is not None:
            self.cycle = visit
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
        goal, names = found
        if not 0 <= self._length <= goal.body_bytes_max:
            return None
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        visit = _Visit(goal, names, keep_alive)
        if isinstance(goal, GuestDoor):
            visit.head = self._head()
        return visit

    def _head(self) -> WholeRequest:
        headers = {name.decode("latin-1"): text.decode("latin-1") for name, text in self.headers}
        site = f"{self.scheme}://{headers.get('host', '')}"
        method = self.parser.get_method().decode()
        return WholeRequest(method, site, self.url.decode(), "", headers, b"")

    def _without_offer(self) -> bytes:
        """Return the head of the request as a client sends it that offers no other protocol."""
        parser = self.parser
        version = parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(each for each in tokens if each.lower() not in _OFFER)
            if name not in _OFFER:
                lines.append(name + b": " + value)
        return b"\r\n".join((*lines, b"", b""))

    def on_body(self, body: bytes) -> None:
        """Collect what a shortcut is given."""
        cycle = self.cycle
        if isinstance(cycle, _Visit):
            cycle.parts.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Let a shortcut begin."""
        if self._is_offer:
            return
        self._is_within = False
        cycle = self.cycle
        if isinstance(cycle, _Visit):
            self._begin(cycle)
        else:
            super().on_message_complete()

    def _begin(self, visit: _Visit) -> None:
        self.cycle = visit
        task = visit.task = self.loop.create_task(self._serve(visit))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # Between requests.

    def on_response_complete(self) -> None:
        """Go on with a request that was sent ahead, or wait for the next."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            return
        self._idle_since_s = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_later(self.timeout_keep_alive)

    def _look_later(self, wait_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(wait_s, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        """A client sends something; the timer goes on, and finds out by itself."""
        self._idle_since_s = None

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been idle for long."""
        self.timeout_keep_alive_task = None
        if self._idle_since_s is None:
            # The answer to the request that is under way sets the timer again.
            return
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._look_later(left_s)
        elif not self.transport.is_closing():
            self.transport.close()

    # The answer.

    async def _serve(self, visit: _Visit) -> None:
        goal = visit.goal
        try:
            if isinstance(goal, Shortcut):
                answer = await goal.answer(visit.names, b"".join(visit.parts))
                head = self._good_head(goal.status)
            else:
                reply = await goal.answer(visit.whole())
                head, answer = self._made_head(reply.status, reply.headers.items()), reply.body
        except PenstockError as error:
            head, answer = self._refused(self.failures.refusal_of(error))
        except asyncio.CancelledError:
            # The caller has left, or the server stops and has waited long enough.
            self.transport.close()
            raise
        except Exception:
            logger.exception("a request failed")
            head, answer = self._refused(self.failures.surprise())
        if self.flow.write_paused:
            await self.flow.drain()
        if not self.transport.is_closing():
            self._write(visit, head, answer)
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
            head = Connection._heads[status] = self._made_head(status, [("content-type", JSON)])
        return head

    def _refused(self, refusal: Refusal) -> tuple[bytes, bytes]:
        headers = {**(refusal.headers or {}), "content-type": JSON}
        return self._made_head(refusal.status, headers.items()), refusal.body

    def _made_head(self, status: int, headers: Iterable[tuple[str, str]]) -> bytes:
        lines = [b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode())]
        lines += [name.lower() + b": " + value for name, value in self.server_state.default_headers]
        lines += [f"{name.lower()}: {value}".encode("latin-1") for name, value in headers]
        return b"\r\n".join((*lines, b"content-length: "))


def connection_class(short_way: ShortWay | None) -> type[Connection]:
    """Return the connections of a server; without a short way all requests take the long one."""
    own = short_way._asdict() if short_way else {}
    return type("Connection", (Connection,), {**own, "known_heads": KnownHeads()})
