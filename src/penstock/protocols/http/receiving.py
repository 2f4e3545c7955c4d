"""`/v1/topics/{topic}/groups/{group}/...`: receive messages and say what came of them."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from msgspec import UNSET

from penstock.broker import Exchanged, Message, Nack, PlainMessages, Reject, TopicReceipt
from penstock.errors import PenstockError
from penstock.protocols.http.answers import Failure
from penstock.protocols.http.contents import show_headers, to_text
from penstock.protocols.http.endpoints import FAILURES, GROUP, TOPIC, Answer, Endpoint, Shortcut
from penstock.protocols.http.exchange import decode_body, encode_json
from penstock.protocols.http.failures import Failures
from penstock.protocols.http.message_bodies import (
    AckBody,
    ExchangeAnyBody,
    ExchangeBody,
    ExchangedMessages,
    ExtendBody,
    FailedReceipt,
    NackBody,
    ReceiveBody,
    ReceivedMessage,
    ReceivedMessages,
    RejectBody,
    Settled,
    SettledReceipt,
)
from penstock.protocols.http.times import read_duration_ms
from penstock.protocols.http.view import NodeView

WAIT_MS_MAX = 60_000
LEASE_MS_MAX = 12 * 3_600_000
BACKOFF_MS_MAX = 7 * 86_400_000
# Room for the receipts and reasons of the largest request.
_BODY_BYTES_MAX = 16 * 1024 * 1024

_NO_HEADERS: dict[str, str | None] = {}

_GROUP_PATH = "/v1/topics/{topic}/groups/{group}"
_EXCHANGED = {
    200: Answer(meaning="What was ready; perhaps nothing.", body=ExchangedMessages),
    **FAILURES,
}
_SETTLED = {200: Answer(meaning="What was accepted.", body=Settled), **FAILURES}


def receiving_endpoints(view: NodeView, failures: Failures) -> list[Endpoint]:
    """The verbs of consumers."""
    return [
        *_receiving(view, failures),
        *_receiving_any(view, failures),
        *_settling(view, failures),
        *_refusing(view, failures),
    ]


def _receiving(view: NodeView, failures: Failures) -> list[Endpoint]:
    async def receive(path: Mapping[str, str], content: bytes) -> bytes:
        body = decode_body(content, ExchangeBody)
        topic, group, terms = path["topic"], path["group"], _terms(body)
        if not body.ack:
            return _received(await view.queues.receive(topic, group, **terms))
        exchanged = await view.queues.ack_and_receive(topic, group, body.ack, **terms)
        return _exchanged(body.ack, exchanged, failures)

    return [
        Endpoint(
            path=f"{_GROUP_PATH}/receive",
            method="POST",
            name="receive",
            summary="Receive messages",
            description="Each message is out with the caller until its lease ends: no other"
            " consumer of the group gets it, other groups do. A group that does not exist begins"
            " here. Messages that are done can be acked on the way: the answer comes when that is"
            " committed, and says in `acked` what became of them.",
            parameters=(TOPIC, GROUP),
            body=ExchangeBody,
            example='{"max": 100, "wait": "20s", "lease": "30s", "ack": ["0.100000001.2a"]}',
            answers=_EXCHANGED,
            call=Shortcut(receive, _BODY_BYTES_MAX, is_for_callers_alone=True),
        ),
    ]


def _receiving_any(view: NodeView, failures: Failures) -> list[Endpoint]:
    async def receive_any(path: Mapping[str, str], content: bytes) -> bytes:
        body = decode_body(content, ExchangeAnyBody)
        topics, group, terms = body.topics, path["group"], _terms(body)
        if not body.ack:
            return _received(await view.queues.receive_any(topics, group, **terms))
        done = [TopicReceipt(each.topic, each.receipt) for each in body.ack]
        exchanged = await view.queues.ack_and_receive_any(topics, group, done, **terms)
        return _exchanged(done, exchanged, failures)

    return [
        Endpoint(
            path="/v1/groups/{group}/receive",
            method="POST",
            name="receive-any",
            summary="Receive messages of several topics",
            description="The answer has messages of one topic that has something ready; each"
            " request begins with another one. Messages that are done can be acked on the way,"
            " each with its topic, because a receipt does not name it; they may be of topics that"
            " nothing is received from.",
            parameters=(GROUP,),
            body=ExchangeAnyBody,
            example='{"topics": ["orders", "payments"], "max": 10,'
            ' "ack": [{"topic": "orders", "receipt": "0.100000001.2a"}]}',
            answers=_EXCHANGED,
            call=Shortcut(receive_any, _BODY_BYTES_MAX, is_for_callers_alone=True),
        ),
    ]


def _settling(view: NodeView, failures: Failures) -> list[Endpoint]:
    async def ack(path: Mapping[str, str], content: bytes) -> bytes:
        body = decode_body(content, AckBody)
        outcomes = await view.queues.ack(*_place(path), body.receipts)
        return encode_json(_settled(body.receipts, outcomes, failures))

    async def extend(path: Mapping[str, str], content: bytes) -> bytes:
        body = decode_body(content, ExtendBody)
        topic, group = _place(path)
        lease_ms = _lease_ms(body.lease)
        if lease_ms is None:
            lease_ms = view.queues.settings_of(topic, group).lease_ms
        outcomes = await view.queues.extend(topic, group, body.receipts, lease_ms=lease_ms)
        return encode_json(_settled(body.receipts, outcomes, failures))

    return [
        Endpoint(
            path=f"{_GROUP_PATH}/ack",
            method="POST",
            name="ack",
            summary="Settle messages",
            description="They never come back to this group. The answer comes when that is"
            " committed. A receipt whose lease has ended is refused; the others are accepted.",
            parameters=(TOPIC, GROUP),
            body=AckBody,
            example='{"receipts": ["0.100000001.2a"]}',
            answers=_SETTLED,
            call=Shortcut(ack, _BODY_BYTES_MAX),
        ),
        Endpoint(
            path=f"{_GROUP_PATH}/extend",
            method="POST",
            name="extend",
            summary="Keep messages for longer",
            description="Their leases end after the given time from now, or after the group's own.",
            parameters=(TOPIC, GROUP),
            body=ExtendBody,
            example='{"receipts": ["0.100000001.2a"], "lease": "2m"}',
            answers=_SETTLED,
            call=Shortcut(extend, _BODY_BYTES_MAX),
        ),
    ]


def _refusing(view: NodeView, failures: Failures) -> list[Endpoint]:
    async def nack(path: Mapping[str, str], content: bytes) -> bytes:
        body = decode_body(content, NackBody)
        default = FailedReceipt(receipt="", delay=body.delay, reason=body.reason)
        items = [_nack(each, default, is_counted=not body.uncounted) for each in body.receipts]
        outcomes = await view.queues.nack(*_place(path), items)
        return encode_json(_settled([each.receipt for each in items], outcomes, failures))

    async def reject(path: Mapping[str, str], content: bytes) -> bytes:
        body = decode_body(content, RejectBody)
        items = [
            Reject(each, body.reason)
            if isinstance(each, str)
            else Reject(each.receipt, each.reason or body.reason)
            for each in body.receipts
        ]
        outcomes = await view.queues.reject(*_place(path), items)
        return encode_json(_settled([each.receipt for each in items], outcomes, failures))

    return [
        Endpoint(
            path=f"{_GROUP_PATH}/nack",
            method="POST",
            name="nack",
            summary="Give messages back",
            description="They come back after a backoff that doubles with each attempt, or after"
            " the given delay; after the last attempt they go to the dead letters. Those that were"
            " not begun are given back `uncounted`: they cost no attempt, and come back at once.",
            parameters=(TOPIC, GROUP),
            body=NackBody,
            example='{"receipts": [{"receipt": "0.100000001.2a", "delay": "10s"}],'
            ' "reason": "database is down"}',
            answers=_SETTLED,
            call=Shortcut(nack, _BODY_BYTES_MAX),
        ),
        Endpoint(
            path=f"{_GROUP_PATH}/reject",
            method="POST",
            name="reject",
            summary="Send messages to the dead letters",
            description="At once, with the reason.",
            parameters=(TOPIC, GROUP),
            body=RejectBody,
            example='{"receipts": ["0.100000001.2a"], "reason": "not an order"}',
            answers=_SETTLED,
            call=Shortcut(reject, _BODY_BYTES_MAX),
        ),
    ]


def _place(path: Mapping[str, str]) -> tuple[str, str]:
    return path["topic"], path["group"]


class _Terms(TypedDict):
    """How much a consumer wants, and on which terms."""

    count_max: int
    wait_ms: int
    lease_ms: int | None
    consumer: str


def _terms(body: ReceiveBody) -> _Terms:
    return {
        "count_max": body.max,
        "wait_ms": read_duration_ms("wait", body.wait, max_ms=WAIT_MS_MAX),
        "lease_ms": _lease_ms(body.lease),
        "consumer": body.consumer,
    }


def _received(found: Sequence[Message]) -> bytes:
    return encode_json(ReceivedMessages(messages=_show_all(found)))


def _exchanged(
    done: Sequence[str | TopicReceipt], exchanged: Exchanged, failures: Failures
) -> bytes:
    messages = _show_all(exchanged.messages)
    acked = _settled(done, exchanged.outcomes, failures)
    return encode_json(ExchangedMessages(messages=messages, acked=acked))


def _lease_ms(lease: str | float | None) -> int | None:
    return None if lease is None else read_duration_ms("lease", lease, max_ms=LEASE_MS_MAX)


def _nack(item: str | FailedReceipt, default: FailedReceipt, *, is_counted: bool) -> Nack:
    if isinstance(item, str):
        item = FailedReceipt(receipt=item, delay=default.delay, reason=default.reason)
    delay = default.delay if item.delay is None else item.delay
    delay_ms = None if delay is None else read_duration_ms("delay", delay, max_ms=BACKOFF_MS_MAX)
    return Nack(item.receipt, delay_ms, item.reason or default.reason, is_counted)


def _settled(
    receipts: Sequence[str | TopicReceipt],
    outcomes: Sequence[PenstockError | None],
    failures: Failures,
) -> Settled:
    if not any(outcomes):
        return Settled(accepted=len(receipts), failed=[])
    failed = [
        _refused(receipt, failures.of(outcome))
        for receipt, outcome in zip(receipts, outcomes, strict=True)
        if outcome is not None
    ]
    return Settled(accepted=len(receipts) - len(failed), failed=failed)


def _refused(receipt: str | TopicReceipt, error: Failure) -> SettledReceipt:
    if isinstance(receipt, str):
        return SettledReceipt(receipt=receipt, error=error)
    return SettledReceipt(receipt=receipt.receipt, topic=receipt.topic, error=error)


def _show_all(messages: Sequence[Message]) -> list[ReceivedMessage]:
    """Show messages, without a call for each while they are texts and nothing more."""
    try:
        if isinstance(messages, PlainMessages):
            return _show_plain(messages)
        return [
            show_message(each)
            if each.headers
            else ReceivedMessage(
                each.id,
                each.receipt,
                each.attempt,
                each.topic,
                each.partition,
                each.offset,
                each.timestamp,
                None if each.key is None else each.key.decode(),
                None if each.value is None else each.value.decode(),
                _NO_HEADERS,
                each.priority,
                each.lease_until_ms,
            )
            for each in messages
        ]
    except UnicodeDecodeError:
        return [show_message(each) for each in messages]


def _show_plain(messages: PlainMessages) -> list[ReceivedMessage]:
    topic, partition, sign = messages.topic, messages.partition, messages.sign
    attempt, priority = messages.attempt, messages.priority
    lease_until_ms = messages.lease_until_ms
    return [
        ReceivedMessage(
            f"{partition}-{(offset := record.offset)}",
            f"{sign}{offset:x}",
            attempt,
            topic,
            partition,
            offset,
            record.timestamp,
            None if (key := record.key) is None else key.decode(),
            None if (value := record.value) is None else value.decode(),
            _NO_HEADERS,
            priority,
            lease_until_ms,
        )
        for record in messages.records
    ]


def show_message(message: Message) -> ReceivedMessage:
    """Return a message as its receiver sees it, whatever it holds."""
    value, encoding = to_text(message.value)
    key, key_encoding = to_text(message.key)
    headers, raw_headers = show_headers(message.headers)
    return ReceivedMessage(
        id=message.id,
        receipt=message.receipt,
        attempt=message.attempt,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp=message.timestamp,
        key=key,
        value=value,
        headers=headers,
        priority=message.priority,
        lease_until=message.lease_until_ms,
        encoding=UNSET if encoding == "text" else encoding,
        key_encoding=UNSET if key_encoding == "text" else key_encoding,
        raw_headers=raw_headers,
    )
