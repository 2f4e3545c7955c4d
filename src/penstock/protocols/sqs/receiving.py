"""ReceiveMessage, DeleteMessage and ChangeMessageVisibility, alone and in batches."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.broker import (
    IDEMPOTENCY_KEY,
    SOURCE_TIMESTAMP,
    SOURCE_TOPIC,
    Message,
    Nack,
    source_of,
)
from penstock.errors import LeaseExpired, PenstockError, Unavailable
from penstock.protocols.sqs.attributes import (
    DEDUPLICATION_HEADER,
    SENT_HEADER,
    TRACE_HEADER,
    from_headers,
    wanted,
)
from penstock.protocols.sqs.batches import Entry, EntryResult, answer_batch, read_entries
from penstock.protocols.sqs.checksums import md5_of_attributes, md5_of_body
from penstock.protocols.sqs.deduplication import check_id, deduplication_id
from penstock.protocols.sqs.errors import SqsError
from penstock.protocols.sqs.names import message_id, queue_arn
from penstock.protocols.sqs.options import SqsOptions
from penstock.protocols.sqs.parameters import number_of, optional_text, text_of, texts_of
from penstock.protocols.sqs.queues import GROUP, Queue, QueueActions
from penstock.protocols.sqs.receive_attempts import Attempt, ReceiveAttempts, read_request
from penstock.protocols.sqs.sending import sequence_number
from penstock.protocols.sqs.view import SqsView

_MESSAGES_MAX = 10
_WAIT_S_MAX = 20
_LEASE_S_MAX = 43_200
_ATTEMPT_ID = "ReceiveRequestAttemptId"


class _Asked(NamedTuple):
    """What a receive asks for."""

    queue: Queue
    count_max: int
    wait_ms: int
    lease_ms: int | None


class ReceiveActions:
    """What consumers do."""

    def __init__(self, view: SqsView, queues: QueueActions, options: SqsOptions) -> None:
        self._view = view
        self._queues = queues
        self._options = options
        self._attempts = ReceiveAttempts()

    async def receive(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """ReceiveMessage."""
        queue = self._queues.of(parameters)
        count = number_of(parameters, "MaxNumberOfMessages", least=1, most=_MESSAGES_MAX, default=1)
        wait_s = number_of(
            parameters,
            "WaitTimeSeconds",
            least=0,
            most=_WAIT_S_MAX,
            default=queue.number("ReceiveMessageWaitTimeSeconds"),
        )
        lease_s = number_of(parameters, "VisibilityTimeout", least=0, most=_LEASE_S_MAX)
        assert count is not None
        assert wait_s is not None
        asked = _Asked(
            queue,
            count,
            wait_s * 1_000,
            # A lease of no time at all is one that ends at once; else the topic says how long.
            None if lease_s is None else max(1, lease_s * 1_000),
        )
        attempt = _attempt_of(queue, parameters)
        if attempt is None:
            messages: Sequence[Message] = await self._receive(asked)
        else:
            messages = await self._receive_once(attempt, asked)
        shown = [self._shown(queue, each, parameters) for each in messages]
        return {"Messages": shown} if shown else {}

    async def _receive(self, asked: _Asked) -> list[Message]:
        return await self._view.queues.receive(
            asked.queue.name,
            GROUP,
            count_max=asked.count_max,
            wait_ms=asked.wait_ms,
            lease_ms=asked.lease_ms,
        )

    async def _receive_once(self, attempt: Attempt, asked: _Asked) -> Sequence[Message]:
        """Receive, or return what this attempt has received already."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        lease_ms = asked.lease_ms
        if lease_ms is None:
            lease_ms = self._view.queues.settings_of(asked.queue.name, GROUP).lease_ms
        async with self._attempts.turn(attempt):
            found = await self._received_before(attempt, asked.queue, lease_ms)
            if found:
                return found
            waited_ms = round((loop.time() - begun_s) * 1_000)
            messages = await self._receive(
                asked._replace(wait_ms=max(0, asked.wait_ms - waited_ms))
            )
            now_ms = self._view.now_ms()
            self._attempts.keep(attempt, messages, now_ms=now_ms, lease_ms=lease_ms)
            return messages

    async def _received_before(
        self, attempt: Attempt, queue: Queue, lease_ms: int
    ) -> Sequence[Message]:
        """Return the messages of an attempt and let them be out anew, if all of them are out."""
        messages = self._attempts.find(attempt, now_ms=self._view.now_ms())
        receipts = [each.receipt for each in messages]
        if not receipts:
            return ()
        outcomes = await self._view.queues.extend(queue.name, GROUP, receipts, lease_ms=lease_ms)
        for outcome in outcomes:
            if isinstance(outcome, Unavailable):
                # Nobody can tell; whoever asks again gets them then.
                raise outcome
        now_ms = self._view.now_ms()
        if any(outcomes) or not self._attempts.find(attempt, now_ms=now_ms):
            # Some are deleted or visible again, perhaps in this moment.
            self._attempts.forget(attempt.topic_id, receipts)
            return ()
        self._attempts.renewed(attempt, now_ms=now_ms, lease_ms=lease_ms)
        return messages

    def _shown(
        self, queue: Queue, message: Message, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        body = message.value or b""
        text = body.decode(errors="replace")
        shown: dict[str, Any] = {
            "MessageId": _id_of(queue, message),
            "ReceiptHandle": message.receipt,
            "MD5OfBody": md5_of_body(text.encode()),
            "Body": text,
        }
        system = self._system_attributes(queue, message)
        asked = {
            *texts_of(parameters, "AttributeNames"),
            *texts_of(parameters, "MessageSystemAttributeNames"),
        }
        chosen = {name: value for name, value in system.items() if "All" in asked or name in asked}
        if chosen:
            shown["Attributes"] = chosen
        attributes = from_headers(message.headers)
        names = wanted(texts_of(parameters, "MessageAttributeNames"), attributes)
        if names:
            picked = {name: attributes[name] for name in names}
            shown["MessageAttributes"] = {name: each.shown() for name, each in picked.items()}
            shown["MD5OfMessageAttributes"] = md5_of_attributes(picked)
        return shown

    def _system_attributes(self, queue: Queue, message: Message) -> dict[str, str]:
        headers = {
            name: (content or b"").decode(errors="replace") for name, content in message.headers
        }
        # The service dates dead letters of FIFO queues anew, and others from when they were sent.
        source_ms = "" if queue.is_fifo else headers.get(SOURCE_TIMESTAMP, "")
        system = {
            "SenderId": self._options.account,
            "SentTimestamp": _sent_ms(headers.get(SENT_HEADER, source_ms), message),
            "ApproximateReceiveCount": str(message.attempt),
            "ApproximateFirstReceiveTimestamp": str(message.first_delivered_ms),
        }
        group = None if message.key is None else message.key.decode(errors="replace")
        if group is not None:
            system["MessageGroupId"] = group
        if queue.is_fifo:
            system["SequenceNumber"] = sequence_number(message.partition, message.offset)
            if DEDUPLICATION_HEADER in headers:
                system["MessageDeduplicationId"] = headers[DEDUPLICATION_HEADER]
            elif IDEMPOTENCY_KEY in headers and SOURCE_TOPIC not in headers:
                # Sent by another door; the key of a dead letter is the broker's own.
                key = headers[IDEMPOTENCY_KEY]
                system["MessageDeduplicationId"] = deduplication_id(key, group)
        if TRACE_HEADER in headers:
            system[TRACE_HEADER] = headers[TRACE_HEADER]
        if SOURCE_TOPIC in headers:
            system["DeadLetterQueueSourceArn"] = queue_arn(self._options, headers[SOURCE_TOPIC])
        return system

    # Deleting.

    async def delete(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """DeleteMessage."""
        (result,) = await self._delete_all(self._queues.of(parameters), [parameters])
        if not isinstance(result, dict):
            raise result
        return result

    async def delete_batch(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """DeleteMessageBatch."""
        queue = self._queues.of(parameters)
        entries = read_entries(parameters)
        return await answer_batch(
            entries, lambda batch: self._delete_all(queue, batch), self._view.statistics
        )

    async def _delete_all(self, queue: Queue, entries: list[Entry]) -> list[EntryResult]:
        read = [_read_receipt(entry) for entry in entries]
        receipts = [each for each in read if isinstance(each, str)]
        self._attempts.forget(queue.topic.topic_id, receipts)
        # A FIFO queue refuses a receipt whose lease has ended, as the service does.
        ack = self._view.queues.ack if queue.is_fifo else self._view.queues.ack_late
        outcomes = iter(await ack(queue.name, GROUP, receipts))
        return [
            each if isinstance(each, SqsError) else _deleted(queue, next(outcomes)) for each in read
        ]

    # Visibility.

    async def change_visibility(self, parameters: Mapping[str, Any], _: str) -> dict[str, Any]:
        """ChangeMessageVisibility."""
        (result,) = await self._change_all(self._queues.of(parameters), [parameters])
        if not isinstance(result, dict):
            raise result
        return result

    async def change_visibility_batch(
        self, parameters: Mapping[str, Any], _: str
    ) -> dict[str, Any]:
        """ChangeMessageVisibilityBatch."""
        queue = self._queues.of(parameters)
        entries = read_entries(parameters)
        return await answer_batch(
            entries, lambda batch: self._change_all(queue, batch), self._view.statistics
        )

    async def _change_all(self, queue: Queue, entries: list[Entry]) -> list[EntryResult]:
        return [await self._change_one(queue, entry) for entry in entries]

    async def _change_one(self, queue: Queue, entry: Entry) -> EntryResult:
        try:
            receipt = text_of(entry, "ReceiptHandle")
            lease_s = number_of(entry, "VisibilityTimeout", least=0, most=_LEASE_S_MAX)
            if lease_s is None:
                raise SqsError(
                    SqsError.MISSING_PARAMETER,
                    "The request must contain the parameter VisibilityTimeout.",
                )
            outcome = await self._change_lease(queue, receipt, lease_s)
        except (SqsError, PenstockError) as error:
            # Those before it are changed, which their sender must hear.
            return error
        if isinstance(outcome, LeaseExpired):
            return SqsError(
                SqsError.NOT_IN_FLIGHT,
                f"Value {receipt} for parameter ReceiptHandle is invalid. Reason: Message does not"
                " exist or is not available for visibility timeout change.",
            )
        return {} if outcome is None else outcome

    async def _change_lease(self, queue: Queue, receipt: str, lease_s: int) -> PenstockError | None:
        self._attempts.forget(queue.topic.topic_id, [receipt])
        if lease_s == 0:
            nack = Nack(receipt, delay_ms=0, reason="made visible by its consumer")
            (outcome,) = await self._view.queues.nack(queue.name, GROUP, [nack])
        else:
            (outcome,) = await self._view.queues.extend(
                queue.name, GROUP, [receipt], lease_ms=lease_s * 1_000
            )
        return outcome


def _attempt_of(queue: Queue, parameters: Mapping[str, Any]) -> Attempt | None:
    """Return the attempt that a request is part of; those of standard queues name none."""
    given = optional_text(parameters, _ATTEMPT_ID) if queue.is_fifo else None
    if given is None:
        return None
    check_id(_ATTEMPT_ID, given)
    return Attempt(queue.topic.topic_id, given, read_request(parameters))


def _id_of(queue: Queue, message: Message) -> str:
    """Return the id under which a message was sent; one that died keeps it, as in the service."""
    source = source_of(message.headers, GROUP)
    return message_id(*(source or (queue.topic.topic_id, message.id)))


def _sent_ms(kept: str, message: Message) -> str:
    """A delayed message has the time of its release, so its door kept the one when it was sent."""
    released = str(message.timestamp)
    # Any client can write the header.
    is_time = kept.isascii() and kept.isdecimal() and len(kept) <= len(released)
    return kept if is_time else released


def _read_receipt(entry: Entry) -> str | SqsError:
    try:
        return text_of(entry, "ReceiptHandle")
    except SqsError as error:
        return error


def _deleted(queue: Queue, outcome: PenstockError | None) -> EntryResult:
    """A standard queue takes a receipt without a word when another got the message since."""
    if outcome is None or (isinstance(outcome, LeaseExpired) and not queue.is_fifo):
        return {}
    return outcome
