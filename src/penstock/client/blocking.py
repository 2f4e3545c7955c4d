"""Carries out calls over blocking sockets, for any number of threads, also of forked processes."""

import socket
import ssl
import threading
import time
from typing import NamedTuple, TypeVar

from penstock.client.calls import Call, read_answer
from penstock.client.forks import watch_forks
from penstock.client.retries import Route, Unreached
from penstock.client.wire import Answer, AnswerReader, Target, encode_request
from penstock.clock import SystemClock
from penstock.errors import TimedOut, Unavailable

T = TypeVar("T")

CONNECT_WAIT_S = 5.0
READ_BYTES = 256 * 1024
# Nodes close connections that are idle for 5 s; a request must not meet that moment.
IDLE_S_MAX = 3.0
IDLE_MAX = 64


class _Idle(NamedTuple):
    connection: socket.socket
    since_s: float


class BlockingCaller:
    """Keeps connections open and repeats calls where that is safe."""

    def __init__(self, route: Route, *, wait_s: float) -> None:
        self._route = route
        self._wait_s = wait_s
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._idle: dict[str, list[_Idle]] = {}
        self._is_closed = False
        watch_forks(self)

    def begin_anew(self) -> None:
        """Leave the connections to the parent process."""
        self._lock = threading.Lock()
        for kept in self._idle.values():
            for each in kept:
                each.connection.close()
        self._idle = {}

    def run(self, call: Call[T]) -> T:
        """Carry out a call, or raise why it cannot be."""
        attempts = self._route.begin(call, self._clock.steady_s())
        while True:
            target = attempts.target
            try:
                return read_answer(call, self._exchange(target, call), target.url)
            except Unavailable as error:
                pause_s = attempts.failed(error, self._clock.steady_s())
            time.sleep(pause_s)

    def close(self) -> None:
        """Close what is idle; connections in use are closed after their exchange."""
        with self._lock:
            self._is_closed = True
            idle = [each.connection for kept in self._idle.values() for each in kept]
            self._idle.clear()
        for connection in idle:
            connection.close()

    def _exchange(self, target: Target, call: Call[T]) -> Answer:
        wait_s = self._wait_s + call.wait_s
        request = encode_request(target, call.method, call.path, call.content, call.content_type)
        connection = self._take(target) or _connect(target)
        is_kept = False
        try:
            connection.settimeout(wait_s)
            connection.sendall(request)
            answer = _receive(connection)
            is_kept = answer.is_reusable and self._keep(target, connection)
        except TimeoutError:
            raise TimedOut(f"{target.url} gave no answer within {wait_s:g} s") from None
        except (OSError, Unavailable) as error:
            raise Unavailable(f"{target.url} broke off: {error or type(error).__name__}") from None
        finally:
            if not is_kept:
                connection.close()
        return answer

    def _take(self, target: Target) -> socket.socket | None:
        """Return an idle connection that the node has not given up, if there is one."""
        oldest_s = self._clock.steady_s() - IDLE_S_MAX
        with self._lock:
            kept = self._idle.get(target.url, [])
            while kept:
                connection, since_s = kept.pop()
                if since_s > oldest_s and not _has_ended(connection):
                    return connection
                connection.close()
        return None

    def _keep(self, target: Target, connection: socket.socket) -> bool:
        with self._lock:
            kept = self._idle.setdefault(target.url, [])
            if self._is_closed or len(kept) >= IDLE_MAX:
                return False
            kept.append(_Idle(connection, self._clock.steady_s()))
        return True


def _connect(target: Target) -> socket.socket:
    try:
        connection = socket.create_connection((target.host, target.port), CONNECT_WAIT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if target.is_secure:
            context = ssl.create_default_context()
            return context.wrap_socket(connection, server_hostname=target.host)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unreached(f"no node can be reached at {target.url} ({reason})") from None
    return connection


def _has_ended(connection: socket.socket) -> bool:
    """Between exchanges nothing arrives but the end."""
    connection.settimeout(0)
    try:
        connection.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    return True


def _receive(connection: socket.socket) -> Answer:
    reader = AnswerReader()
    while data := connection.recv(READ_BYTES):
        if (answer := reader.feed(data)) is not None:
            return answer
    return reader.feed_end()
