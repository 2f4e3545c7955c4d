"""JSON over HTTP to one node: requests out, decoded answers or errors of this package back.

Nothing is retried: whoever asks knows whether asking twice does harm.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from penstock.client.blocking import BlockingCaller
from penstock.client.calls import Call, reader_of
from penstock.client.retries import Route

URL_DEFAULT = "http://127.0.0.1:8080"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HttpConnection:
    """The HTTP address of a node, and the limit of every wait.

    A node takes up to 15 s to find a leader before it gives up, so the limit is above that.
    """

    url: str = URL_DEFAULT
    wait_s: float = 30.0

    def request(self, method: str, path: str, *, answer: type[T], body: Any = None) -> T:
        """Send one request and return its answer, or raise what the node answered."""
        call = Call(
            method=method,
            path=path,
            read=reader_of(answer),
            content=None if body is None else msgspec.json.encode(body),
            is_repeatable=False,
        )
        caller = BlockingCaller(Route(self.url, retry_s=0), wait_s=self.wait_s)
        try:
            return caller.run(call)
        finally:
            caller.close()
