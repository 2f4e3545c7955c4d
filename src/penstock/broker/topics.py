"""Creating, changing and deleting topics."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.broker.given_settings import check_given_settings
from penstock.cluster import (
    DEFINITIONS,
    Cluster,
    Replicas,
    SettingDefinition,
    Topic,
    check_growth,
    check_in_sync_change,
    check_in_sync_min,
    check_new_topic,
    check_partition_count,
    check_settings,
    check_topic_name,
    choose_replicas,
    no_setting,
)
from penstock.config import NodeOptions
from penstock.errors import InvalidAssignment, InvalidSetting, TopicExists

# What a topic that is only tried out has in place of its id and of the numbers of its groups.
_NO_ID = uuid.UUID(int=0)
_NO_GROUP = 0


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

    async def find_or_create(self, name: str) -> Topic:
        """Return a topic; one that is missing is created where the node's options allow it."""
        if name not in self._cluster.metadata.topics and self._options.auto_create_topics:
            with suppress(TopicExists):
                # Another client may be faster.
                await self.create(NewTopic(name))
        return self.find(name)

    async def create(self, new: NewTopic, *, dry_run: bool = False) -> Topic:
        """Create a topic; a dry run checks everything and returns the topic that would be."""
        settings = {
            name: value for name, value in (new.settings or {}).items() if value is not None
        }
        self._cluster.metadata.check_current()
        placement = self._placement(new)
        check_new_topic(new.name, len(placement), settings, self._cluster.metadata.topics)
        check_given_settings(new.name, settings)
        check_in_sync_min(settings, placement)
        if dry_run:
            replicas = tuple(Replicas(_NO_GROUP, members, members) for members in placement)
            return Topic(new.name, _NO_ID, replicas, settings)
        return await self._cluster.topics.create(new.name, placement, settings)

    def _placement(self, new: NewTopic) -> list[tuple[tuple[int, int], ...]]:
        metadata = self._cluster.metadata
        if new.assignments:
            return self._chosen_placement(new.assignments)
        factor = new.replication_factor
        if factor == -1:
            # A number that nobody has named is no reason to refuse a topic.
            takers = max(1, len(metadata.replica_takers))
            factor = min(self._options.default_replication_factor, takers)
        partitions = self._options.default_partitions if new.partitions == -1 else new.partitions
        check_partition_count(partitions)
        return choose_replicas(metadata, partitions, factor, reachable=self._cluster.reachable)

    def _chosen_placement(
        self, assignments: Sequence[Sequence[int]]
    ) -> list[tuple[tuple[int, int], ...]]:
        return [self._chosen_replicas(replicas) for replicas in assignments]

    def _chosen_replicas(self, replicas: Sequence[int]) -> tuple[tuple[int, int], ...]:
        nodes = self._cluster.metadata.nodes
        unknown = [node for node in replicas if node not in nodes]
        if unknown or not replicas or len(set(replicas)) != len(replicas):
            raise InvalidAssignment(
                f"replicas {list(replicas)} were asked for, the cluster has nodes {sorted(nodes)}"
            )
        return tuple((node, nodes[node].incarnation) for node in replicas)

    async def delete(self, name: str) -> None:
        """Delete a topic with all its records."""
        await self._cluster.topics.delete(self._cluster.metadata.topic(name))

    async def grow(
        self,
        name: str,
        partitions: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        dry_run: bool = False,
    ) -> None:
        """Let a topic grow to `partitions`; records stay where they are.

        `assignments` gives the replicas of each new partition when the caller wants to choose them.
        """
        topic = self._cluster.metadata.topic(name)
        check_growth(topic, partitions)
        placement = self._growth(topic, partitions - topic.partitions, assignments)
        if not dry_run:
            await self._cluster.topics.grow(topic, partitions, placement)

    def _growth(
        self, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None
    ) -> list[tuple[tuple[int, int], ...]]:
        factor = len(topic.replicas[0].members)
        if assignments is None:
            return choose_replicas(
                self._cluster.metadata, count, factor, reachable=self._cluster.reachable
            )
        if len(assignments) != count or any(len(nodes) != factor for nodes in assignments):
            raise InvalidAssignment(
                f"replicas {[list(nodes) for nodes in assignments]} were given for {count} new"
                f" partitions of {topic.name!r}, each of which has {factor}"
            )
        return self._chosen_placement(assignments)

    async def change_settings(
        self,
        name: str,
        changed: dict[str, str],
        removed: list[str],
        *,
        expected: dict[str, str | None] | None = None,
        dry_run: bool = False,
    ) -> None:
        """Set some settings and return others to their default.

        Raises `Conflict` when a setting is not as expected, because another was faster.
        """
        topic = self._cluster.metadata.topic(name)
        check_settings(changed)
        check_given_settings(name, changed)
        check_in_sync_change(topic, changed)
        unknown = [setting for setting in removed if setting not in DEFINITIONS]
        if unknown:
            raise InvalidSetting("; ".join(map(no_setting, unknown)))
        if not dry_run:
            await self._cluster.topics.change_settings(topic, changed, removed, expected)

    def settings(self, name: str) -> list[SettingValue]:
        """Return all settings of a topic, given or not."""
        return self.settings_of(self._cluster.metadata.topic(name))

    def settings_of(self, topic: Topic) -> list[SettingValue]:
        """Return all settings of a topic that need not be there yet."""
        values = []
        for definition in DEFINITIONS.values():
            default = definition.default(self._options)
            value = topic.settings.get(definition.name, default)
            is_given = definition.name in topic.settings
            values.append(SettingValue(definition, value, default, is_given))
        return values
