"""JSON over HTTP to one node: requests out, decoded answers or errors of this package back.

Nothing is retried: whoever asks knows whether asking twice does harm.
"""

import http.client
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from penstock import errors
from penstock.errors import InvalidRequest, PenstockError, TimedOut, Unavailable

URL_DEFAULT = "http://127.0.0.1:8080"
_PORTS = {"http": 80, "https": 443}
_JSON = {"Content-Type": "application/json", "Accept": "application/json"}

T = TypeVar("T")


class _Failure(msgspec.Struct, frozen=True):
    type: str
    message: str
    retryable: bool


class _FailureAnswer(msgspec.Struct, frozen=True):
    error: _Failure


@dataclass(frozen=True, slots=True)
class HttpConnection:
    """The HTTP address of a node, and the limit of every wait.

    A node takes up to 15 s to find a leader before it gives up, so the limit is above that.
    """

    url: str = URL_DEFAULT
    wait_s: float = 30.0

    def request(self, method: str, path: str, *, answer: type[T], body: Any = None) -> T:
        """Send one request and return its answer, or raise what the node answered."""
        target = self._target()
        kind = (
            http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
        )
        port = target.port or _PORTS[target.scheme]
        connection = kind(target.hostname or "", port, timeout=self.wait_s)
        try:
            content = None if body is None else msgspec.json.encode(body)
            self._connect(connection)
            status, received = self._exchange(connection, method, target.path + path, content)
        finally:
            connection.close()
        return self._decode(status, received, answer)

    def _target(self) -> SplitResult:
        try:
            target = urlsplit(self.url.rstrip("/"))
            is_usable = target.scheme in _PORTS and target.hostname and target.port != 0
        except ValueError:
            is_usable = False
        if not is_usable:
            raise InvalidRequest(f"url is {self.url!r}, not http://HOST:PORT")
        return target

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        try:
            connection.connect()
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unavailable(f"no node can be reached at {self.url} ({reason})") from None

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, content: bytes | None
    ) -> tuple[int, bytes]:
        try:
            connection.request(method, path, body=content, headers=_JSON)
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError:
            raise TimedOut(f"{self.url} gave no answer within {self.wait_s:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise Unavailable(f"{self.url} broke off: {reason}") from None

    def _decode(self, status: int, received: bytes, answer: type[T]) -> T:
        try:
            if status < 400:
                return msgspec.json.decode(received, type=answer)
            failure = msgspec.json.decode(received, type=_FailureAnswer).error
        except msgspec.MsgspecError:
            shown = received[:100].decode(errors="replace")
            message = f"{self.url} does not answer like Penstock: status {status}, {shown!r}"
            raise PenstockError(message) from None
        raise _error(failure)


def _error(failure: _Failure) -> PenstockError:
    """Return the error that the node raised; of one that is not known here, its kind."""
    kind = getattr(errors, failure.type, None)
    is_known = isinstance(kind, type) and issubclass(kind, PenstockError)
    if kind is None or not is_known or kind is errors.MemberIdRequired:
        kind = Unavailable if failure.retryable else PenstockError
    error: PenstockError = kind(failure.message)
    return error
