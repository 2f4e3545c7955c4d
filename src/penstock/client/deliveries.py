"""Messages that are out with a consumer of a queue group, and what becomes of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypedDict, TypeVar

import msgspec

from penstock.client.calls import Call, Failure, path_of, reader_of, to_json
from penstock.client.contents import Content
from penstock.client.messages import Header
from penstock.errors import InvalidRequest, PenstockError, Unavailable

T = TypeVar("T")


class Leased(Protocol):
    """What is out under a receipt."""

    @property
    def topic(self) -> str:
        """The topic that it is of."""

    @property
    def group(self) -> str:
        """The queue group that it was received for."""

    @property
    def receipt(self) -> str:
        """Proves that it is out with the one who shows it."""

    @property
    def lease_until_ms(self) -> int:
        """When it comes back, unless the lease is extended."""


GIVEN_BACK = "given back without being looked at"

L = TypeVar("L", bound=Leased)


class ReceiveOptions(TypedDict, total=False):
    """How messages are received: at most how many at once, for how long, under which name."""

    count_max: int
    lease_s: float | None
    consumer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedMessage:
    """A message that is out with its receiver until `lease_until_ms`."""

    topic: str
    group: str
    partition: int
    offset: int
    id: str
    receipt: str
    attempt: int
    timestamp_ms: int
    lease_until_ms: int
    priority: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    def text(self) -> str:
        """Return the value as text."""
        return (self.value or b"").decode()

    def json(self) -> Any:
        """Return the value, read as JSON."""
        return msgspec.json.decode(self.value or b"null")


@dataclass(frozen=True, slots=True)
class Refusal(Generic[L]):
    """A message whose receipt was not accepted, and why."""

    message: L
    error: PenstockError


@dataclass(frozen=True, slots=True)
class Exchange(Generic[L]):
    """Messages that came in exchange for others, and those of the others that were refused."""

    messages: list[LeasedMessage]
    refusals: list[Refusal[L]]


class SettleIncomplete(Unavailable):
    """Some receipts failed for a reason that may pass, and all of them can be sent again.

    Once nobody tries any more, `refusals` holds what became of them.
    """

    def __init__(self, refusals: Sequence[Refusal[Any]]) -> None:
        super().__init__(f"{len(refusals)} receipts were not accepted: {refusals[0].error}")
        self.refusals = list(refusals)


class _Message(Content, frozen=True, kw_only=True):
    """A message as a node writes it."""

    id: str
    receipt: str
    attempt: int
    topic: str
    partition: int
    offset: int
    timestamp: int
    priority: int
    lease_until: int


class _Messages(msgspec.Struct, frozen=True):
    messages: list[_Message]


class _Refused(msgspec.Struct, frozen=True):
    receipt: str
    error: Failure
    topic: str | None = None


class _Settled(msgspec.Struct, frozen=True):
    failed: list[_Refused]


class _Exchanged(_Messages, frozen=True):
    acked: _Settled


_messages_of = msgspec.json.Decoder(_Messages).decode


_exchanged_of = msgspec.json.Decoder(_Exchanged).decode


def receive_call(
    topics: Sequence[str],
    group: str,
    *,
    wait_s: float,
    options: ReceiveOptions,
) -> Call[list[LeasedMessage]]:
    """Receive messages of one topic or of several.

    Repeating it loses nothing: messages of an answer that got lost come back after their lease.
    """
    body = _receive_body(wait_s, options)
    if len(topics) == 1:
        path = path_of("v1", "topics", topics[0], "groups", group, "receive")
    else:
        path = path_of("v1", "groups", group, "receive")
        body["topics"] = list(topics)

    def read(content: bytes) -> list[LeasedMessage]:
        return [_leased(each, group) for each in _messages_of(content).messages]

    return Call(
        method="POST",
        path=path,
        content=to_json(body),
        read=read,
        wait_s=wait_s,
        undo=_give_back_calls,
    )


def exchange_call(
    topics: Sequence[str],
    group: str,
    done: Sequence[L],
    *,
    wait_s: float,
    options: ReceiveOptions,
) -> Call[Exchange[L]]:
    """Ack messages of a group, and receive the next; an ack may be repeated, and so may this."""
    for message in done:
        if message.group != group:
            raise InvalidRequest(
                f"a message of {message.topic} was received for group {message.group}, not {group}"
            )
    by_place = {(message.topic, message.receipt): message for message in done}
    body = _receive_body(wait_s, options)
    if topics and {*topics, *(topic for topic, _ in by_place)} == {topics[0]}:
        path = path_of("v1", "topics", topics[0], "groups", group, "receive")
        body["ack"] = [receipt for _, receipt in by_place]
    else:
        path = path_of("v1", "groups", group, "receive")
        body["topics"] = list(topics)
        body["ack"] = [{"topic": topic, "receipt": receipt} for topic, receipt in by_place]

    def read(content: bytes) -> Exchange[L]:
        found = _exchanged_of(content)
        refusals = [
            Refusal(by_place[each.topic or topics[0], each.receipt], each.error.error())
            for each in found.acked.failed
        ]
        return Exchange([_leased(each, group) for each in found.messages], refusals)

    return Call(
        method="POST",
        path=path,
        content=to_json(body),
        read=read,
        wait_s=wait_s,
        undo=lambda exchange: _give_back_calls(exchange.messages),
    )


def _give_back_calls(messages: Sequence[LeasedMessage]) -> Sequence[Call[Any]]:
    return settle_calls("nack", messages, reason=GIVEN_BACK, uncounted=True)


def _receive_body(wait_s: float, options: ReceiveOptions) -> dict[str, Any]:
    return {
        "max": options.get("count_max", 10),
        "wait": wait_s,
        "lease": options.get("lease_s"),
        "consumer": options.get("consumer", ""),
    }


def settle_calls(
    verb: str, messages: Sequence[L], **details: object
) -> list[Call[list[Refusal[L]]]]:
    """Ack, nack, extend or reject messages: one call for each topic and group among them."""
    places: dict[tuple[str, str], list[L]] = {}
    for message in messages:
        places.setdefault((message.topic, message.group), []).append(message)
    return [
        _settle_call(verb, topic, group, own, details) for (topic, group), own in places.items()
    ]


def _settle_call(
    verb: str, topic: str, group: str, messages: Sequence[L], details: dict[str, object]
) -> Call[list[Refusal[L]]]:
    by_receipt = {message.receipt: message for message in messages}

    def read(content: bytes) -> list[Refusal[L]]:
        refusals = [
            Refusal(by_receipt[each.receipt], each.error.error())
            for each in _settled_of(content).failed
        ]
        if verb in _REPEATED and any(each.error.retryable for each in refusals):
            raise SettleIncomplete(refusals)
        return refusals

    return Call(
        method="POST",
        path=path_of("v1", "topics", topic, "groups", group, verb),
        content=to_json({"receipts": list(by_receipt), **details}),
        read=read,
    )


# Verbs that accept a receipt a second time; others refuse what they have carried out.
_REPEATED = ("ack", "extend")
_settled_of = reader_of(_Settled)


def _leased(message: _Message, group: str) -> LeasedMessage:
    return LeasedMessage(
        topic=message.topic,
        group=group,
        partition=message.partition,
        offset=message.offset,
        id=message.id,
        receipt=message.receipt,
        attempt=message.attempt,
        timestamp_ms=message.timestamp,
        lease_until_ms=message.lease_until,
        priority=message.priority,
        key=message.read_key(),
        value=message.read_value(),
        headers=message.read_headers(),
    )
