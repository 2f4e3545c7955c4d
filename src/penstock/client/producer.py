"""Publishes messages, many in flight, each answered once."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer

from penstock.client.connection import Connection
from penstock.client.messages import NewMessage, Placement
from penstock.client.translation import PURGED, translate
from penstock.errors import BatchTooLarge, PenstockError, TimedOut

Acks = Literal["0", "1", "all"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

# The broker's own limit decides; librdkafka's default would refuse what a topic allows.
MESSAGE_BYTES_MAX = 100_000_000
QUEUE_WAIT_S = 0.5


class Producer:
    """Publishes in the order of `send`; with acks from all replicas nothing is stored twice.

    The first failure is kept and raised by the next `send` or by `flush`, with everything sent
    before it answered one way or the other.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        on_placed: Callable[[Placement], None],
        acks: Acks = "all",
        compression: Compression = "none",
    ) -> None:
        connection.probe()
        self._connection = connection
        self._on_placed = on_placed
        self._failure: PenstockError | None = None
        self._librdkafka = KafkaProducer(
            connection.settings(
                acks=acks,
                enable_idempotence=acks == "all",
                compression_type=compression,
                delivery_timeout_ms=int(connection.wait_s * 1000),
                message_max_bytes=MESSAGE_BYTES_MAX,
                linger_ms=5,
                # A key has the same partition as over HTTP, and with the clients of Kafka's own.
                partitioner="murmur2_random",
                # Each message without a key goes its own way; else all of a while share one, and
                # how many those are is left to chance.
                sticky_partitioning_linger_ms=0,
                topic_metadata_propagation_max_ms=3_000,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing waits for what is in flight, so a failing block is cut short instead.
        if kind is not None:
            self._librdkafka.purge()
        self._librdkafka.flush(self._connection.wait_s)

    def send(self, message: NewMessage) -> None:
        """Hand a message over; waits while too many are in flight."""
        arguments = _arguments(message)
        while True:
            self._raise_failure()
            try:
                self._librdkafka.produce(on_delivery=self._on_delivery, **arguments)
                break
            except BufferError:
                self._librdkafka.poll(QUEUE_WAIT_S)
            except KafkaException as error:
                raise translate(error, f"publish to {message.topic}") from None
        self._librdkafka.poll(0)

    def flush(self) -> None:
        """Return when every message is answered, or raise the first failure."""
        # Each message has its own deadline, so this ends; short waits let Ctrl-C through.
        while self._librdkafka.flush(QUEUE_WAIT_S) > 0:
            pass
        self._raise_failure()

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            offset = message.offset()
            placement = Placement(
                topic=message.topic(),
                partition=message.partition(),
                offset=offset if offset is not None and offset >= 0 else None,
            )
            self._on_placed(placement)
        elif self._failure is None and error.code() not in PURGED:
            self._failure = self._describe(error, message)

    def _describe(self, error: KafkaError, message: Any) -> PenstockError:
        doing = f"publish to {message.topic()}"
        if message.partition() is not None:
            doing += f" partition {message.partition()}"
        failure = translate(error, doing)
        if isinstance(failure, BatchTooLarge):
            size_bytes = len(message)
            return BatchTooLarge(
                f"publish to {message.topic()}: a message of {size_bytes} bytes is larger than the"
                " topic's max.message.bytes allows"
            )
        if isinstance(failure, TimedOut):
            return TimedOut(
                f"publish to {message.topic()}: no ack from {self._connection.bootstrap} within"
                f" {self._connection.wait_s:g} s; the message may or may not be stored"
            )
        return failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _arguments(message: NewMessage) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "topic": message.topic,
        "value": message.value,
        "key": message.key,
        "headers": [tuple(header) for header in message.headers],
    }
    if message.partition is not None:
        arguments["partition"] = message.partition
    if message.timestamp_ms is not None:
        arguments["timestamp"] = message.timestamp_ms
    return arguments
