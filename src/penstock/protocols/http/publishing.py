"""`/v1/topics/{topic}/publish` and `/messages`: one message, or many of which each can fail."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET

from penstock.broker import Acks, NewMessage, Published, PublishedRun, time_in
from penstock.errors import InvalidRequest, PenstockError
from penstock.protocols.http.contents import Headers, read_headers, to_bytes
from penstock.protocols.http.endpoints import FAILURES, TOPIC, Answer, Endpoint, Shortcut
from penstock.protocols.http.exchange import decode_body, encode_json
from penstock.protocols.http.failures import Failures
from penstock.protocols.http.message_bodies import (
    MessageBody,
    PublishBatchBody,
    PublishBody,
    PublishedBatch,
    PublishedMessage,
    RawBatchBody,
    ValuesBody,
)
from penstock.protocols.http.times import DELAY_MS_MAX, read_duration_ms, read_moment_ms
from penstock.protocols.http.view import MessagesView, NodeView

BATCH_MAX = 10_000
PRIORITY_NORMAL = 4
_PRIORITIES = {"low": 1, "normal": PRIORITY_NORMAL, "high": 7} | {
    str(level): level for level in range(10)
}


_decode_values = msgspec.json.Decoder(ValuesBody).decode


def publishing_endpoints(view: NodeView, failures: Failures, *, bytes_max: int) -> list[Endpoint]:
    """Both ways to publish; a body of more than `bytes_max` is refused."""

    async def publish(path: Mapping[str, str], content: bytes) -> bytes:
        if not content:
            raise InvalidRequest(
                'the request has no body; a message without a value is {"value": null}'
            )
        body = decode_body(content, PublishBody)
        new = _new_message(body, view.now_ms())
        (result,) = await view.messages.publish(path["topic"], [new], acks=body.acks)
        if isinstance(result, PenstockError):
            raise result
        return encode_json(_published(result))

    async def publish_batch(path: Mapping[str, str], content: bytes) -> bytes:
        if (acks_and_values := _read_values(content)) is not None:
            acks, values = acks_and_values
            runs = await view.messages.publish_values(path["topic"], values, acks=acks)
            if runs is not None:
                return encode_json(_published_runs(runs, failures))
        acks, messages = _read_batch(content)
        if not 1 <= len(messages) <= BATCH_MAX:
            raise InvalidRequest(f"{len(messages)} messages were sent, not 1..{BATCH_MAX}")
        results = await _publish_all(
            view.messages, path["topic"], messages, acks=acks, now_ms=view.now_ms()
        )
        failed = sum(isinstance(each, PenstockError) for each in results)
        told = [
            PublishedMessage(error=failures.of(each))
            if isinstance(each, PenstockError)
            else _published(each)
            for each in results
        ]
        return encode_json(PublishedBatch(results=told, failed=failed))

    return [
        Endpoint(
            path="/v1/topics/{topic}/publish",
            method="POST",
            name="publish",
            summary="Publish one message",
            description="The answer comes when the message is committed: on disk at a majority of"
            " its replicas. With `acks` it can come earlier.",
            parameters=(TOPIC,),
            body=PublishBody,
            needs_body=True,
            example='{"key": "order-17", "value": {"total": 12}, "headers": {"source": "web"}}',
            answers={200: Answer(meaning="Where it went.", body=PublishedMessage), **FAILURES},
            call=Shortcut(publish, bytes_max),
        ),
        Endpoint(
            path="/v1/topics/{topic}/messages",
            method="POST",
            name="publish-batch",
            summary="Publish many messages",
            description=f"Up to {BATCH_MAX} messages. One that cannot be taken fails alone, with"
            " its reason; the others are published.",
            parameters=(TOPIC,),
            body=PublishBatchBody,
            example='{"messages": [{"value": "first"}, {"value": "second", "delay": "5m"}]}',
            answers={
                200: Answer(meaning="One result for each message.", body=PublishedBatch),
                **FAILURES,
            },
            call=Shortcut(publish_batch, bytes_max),
        ),
    ]


def _read_values(content: bytes) -> tuple[Acks, list[bytes]] | None:
    """Read a batch whose messages are texts and nothing else; None when it is not like that.

    The first message that is more is told by the decoder, so that others lose no time here.
    """
    try:
        body = _decode_values(content)
        values = [each.value.encode() for each in body.messages]
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None
    return (body.acks, values) if 1 <= len(values) <= BATCH_MAX else None


def _published_runs(runs: list[PublishedRun], failures: Failures) -> PublishedBatch:
    failed = sum(run.count for run in runs if run.error is not None)
    results = [each for run in runs for each in _published_run(run, failures)]
    return PublishedBatch(results=results, failed=failed)


def _published_run(run: PublishedRun, failures: Failures) -> list[PublishedMessage]:
    if run.error is not None:
        return [PublishedMessage(error=failures.of(run.error))] * run.count
    partition, first, timestamp = run.partition, run.offset, run.timestamp
    if first is None:
        unknown = PublishedMessage(id="", partition=partition, offset=None, timestamp=timestamp)
        return [unknown] * run.count
    return [
        PublishedMessage(
            id=f"{partition}-{offset}", partition=partition, offset=offset, timestamp=timestamp
        )
        for offset in range(first, first + run.count)
    ]


def _read_batch(content: bytes) -> tuple[Acks, Sequence[MessageBody | InvalidRequest]]:
    """Read a batch; of messages that are not what they should be, the reasons.

    They are looked at one by one only when they cannot be read together, which is faster.
    """
    try:
        batch = decode_body(content, PublishBatchBody)
    except InvalidRequest:
        parts = decode_body(content, RawBatchBody)
        return parts.acks, [_read_part(*each) for each in enumerate(parts.messages)]
    return batch.acks, batch.messages


def _read_part(number: int, content: msgspec.Raw) -> MessageBody | InvalidRequest:
    try:
        return decode_body(bytes(content), MessageBody, name=f"message {number}")
    except InvalidRequest as error:
        return error


async def _publish_all(
    messages: MessagesView,
    topic: str,
    bodies: Sequence[MessageBody | InvalidRequest],
    *,
    acks: Acks,
    now_ms: int,
) -> list[Published | PenstockError]:
    """Publish those that can be read; the results are in the order of the request."""
    results: list[Published | PenstockError | None] = []
    good = []
    for each in bodies:
        if isinstance(each, InvalidRequest):
            results.append(each)
            continue
        try:
            good.append(_new_message(each, now_ms))
            results.append(None)
        except InvalidRequest as error:
            results.append(error)
    published = iter(await messages.publish(topic, good, acks=acks) if good else ())
    return [next(published) if each is None else each for each in results]


def _new_message(body: MessageBody, now_ms: int) -> NewMessage:
    if _is_plain(body):
        value = body.value
        return NewMessage(
            value=value.encode()
            if type(value) is str and value.isascii() and body.encoding == "text"
            else to_bytes("value", value, body.encoding),
            key=None if body.key is None else to_bytes("key", body.key, body.key_encoding),
        )
    headers = read_headers(body.headers or {})
    return NewMessage(
        value=to_bytes("value", body.value, body.encoding),
        key=to_bytes("key", body.key, body.key_encoding),
        headers=headers,
        partition=body.partition,
        timestamp=_moment("timestamp", body.timestamp),
        priority=read_priority(body.priority),
        deliver_at_ms=_deliver_at(body, now_ms),
        expires_at_ms=_expires_at(body, headers, now_ms),
        idempotency_key=body.idempotency_key,
    )


def _is_plain(body: MessageBody) -> bool:
    """True for what large batches are made of: a value, perhaps a key, and nothing else."""
    return (
        body.priority == PRIORITY_NORMAL
        and body.headers is None
        and body.delay is None
        and body.deliver_at is None
        and body.ttl is None
        and body.timestamp is None
        and body.partition is None
        and body.idempotency_key is None
    )


def _moment(name: str, value: str | float | None) -> int | None:
    return None if value is None else read_moment_ms(name, value)


def read_priority(value: int | str) -> int:
    """Return a priority that was given as a number or by its name."""
    level = _PRIORITIES.get(str(value))
    if level is None:
        raise InvalidRequest(f"priority is {value!r}, not 0..9, low, normal or high")
    return level


def _deliver_at(body: MessageBody, now_ms: int) -> int | None:
    if body.delay is not None and body.deliver_at is not None:
        raise InvalidRequest("delay and deliver_at were both given; one of them is enough")
    if body.delay is not None:
        return now_ms + read_duration_ms("delay", body.delay, max_ms=DELAY_MS_MAX)
    return _moment("deliver_at", body.deliver_at)


def _expires_at(body: MessageBody, headers: Headers, now_ms: int) -> int | None:
    """A time to live begins when the message can first be delivered."""
    if body.ttl is None:
        return None
    ttl_ms = read_duration_ms("ttl", body.ttl, max_ms=DELAY_MS_MAX)
    if ttl_ms == 0:
        raise InvalidRequest(f"ttl is {body.ttl!r}, so that nobody would ever receive the message")
    due_ms = _deliver_at(body, now_ms)
    if due_ms is None:
        due_ms = time_in(headers)
    return max(now_ms, due_ms or 0) + ttl_ms


def _published(result: Published) -> PublishedMessage:
    return PublishedMessage(
        id=result.id,
        partition=result.partition,
        offset=result.offset,
        timestamp=result.timestamp,
        duplicate=True if result.is_duplicate else UNSET,
        deliver_at=UNSET if result.deliver_at_ms is None else result.deliver_at_ms,
    )
