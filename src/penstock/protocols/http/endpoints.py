"""The shape of one endpoint: what routing needs and what the OpenAPI document tells about it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from starlette.requests import Request
from starlette.responses import Response

from penstock.protocols.http.answers import FailureAnswer

JSON = "application/json"
BYTES = "application/octet-stream"
BODY_BYTES_MAX = 64 * 1024

Call = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Shortcut:
    """Answers with JSON, from the named parts of the path and the body alone.

    What needs no more than that is served without the framework in between.
    """

    answer: Callable[[Mapping[str, str], bytes], Awaitable[bytes]]
    body_bytes_max: int = BODY_BYTES_MAX
    status: int = 200
    is_for_any_site: bool = False
    """Whether a browser may ask for a page of another site."""
    is_for_callers_alone: bool = False
    """Whether it is given up when the caller leaves, since what it hands out would be lost."""


class WholeRequest(NamedTuple):
    """All that a caller has sent; names of headers are in lower case."""

    method: str
    site: str
    """What addresses on this port begin with, as the caller knows it."""
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


class WholeAnswer(Protocol):
    """All that a caller is answered."""

    @property
    def status(self) -> int:
        """The status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """All headers but those that every answer has."""

    @property
    def body(self) -> bytes:
        """The body."""


@dataclass(frozen=True, slots=True)
class GuestDoor:
    """Another protocol that is spoken on this port; it answers in its own way, also to errors.

    A body that is longer than the limit is cut behind it, for the door to refuse.
    """

    answer: Callable[[WholeRequest], Awaitable[WholeAnswer]]
    body_bytes_max: int
    is_for_callers_alone: Callable[[WholeRequest], bool]
    """Whether a request is given up when the caller leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One status that an endpoint can answer with; without a type the body is plain text."""

    meaning: str
    body: type | None = None
    media_type: str = JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A part of the path or of the query that the caller fills in."""

    name: str
    meaning: str
    type: Literal["string", "integer"]
    place: Literal["path", "query"] = "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path; `body` is the type of the JSON that a request carries.

    A body whose fields all have defaults may be left out, unless `needs_body` says otherwise.
    """

    path: str
    name: str
    summary: str
    description: str
    answers: dict[int, Answer]
    call: Call | Shortcut
    method: str = "GET"
    parameters: tuple[Parameter, ...] = ()
    body: type | None = None
    needs_body: bool = False
    """A request without a body is a mistake, although each field may be left out."""
    example: str = ""
    """A body as a caller might write it."""
    takes_bytes: bool = False
    """The request carries bytes instead of JSON."""


def query(name: str, meaning: str) -> Parameter:
    """A whole number of the query."""
    return Parameter(name=name, type="integer", place="query", meaning=meaning)


def text_query(name: str, meaning: str) -> Parameter:
    """A text of the query."""
    return Parameter(name=name, type="string", place="query", meaning=meaning)


TOPIC = Parameter(name="topic", type="string", meaning="Name of a topic.")
GROUP = Parameter(name="group", type="string", meaning="Name of a queue group.")
FAILURES = {
    400: Answer(meaning="The request must be changed; the message says how.", body=FailureAnswer),
    404: Answer(meaning="What the path names does not exist.", body=FailureAnswer),
    409: Answer(meaning="The state does not allow it.", body=FailureAnswer),
    503: Answer(meaning="No leader, no majority or no room; try again.", body=FailureAnswer),
}
