"""Messages on their way to a topic over HTTP, and where they went."""

import math
import secrets
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from typing import Any, Literal, TypedDict

import msgspec

from penstock.client.calls import Call, Failure, path_of
from penstock.client.forks import watch_forks
from penstock.errors import InvalidRequest, PenstockError, Unavailable

Acks = Literal["none", "leader", "all"]
Headers = Mapping[str, str | None]

BATCH_MAX = 10_000

# As text, these are the 16 characters by which nodes know the name of a series.
_NAME_BYTES = 12
_SERIES_MAX = 10_000
_START_MAX = 65_536


class PublishOptions(TypedDict, total=False):
    """What can be said about a message beside its value."""

    key: bytes | str | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None
    priority: int
    delay_s: float | None
    deliver_at: datetime | None
    ttl_s: float | None
    idempotency_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A message to be published.

    A value of bytes is stored as it is, text as UTF-8, None as nothing and all else as JSON. A
    priority is 0 to 9, where 4 is normal. A message is delivered after `delay_s` or not before
    `deliver_at`, and to no queue group once `ttl_s` has passed. Where an idempotency key repeats,
    the first message counts.
    """

    value: Any
    key: bytes | str | None = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    priority: int = 4
    delay_s: float | None = None
    deliver_at: datetime | None = None
    ttl_s: float | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Where a message went. A scheduled one has no offset before its time.

    The id is empty when no ack was asked for.
    """

    id: str
    partition: int
    offset: int | None
    timestamp_ms: int
    is_duplicate: bool = False
    deliver_at_ms: int | None = None


class _Result(msgspec.Struct, frozen=True):
    """One result as a node writes it."""

    id: str = ""
    partition: int = -1
    offset: int | None = None
    timestamp: int = 0
    deliver_at: int | None = None
    duplicate: bool = False
    error: Failure | None = None


class _Results(msgspec.Struct, frozen=True):
    results: list[_Result]


class PublishIncomplete(Unavailable):
    """Some messages failed for a reason that may pass; all have idempotency keys, or none is sent
    again. Once nobody tries any more, `results` holds what became of each."""

    def __init__(self, results: list[Published | PenstockError]) -> None:
        failures = [each for each in results if isinstance(each, PenstockError)]
        super().__init__(f"{len(failures)} of {len(results)} messages failed: {failures[0]}")
        self.results = results


class IdempotencyKeys:
    """Keys that no other client gives, for messages that bring none.

    Nodes choose the partition of a message that may go anywhere by its key, and by the number of a
    key that is written `~<series>~<number in hex>`. So each topic has a series of its own, in which
    such messages alone are numbered, and its partitions take turns. The first number is drawn, or
    all clients that publish one message would use one partition. A forked process draws anew, or
    its messages would be taken for those of its parent.
    """

    def __init__(self) -> None:
        self.begin_anew()
        watch_forks(self)

    def begin_anew(self) -> None:
        """Draw a name and series that nobody has."""
        self._prefix = _new_name()
        self._numbers = count()
        self._series: dict[str, Iterator[str]] = {}

    def keyed(self, publication: Publication, topic: str) -> Publication:
        """Return the message with a key, so that it can be sent again without harm."""
        _check_kind(publication)
        if publication.idempotency_key is not None:
            return publication
        if publication.key is None and publication.partition is None:
            return replace(publication, idempotency_key=self.next_key(topic))
        return replace(publication, idempotency_key=f"{self._prefix}-{next(self._numbers):x}")

    def next_key(self, topic: str) -> str:
        """Return a key that was never given before, for a message that may go anywhere."""
        series = self._series.get(topic)
        if series is None:
            if len(self._series) >= _SERIES_MAX:
                # Those that are forgotten begin another one.
                self._series.clear()
            series = self._series.setdefault(topic, _new_series())
        return next(series)


def _new_series() -> Iterator[str]:
    name = _new_name()
    return map(f"~{name}~{{:x}}".format, count(secrets.randbelow(_START_MAX)))


def _new_name() -> str:
    return secrets.token_urlsafe(_NAME_BYTES)


def publish_call(
    topic: str, publications: Sequence[Publication], acks: Acks
) -> Call[list[Published | PenstockError]]:
    """Publish messages; an error stands where one failed alone."""
    if not 1 <= len(publications) <= BATCH_MAX:
        raise InvalidRequest(f"{len(publications)} messages were given, not 1..{BATCH_MAX}")
    return Call(
        method="POST",
        path=path_of("v1", "topics", topic, "messages"),
        content=msgspec.json.encode(
            {"messages": [_body(each) for each in publications], "acks": acks}
        ),
        read=_read_results,
        is_repeatable=all(each.idempotency_key is not None for each in publications),
    )


def _check_kind(publication: Any) -> None:
    if not isinstance(publication, Publication):
        raise InvalidRequest(
            f"{publication!r:.80} is no Publication; a batch takes Publication(value=...)"
        )


def _body(publication: Publication) -> dict[str, Any]:
    _check_kind(publication)
    body: dict[str, Any] = {}
    put_content(body, "value", "encoding", publication.value)
    if publication.key is not None:
        put_content(body, "key", "key_encoding", publication.key)
    if publication.headers:
        body["headers"] = dict(publication.headers)
    if publication.priority != 4:
        body["priority"] = publication.priority
    if publication.deliver_at is not None:
        body["deliver_at"] = moment_ms("deliver_at", publication.deliver_at)
    given = {
        "partition": publication.partition,
        "timestamp": publication.timestamp_ms,
        "delay": publication.delay_s,
        "ttl": publication.ttl_s,
        "idempotency_key": publication.idempotency_key,
    }
    body.update((name, value) for name, value in given.items() if value is not None)
    return body


def fixed(publication: Publication) -> Publication:
    """Return a message that stays as it is, whatever becomes of the objects that it was made of.

    Raises what a request with it would raise, so that one that cannot be sent spoils no others.
    """
    headers = publication.headers and dict(publication.headers)
    value, key = _stored(publication.value), _stored(publication.key)
    kept = replace(publication, value=value, key=key, headers=headers)
    msgspec.json.encode(_body(kept))
    return kept


def moment_ms(name: str, moment: datetime) -> int:
    """Return a moment for nodes; one without a time zone is refused."""
    if moment.tzinfo is None:
        raise InvalidRequest(f"{name} is {moment.isoformat()}, which has no time zone")
    return round(moment.timestamp() * 1000)


def put_content(body: dict[str, Any], name: str, encoding_name: str, value: Any) -> None:
    """Write a key or value into a body; bytes as text where they are text, which is shorter."""
    content = _stored(value)
    if isinstance(content, bytes):
        try:
            body[name] = content.decode()
        except UnicodeDecodeError:
            body[name] = b64encode(content).decode()
            body[encoding_name] = "base64"
    else:
        body[name] = content


def _stored(value: Any) -> bytes | str | None:
    if value is None or isinstance(value, bytes | str):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    try:
        content = msgspec.json.encode(value)
    except (TypeError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest(
            f"a {type(value).__name__} cannot be written as JSON: {error}"
        ) from None
    if b"null" in content:
        _check_numbers(msgspec.to_builtins(value))
    return content


def _check_numbers(value: Any) -> None:
    """Raise `InvalidRequest` where a number would be stored as null, for want of another form."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidRequest(f"a value holds {value}, which cannot be written as JSON")
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list | tuple):
        for each in parts:
            _check_numbers(each)


_results_of = msgspec.json.Decoder(_Results).decode


def _read_results(content: bytes) -> list[Published | PenstockError]:
    results = [_published(each) for each in _results_of(content).results]
    if any(isinstance(each, PenstockError) and each.retryable for each in results):
        raise PublishIncomplete(results)
    return results


def _published(result: _Result) -> Published | PenstockError:
    if result.error is not None:
        return result.error.error()
    return Published(
        id=result.id,
        partition=result.partition,
        offset=result.offset,
        timestamp_ms=result.timestamp,
        is_duplicate=result.duplicate,
        deliver_at_ms=result.deliver_at,
    )
