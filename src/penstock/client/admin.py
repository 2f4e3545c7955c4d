"""Topics: create, list, describe, change, delete; and which offsets they hold."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition

# The library exports these names without saying so to type checkers.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)
from confluent_kafka.admin import NewTopic as KafkaTopic  # type: ignore[attr-defined]

from penstock.client.connection import Connection
from penstock.client.descriptions import (
    NewTopic,
    OffsetRange,
    PartitionDescription,
    TopicDescription,
    TopicListing,
    TopicSetting,
)
from penstock.client.translation import translate
from penstock.errors import TopicNotFound
from penstock.ids import TopicPartition

BROKER_DECIDES = -1


class Admin:
    """Administers the topics of one cluster. Every call waits for the cluster's answer."""

    def __init__(self, connection: Connection) -> None:
        connection.probe()
        self.connection = connection
        self.librdkafka = AdminClient(connection.settings())

    def topics(self) -> list[TopicListing]:
        """Return all topics, ordered by name."""
        return [
            TopicListing(
                name=name,
                partitions=len(topic.partitions),
                replicas=max((len(each.replicas) for each in topic.partitions.values()), default=0),
            )
            for name, topic in sorted(self._metadata().items())
        ]

    def topic(self, name: str) -> TopicDescription:
        """Return one topic with its partitions, their offsets, and its settings."""
        described = self._describe(name)
        led = [each.id for each in described.partitions if each.leader is not None]
        offsets = self.offset_ranges(TopicPartition(name, partition) for partition in led)
        return TopicDescription(
            name=name,
            topic_id=str(described.topic_id),
            partitions=tuple(
                PartitionDescription(
                    partition=each.id,
                    leader=each.leader.id if each.leader is not None else None,
                    replicas=tuple(node.id for node in each.replicas),
                    in_sync=tuple(node.id for node in each.isr),
                    offsets=offsets.get(TopicPartition(name, each.id)),
                )
                for each in described.partitions
            ),
            settings=self._settings(name),
        )

    def partitions(self, name: str) -> list[TopicPartition]:
        """Return the partitions of one topic; an unknown topic raises and is not created."""
        topic = self._metadata().get(name)
        if topic is None:
            raise TopicNotFound(f"there is no topic {name}")
        return [TopicPartition(name, each) for each in sorted(topic.partitions)]

    def create_topic(self, topic: NewTopic) -> None:
        """Create a topic; it can be used when this returns."""
        wanted = KafkaTopic(
            topic.name,
            num_partitions=topic.partitions or BROKER_DECIDES,
            replication_factor=topic.replication_factor or BROKER_DECIDES,
            config=dict(topic.settings),
        )
        # Without an operation timeout the broker may answer before the topic can be used.
        futures = self.librdkafka.create_topics([wanted], operation_timeout=self.connection.wait_s)
        self.connection.wait(futures[topic.name], f"create topic {topic.name}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        futures = self.librdkafka.delete_topics([name], operation_timeout=self.connection.wait_s)
        self.connection.wait(futures[name], f"delete topic {name}")

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to `total` partitions; keys are spread over the new number from then on."""
        futures = self.librdkafka.create_partitions([NewPartitions(name, total)])
        self.connection.wait(futures[name], f"grow topic {name} to {total} partitions")

    def alter_settings(
        self, name: str, *, changes: Mapping[str, str], resets: Iterable[str] = ()
    ) -> None:
        """Change some settings of a topic and return others to their defaults, all or none."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in changes.items()
        ]
        entries += [
            ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in resets
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        futures = self.librdkafka.incremental_alter_configs([resource])
        self.connection.wait(futures[resource], f"alter topic {name}")

    def offset_ranges(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetRange]:
        """Return what each partition holds at this moment."""
        partitions = list(partitions)
        starts = self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        ends = self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {each: OffsetRange(start=starts[each], end=ends[each]) for each in partitions}

    def offsets_at(
        self, partitions: Sequence[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a time in each partition; None: there is none yet."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        offsets = self._offsets(partitions, spec)
        return {each: offset if offset >= 0 else None for each, offset in offsets.items()}

    def _metadata(self) -> Mapping[str, TopicMetadata]:
        # Asking for one topic by name might create it; asking for all of them never does.
        try:
            return self.librdkafka.list_topics(timeout=self.connection.wait_s).topics
        except KafkaException as error:
            raise translate(error, "list topics") from None

    def _describe(self, name: str) -> Any:
        futures = self.librdkafka.describe_topics(TopicCollection([name]))
        try:
            return self.connection.wait(futures[name], f"describe topic {name}")
        except TopicNotFound:
            raise TopicNotFound(f"there is no topic {name}") from None

    def _settings(self, name: str) -> tuple[TopicSetting, ...]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        futures = self.librdkafka.describe_configs([resource])
        entries = self.connection.wait(futures[resource], f"read settings of topic {name}")
        return tuple(
            TopicSetting(name=key, value=entry.value, is_default=entry.is_default)
            for key, entry in sorted(entries.items())
        )

    def _offsets(
        self, partitions: Sequence[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        wanted = {KafkaPartition(topic, partition): spec for topic, partition in partitions}
        futures = self.librdkafka.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED
        )
        return {
            TopicPartition(each.topic, each.partition): self.connection.wait(
                future, f"read offsets of {each.topic} partition {each.partition}"
            ).offset
            for each, future in futures.items()
        }
