"""SendMessage and SendMessageBatch: a body and its attributes become a record."""

from collections.abc import Mapping
from typing import Any

from penstock.broker import QUEUE_MESSAGE_BYTES_MAX, NewMessage, Published
from penstock.errors import PenstockError
from penstock.protocols.sqs.attributes import (
    DEDUPLICATION_HEADER,
    SENT_HEADER,
    TRACE_HEADER,
    check_text,
    read_attributes,
    size_of_attributes,
    to_headers,
)
from penstock.protocols.sqs.batches import Entry, EntryResult, answer_batch, read_entries
from penstock.protocols.sqs.checksums import md5_of_attributes, md5_of_body
from penstock.protocols.sqs.deduplication import check_id, deduplication_id, idempotency_key
from penstock.protocols.sqs.errors import SqsError
from penstock.protocols.sqs.names import message_id
from penstock.protocols.sqs.parameters import number_of, optional_text, text_of
from penstock.protocols.sqs.queues import Queue, QueueActions
from penstock.protocols.sqs.view import SqsView


def sequence_number(partition: int, offset: int) -> str:
    """Return a number that rises within a message group, in the length that the service has."""
    return f"{partition:04d}{offset:016d}"


class SendActions:
    """Both ways to send."""

    def __init__(self, view: SqsView, queues: QueueActions) -> None:
        self._view = view
        self._queues = queues

    async def send(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """SendMessage."""
        (result,) = await self._send_all(self._queues.of(parameters), [parameters])
        if not isinstance(result, dict):
            raise result
        return result

    async def send_batch(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """SendMessageBatch."""
        queue = self._queues.of(parameters)
        entries = read_entries(parameters)
        size_bytes = sum(map(_sent_bytes, entries))
        if size_bytes > QUEUE_MESSAGE_BYTES_MAX:
            raise SqsError(
                SqsError.BATCH_TOO_LONG,
                f"Batch requests cannot be longer than {QUEUE_MESSAGE_BYTES_MAX} bytes."
                f" You have sent {size_bytes} bytes.",
            )
        return await answer_batch(
            entries, lambda batch: self._send_all(queue, batch), self._view.statistics
        )

    async def _send_all(self, queue: Queue, entries: list[Entry]) -> list[EntryResult]:
        read: list[NewMessage | SqsError] = []
        for entry in entries:
            try:
                read.append(self._new_message(queue, entry))
            except SqsError as error:
                read.append(error)
        good = [each for each in read if isinstance(each, NewMessage)]
        published = iter(await self._view.messages.publish(queue.name, good) if good else ())
        return [
            each if isinstance(each, SqsError) else _sent(queue, entry, next(published))
            for entry, each in zip(entries, read, strict=True)
        ]

    def _new_message(self, queue: Queue, entry: Entry) -> NewMessage:
        body = check_text("MessageBody", text_of(entry, "MessageBody"))
        attributes = read_attributes(entry.get("MessageAttributes"))
        size_bytes = len(body) + size_of_attributes(attributes)
        most = queue.number("MaximumMessageSize")
        if not body or size_bytes > most:
            raise SqsError(
                SqsError.INVALID_PARAMETER,
                f"One or more parameters are invalid. Reason: Message must be at least one and"
                f" shorter than {most} bytes; {size_bytes} were sent.",
            )
        group = optional_text(entry, "MessageGroupId")
        delay_s = number_of(entry, "DelaySeconds", least=0, most=900)
        _check_fifo(queue, group, delay_s)
        if delay_s is None:
            delay_s = queue.number("DelaySeconds")
        now_ms = self._view.now_ms()
        headers = to_headers(attributes) + _trace_header(entry)
        if delay_s:
            headers += ((SENT_HEADER, str(now_ms).encode()),)
        key = idempotency_key(queue, entry, group=group, body=body)
        if key is not None:
            headers += ((DEDUPLICATION_HEADER, deduplication_id(key, group).encode()),)
        return NewMessage(
            value=body,
            key=None if group is None else group.encode(),
            headers=headers,
            deliver_at_ms=now_ms + delay_s * 1_000 if delay_s else None,
            idempotency_key=key,
        )


def _sent_bytes(entry: Entry) -> int:
    """Return what an entry adds to the size of its batch."""
    body_bytes = len(str(entry.get("MessageBody", "")).encode(errors="surrogateescape"))
    try:
        attributes = read_attributes(entry.get("MessageAttributes"))
    except SqsError:
        # What is wrong with them fails the entry and not the batch.
        return body_bytes
    return body_bytes + size_of_attributes(attributes)


def _check_fifo(queue: Queue, group: str | None, delay_s: int | None) -> None:
    if queue.is_fifo and not group:
        raise SqsError(
            SqsError.MISSING_PARAMETER, "The request must contain the parameter MessageGroupId."
        )
    if group is not None:
        check_id("MessageGroupId", group)
    if queue.is_fifo and delay_s:
        raise SqsError(
            SqsError.INVALID_PARAMETER,
            f"Value {delay_s} for parameter DelaySeconds is invalid. Reason: The request include"
            " parameter that is not valid for this queue type.",
        )


def _trace_header(entry: Entry) -> tuple[tuple[str, bytes | None], ...]:
    given = entry.get("MessageSystemAttributes") or {}
    attributes = read_attributes(given)
    unknown = [name for name in attributes if name != TRACE_HEADER]
    if unknown:
        raise SqsError(
            SqsError.INVALID_PARAMETER,
            f"{unknown[0]!r} is no system attribute that can be sent; there is {TRACE_HEADER}",
        )
    return tuple((name, each.content) for name, each in attributes.items())


def _sent(queue: Queue, entry: Entry, result: Published | PenstockError) -> EntryResult:
    if isinstance(result, PenstockError):
        return result
    attributes = read_attributes(entry.get("MessageAttributes"))
    answer = {
        "MessageId": message_id(queue.topic.topic_id, result.id),
        "MD5OfMessageBody": md5_of_body(str(entry["MessageBody"]).encode()),
    }
    attributes_md5 = md5_of_attributes(attributes)
    if attributes_md5 is not None:
        answer["MD5OfMessageAttributes"] = attributes_md5
    system_md5 = md5_of_attributes(read_attributes(entry.get("MessageSystemAttributes")))
    if system_md5 is not None:
        answer["MD5OfMessageSystemAttributes"] = system_md5
    if queue.is_fifo and result.offset is not None:
        answer["SequenceNumber"] = sequence_number(result.partition, result.offset)
    return answer
