"""HTTP/1.1 without sockets: requests become bytes, and bytes that arrive become answers.

Both faces of the client share this. One connection carries one exchange at a time; after an answer
that allows it, the next one.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from penstock.errors import InvalidRequest, Unavailable

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """The HTTP address of a node."""

    url: str
    host: str
    port: int
    is_secure: bool
    prefix: str

    @classmethod
    def parse(cls, url: str) -> "Target":
        """Read an address such as `http://127.0.0.1:8080`, or raise `InvalidRequest`."""
        try:
            parts = urlsplit(url.strip().rstrip("/"))
            is_usable = parts.scheme in _PORTS and parts.hostname and parts.port != 0
            port = parts.port
        except ValueError:
            is_usable = False
        if not is_usable:
            raise InvalidRequest(f"url is {url!r}, not http://HOST:PORT")
        return cls(
            url=url.strip().rstrip("/"),
            host=parts.hostname or "",
            port=port or _PORTS[parts.scheme],
            is_secure=parts.scheme == "https",
            prefix=parts.path,
        )


def check_url(url: str) -> None:
    """Raise `InvalidRequest` when a text is not the HTTP address of a node."""
    Target.parse(url)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; `is_reusable` says whether the connection can carry another exchange."""

    status: int
    content: bytes
    is_reusable: bool


def encode_request(
    target: Target,
    method: str,
    path: str,
    content: bytes | None,
    content_type: str = "application/json",
) -> bytes:
    """Return the bytes of one request."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    lines = [
        f"{method} {target.prefix}{path} HTTP/1.1",
        f"Host: {host}:{target.port}",
        "Accept: application/json",
    ]
    if content is not None:
        lines += [f"Content-Type: {content_type}", f"Content-Length: {len(content)}"]
    elif method != "GET":
        lines.append("Content-Length: 0")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (content or b"")


class AnswerReader:
    """Puts one answer together from pieces of any size."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._answer: Answer | None = None
        self._has_headers = False

    def feed(self, data: bytes) -> Answer | None:
        """Take bytes that arrived; return the answer once it is whole."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise Unavailable(f"not an answer of HTTP: {error}") from None
        return self._answer

    def feed_end(self) -> Answer:
        """The other side has closed: that ends an answer without a length, and breaks others."""
        if self._has_headers and not self._parser.should_keep_alive():
            return self._whole(is_reusable=False)
        raise Unavailable("the connection was closed before the answer was whole")

    # What the parser calls.

    def on_headers_complete(self) -> None:
        """Status and headers have arrived."""
        self._has_headers = True

    def on_body(self, body: bytes) -> None:
        """A piece of the content has arrived."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        self._answer = self._whole(is_reusable=self._parser.should_keep_alive())

    def _whole(self, *, is_reusable: bool) -> Answer:
        return Answer(self._parser.get_status_code(), b"".join(self._pieces), is_reusable)
