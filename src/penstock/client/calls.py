"""What can be asked of a node, as values: requests without a connection.

Both faces of the client carry out the same calls; the modules beside this one make them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock import errors
from penstock.client.wire import Answer
from penstock.errors import InvalidRequest, PenstockError, Unavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request. `is_repeatable` says that sending it twice does what sending it once does."""

    method: str
    path: str
    read: Callable[[bytes], T]
    content: bytes | None = None
    content_type: str = "application/json"
    is_repeatable: bool = True
    wait_s: float = 0.0
    """How long the node may take on purpose, beside what every request takes."""
    undo: "Callable[[T], Sequence[Call[Any]]] | None" = None
    """Takes back what an answer holds, when it comes to a caller who does not wait any more."""


class Failure(msgspec.Struct, frozen=True):
    """An error as nodes write it."""

    type: str
    message: str
    retryable: bool

    def error(self) -> PenstockError:
        """Return the error that the node raised; of one that is not known here, its kind."""
        kind = getattr(errors, self.type, None)
        is_known = isinstance(kind, type) and issubclass(kind, PenstockError)
        if kind is None or not is_known or kind is errors.MemberIdRequired:
            kind = Unavailable if self.retryable else PenstockError
        error: PenstockError = kind(self.message)
        return error


class _FailureAnswer(msgspec.Struct, frozen=True):
    error: Failure


_GATEWAY_STATUSES = (502, 503, 504)
_failure_of = msgspec.json.Decoder(_FailureAnswer).decode


def read_answer(call: Call[T], answer: Answer, url: str) -> T:
    """Return what a call asked for, or raise what the node at `url` answered instead."""
    try:
        if answer.status < 400:
            return call.read(answer.content)
        failure = _failure_of(answer.content).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        shown = answer.content[:100].decode(errors="replace")
        message = f"{url} does not answer like Penstock: status {answer.status}, {shown!r}"
        # A proxy says so while it does not reach the node behind it.
        kind = Unavailable if answer.status in _GATEWAY_STATUSES else PenstockError
        raise kind(message) from None
    raise failure.error()


def path_of(*parts: str | int, **query: str | int | Sequence[str] | None) -> str:
    """Join the parts of a path, each of which may hold any character, and one at least."""
    path = "/" + "/".join(quote(str(part), safe="") for part in parts)
    if "" in parts:
        raise InvalidRequest(f"the name of a topic, of a group or an id is empty in {path}")
    given = {name: value for name, value in query.items() if value not in (None, ())}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def reader_of(kind: type[T]) -> Callable[[bytes], T]:
    """Return what decodes an answer of JSON."""
    return msgspec.json.Decoder(kind).decode


def to_json(body: Any) -> bytes:
    """Encode the body of a request; what is None is left out."""
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if value is not None}
    return msgspec.json.encode(body)
