"""Creating, growing, changing and deleting topics.

Each is a command on the metadata. It is carried out when that is committed; what is waited for
afterwards, here, is that this node has followed and that new partitions have leaders, so that the
caller can use at once what it asked for.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable

from penstock.cluster.changes import MetadataChanges
from penstock.cluster.commands import AddPartitions, ChangeSettings, CreateTopic, DeleteTopic
from penstock.cluster.described import Topic
from penstock.cluster.leaders import LeaderTable
from penstock.cluster.replica_set import ReplicaSet
from penstock.cluster.workplace import Workplace
from penstock.ids import TopicPartition

_LEADERS_WAIT_S = 5.0
_LOOK_AGAIN_S = 0.01

Placement = list[tuple[tuple[int, int], ...]]


class TopicChanges:
    """Changes of topics; `followed` waits until this node's replicas are as the metadata says."""

    def __init__(
        self,
        changes: MetadataChanges,
        replicas: ReplicaSet,
        leaders: LeaderTable,
        workplace: Workplace,
        followed: Callable[[], Awaitable[None]],
    ) -> None:
        self._changes = changes
        self._replicas = replicas
        self._leaders = leaders
        self._workplace = workplace
        self._followed = followed

    async def create(self, name: str, placement: Placement, settings: dict[str, str]) -> Topic:
        """Create a topic and wait until its partitions have leaders."""
        command = CreateTopic(name, uuid.uuid4(), placement, settings)
        topic: Topic = await self._changes.change(command)
        await self._wait_for_leaders(topic)
        return topic

    async def grow(self, topic: Topic, partitions: int, placement: Placement) -> Topic:
        """Add partitions to a topic."""
        command = AddPartitions(topic.topic_id, partitions, placement, uuid.uuid4())
        grown: Topic = await self._changes.change(command)
        await self._wait_for_leaders(grown)
        return grown

    async def change_settings(
        self,
        topic: Topic,
        changed: dict[str, str],
        removed: list[str],
        expected: dict[str, str | None] | None = None,
    ) -> Topic:
        """Change settings of a topic; running partitions follow at once."""
        command = ChangeSettings(topic.topic_id, changed, removed, expected or {})
        result: Topic = await self._changes.change(command)
        await self._followed()
        return result

    async def delete(self, topic: Topic) -> None:
        """Remove a topic. Its files here are out of sight when this returns."""
        await self._changes.change(DeleteTopic(topic.topic_id))
        await self._followed()

    async def _wait_for_leaders(self, topic: Topic) -> None:
        """Give new partitions a moment to elect their leaders; clients would ask again anyway."""
        await self._followed()
        deadline_s = self._workplace.loop.time() + _LEADERS_WAIT_S
        groups = [
            replicas.group
            for number, replicas in enumerate(topic.replicas)
            if TopicPartition(topic.name, number) not in self._replicas.failures
        ]
        while self._workplace.loop.time() < deadline_s:
            if all(self._has_serving_leader(group) for group in groups):
                return
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _has_serving_leader(self, group: int) -> bool:
        leader = self._leaders.leader_of(group)
        if leader is None or leader.node < 0:
            return False
        log = self._replicas.by_group.get(group)
        is_elsewhere = leader.node != self._replicas.identity.member.node
        return is_elsewhere or (log is not None and log.is_serving)
