"""Reads messages: of a group, or of partitions and offsets that the caller names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_NOT_AVAILABLE, KafkaException
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.connection import Connection
from penstock.client.messages import Header, Message
from penstock.client.translation import PARTITION_END, PASSING, translate
from penstock.ids import TopicPartition

Isolation = Literal["read_committed", "read_uncommitted"]
GroupProtocol = Literal["classic", "consumer"]
Reset = Literal["earliest", "latest", "error"]

# librdkafka wants a group even from those who read without one; nothing is committed under it.
NO_GROUP = "penstock-no-group"


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """The reader has seen everything that a partition holds at this moment."""

    partition: TopicPartition


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
        settings = connection.settings(
            group_id=group or NO_GROUP,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            auto_offset_reset=reset,
            isolation_level=isolation,
        )
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

    def poll(self, wait_s: float) -> Message | PartitionEnd | None:
        """Return the next message or end; None when neither came in time."""
        try:
            message = self._librdkafka.poll(wait_s)
        except KafkaException as error:
            raise translate(error, "consume") from None
        if message is None:
            return None
        failure = message.error()
        if failure is None:
            return _message(message)
        if failure.code() == PARTITION_END:
            return PartitionEnd(TopicPartition(str(message.topic()), message.partition() or 0))
        if failure.code() in PASSING:
            return None
        raise translate(failure, "consume")

    def finish(self, partition: TopicPartition) -> None:
        """Stop reading one partition and keep the others."""
        self._librdkafka.pause([KafkaPartition(*partition)])

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

    def _on_assign(self, _consumer: KafkaConsumer, _partitions: list[KafkaPartition]) -> None:
        self._is_joined = True


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
