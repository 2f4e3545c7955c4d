"""Reads messages: of a group, or of partitions and offsets that the caller names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.connection import Connection
from penstock.client.messages import Header, Message
from penstock.client.translation import ALL_BROKERS_DOWN, PARTITION_END, PASSING, translate
from penstock.ids import TopicPartition

Isolation = Literal["read_committed", "read_uncommitted"]
GroupProtocol = Literal["classic", "consumer"]
Reset = Literal["earliest", "latest", "error"]

# Taken one by one from librdkafka, messages took more than four times as long.
EVENTS_MAX = 500
# librdkafka wants a group even from those who read without one; nothing is committed under it.
NO_GROUP = "penstock-no-group"


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """The reader has seen everything that a partition holds at this moment."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Disconnection:
    """No broker can be reached; librdkafka goes on trying."""

    reason: str


Event = Message | PartitionEnd | Disconnection


class Consumer:
    """Reads one message after another. Only `commit` moves a group's offsets."""

    def __init__(
        self,
        connection: Connection,
        *,
        group: str | None = None,
        reset: Reset = "error",
        isolation: Isolation = "read_committed",
        protocol: GroupProtocol = "consumer",
    ) -> None:
        connection.probe()
        self._connection = connection
        self._is_joined = False
        self._disconnections: list[Event] = []
        settings = connection.settings(
            group_id=group or NO_GROUP,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            auto_offset_reset=reset,
            isolation_level=isolation,
            # A node sends batches as they are stored; nobody else would notice a bit that flipped.
            check_crcs=True,
        )
        settings["error_cb"] = self._on_error
        if group is not None:
            settings["group.protocol"] = protocol
            if protocol == "classic":
                settings["partition.assignment.strategy"] = "cooperative-sticky"
        self._librdkafka = KafkaConsumer(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Leaving the group lets the others take over without waiting for a session to expire.
        self._librdkafka.close()

    def subscribe(self, topic: str, before_revoke: Callable[[], None]) -> None:
        """Read what the group assigns, from where the group is.

        `before_revoke` is called inside `poll` while partitions are about to go to another
        member: the last moment to commit what was read of them.
        """

        def on_revoke(_consumer: KafkaConsumer, _partitions: list[KafkaPartition]) -> None:
            before_revoke()

        self._librdkafka.subscribe([topic], on_assign=self._on_assign, on_revoke=on_revoke)

    def assign(self, starts: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions, each from its offset; None is the beginning."""
        self._librdkafka.assign(
            [
                KafkaPartition(*each, OFFSET_BEGINNING if offset is None else offset)
                for each, offset in starts.items()
            ]
        )
        self._is_joined = True

    @property
    def is_joined(self) -> bool:
        """Whether an assignment has arrived, be it an empty one."""
        return self._is_joined

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer reads at this moment."""
        return {
            TopicPartition(each.topic, each.partition) for each in self._librdkafka.assignment()
        }

    def poll(self, wait_s: float) -> list[Event]:
        """Return what came in time, in order; nothing is a normal answer."""
        try:
            events = self._librdkafka.consume(EVENTS_MAX, wait_s)
        except KafkaException as error:
            raise translate(error, "consume") from None
        disconnections, self._disconnections = self._disconnections, []
        return disconnections + [event for each in events if (event := _event(each)) is not None]

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offset to read of each partition; durable when this returns."""
        wanted = [KafkaPartition(*each, offset) for each, offset in offsets.items()]
        try:
            committed = self._librdkafka.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            raise translate(error, "commit offsets") from None
        for each in committed:
            if each.error is not None:
                raise translate(each.error, f"commit {each.topic} partition {each.partition}")

    def _on_error(self, error: KafkaError) -> None:
        # Called inside `poll`. All other errors also come in place of a message or pass.
        if error.code() == ALL_BROKERS_DOWN:
            self._disconnections.append(Disconnection(error.str()))

    def _on_assign(self, _consumer: KafkaConsumer, _partitions: list[KafkaPartition]) -> None:
        self._is_joined = True


def _event(message: Any) -> Event | None:
    error = message.error()
    if error is None:
        return _message(message)
    if error.code() == PARTITION_END:
        return PartitionEnd(TopicPartition(message.topic(), message.partition()))
    if error.code() in PASSING:
        return None
    doing = f"consume {message.topic()} partition {message.partition()}"
    raise translate(error, doing if message.topic() else "consume")


def _message(message: Any) -> Message:
    kind, timestamp_ms = message.timestamp()
    return Message(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        key=message.key(),
        value=message.value(),
        headers=tuple(Header(name, value) for name, value in message.headers() or ()),
    )
