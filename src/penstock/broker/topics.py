"""Creating, changing and deleting topics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.cluster import (
    DEFINITIONS,
    Cluster,
    SettingDefinition,
    Topic,
    check_growth,
    check_new_topic,
    check_settings,
    check_topic_name,
)
from penstock.config import NodeOptions
from penstock.errors import InvalidReplication, InvalidSetting
from penstock.ids import NodeId


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; -1 leaves a number to the node's options.

    `assignments` gives the replicas of each partition when the caller wants to choose them.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    settings: Mapping[str, str | None] | None = None
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A setting as it stands, and whether somebody gave it."""

    definition: SettingDefinition
    value: str
    default: str
    is_given: bool


class Topics:
    """The verbs that concern topics."""

    def __init__(self, cluster: Cluster, options: NodeOptions) -> None:
        self._cluster = cluster
        self._options = options

    def find(self, name: str) -> Topic:
        """Return a topic; a name that no topic can have is told apart from one that none has."""
        topic = self._cluster.metadata.topics.get(name)
        if topic is None:
            check_topic_name(name)
            return self._cluster.metadata.topic(name)
        return topic

    async def create(self, new: NewTopic, *, dry_run: bool = False) -> Topic | None:
        """Create a topic; a dry run checks everything and returns None."""
        settings = {
            name: value for name, value in (new.settings or {}).items() if value is not None
        }
        partitions = self._partition_count(new)
        check_new_topic(new.name, partitions, settings, self._cluster.metadata.topics)
        if dry_run:
            return None
        return await self._cluster.create_topic(new.name, partitions, settings)

    def _partition_count(self, new: NewTopic) -> int:
        node_id = NodeId(self._options.node_id)
        if new.assignments:
            for replicas in new.assignments:
                if list(replicas) != [node_id]:
                    raise InvalidReplication(
                        f"replicas {list(replicas)} were asked for, the cluster has node {node_id}"
                    )
            return len(new.assignments)
        factor = new.replication_factor
        if factor == -1:
            factor = self._options.default_replication_factor
        if factor != 1:
            raise InvalidReplication(
                f"replication factor {factor} was asked for, the cluster has 1 node"
            )
        return self._options.default_partitions if new.partitions == -1 else new.partitions

    async def delete(self, name: str) -> None:
        """Delete a topic with all its records."""
        await self._cluster.delete_topic(self._cluster.metadata.topic(name))

    async def grow(self, name: str, partitions: int, *, dry_run: bool = False) -> None:
        """Let a topic grow to `partitions`; records stay where they are."""
        topic = self._cluster.metadata.topic(name)
        check_growth(topic, partitions)
        if not dry_run:
            await self._cluster.add_partitions(topic, partitions)

    async def change_settings(
        self, name: str, changed: dict[str, str], removed: list[str], *, dry_run: bool = False
    ) -> None:
        """Set some settings and return others to their default."""
        topic = self._cluster.metadata.topic(name)
        check_settings(changed)
        unknown = [setting for setting in removed if setting not in DEFINITIONS]
        if unknown:
            raise InvalidSetting(f"{', '.join(unknown)} is no setting of a topic")
        if not dry_run:
            await self._cluster.change_settings(topic, changed, removed)

    def settings(self, name: str) -> list[SettingValue]:
        """Return all settings of a topic, given or not."""
        given = self._cluster.metadata.topic(name).settings
        values = []
        for definition in DEFINITIONS.values():
            default = definition.default(self._options)
            value = given.get(definition.name, default)
            values.append(SettingValue(definition, value, default, definition.name in given))
        return values
