"""All logs of this node: the metadata, the consumer groups and the partitions of topics."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from penstock.cluster.directories import Directories
from penstock.cluster.machine import Machine
from penstock.cluster.metadata import (
    AddPartitions,
    AllocateProducerIds,
    ChangeSettings,
    ClusterMetadata,
    Command,
    CreateTopic,
    DeleteTopic,
    FormCluster,
    Topic,
    encode_command,
)
from penstock.cluster.partition import Partition
from penstock.cluster.replicated_log import ReplicatedLog, Workplace
from penstock.cluster.topic_settings import TopicSettings, resolve_settings
from penstock.cluster.upkeep import Upkeep
from penstock.config import NodeOptions
from penstock.errors import PenstockError, StorageFailed, TopicNotFound, Unavailable
from penstock.ids import ProducerId, TopicPartition
from penstock.log import LogSettings, PartitionLog

logger = logging.getLogger(__name__)

T = TypeVar("T")

# State logs hold no records worth keeping: a segment goes once a snapshot covers it.
_STATE_LOG_SETTINGS = LogSettings(segment_bytes=16 * 1024 * 1024, retention_ms=0)
_PRODUCER_ID_BLOCK = 1_000


class Cluster:
    """Opens, finds and closes the logs of this node, and carries out changes of the metadata."""

    def __init__(
        self,
        options: NodeOptions,
        workplace: Workplace,
        group_machine: Callable[[int], Machine],
    ) -> None:
        """Open everything on disk. Runs in a thread, before the node serves anybody."""
        self._options = options
        self._workplace = workplace
        self.upkeep = Upkeep()
        self._changes = asyncio.Lock()
        self._running_changes: set[asyncio.Task[Any]] = set()
        self._directories = Directories(options.data_dir, workplace.disk)
        self.metadata = ClusterMetadata()
        self._metadata_log = self._open_state_log(
            "metadata", self._directories.metadata, self.metadata
        )
        self._directories.claim_group_shards(options.group_shards)
        self.group_logs = [
            self._open_state_log(
                f"groups-{shard}", self._directories.group_shard(shard), group_machine(shard)
            )
            for shard in range(options.group_shards)
        ]
        self._partitions: dict[TopicPartition, Partition] = {}
        self._settings: dict[str, TopicSettings] = {}
        self.failures: dict[TopicPartition, PenstockError] = {}
        self._producer_ids: list[int] = []
        self._producer_id_refill = asyncio.Lock()
        self._directories.discard_leftovers(self._is_current, self.metadata.was_deleted)
        self._directories.empty_deleted()
        for topic in self.metadata.topics.values():
            self._install(topic, self._open_partitions(topic, 0))

    def _open_state_log(self, name: str, directory: Path, machine: Machine) -> ReplicatedLog:
        log = PartitionLog(self._workplace.disk, directory, _STATE_LOG_SETTINGS)
        return ReplicatedLog(name, log, machine, self._workplace)

    def _is_current(self, topic_id: uuid.UUID) -> bool:
        return any(topic.topic_id == topic_id for topic in self.metadata.topics.values())

    async def form(self) -> None:
        """Give a new cluster its id."""
        if self.metadata.cluster_id is None:
            await self._metadata_log.propose_state(encode_command(FormCluster(uuid.uuid4())))

    # Finding.

    def partition(self, place: TopicPartition) -> Partition:
        """Return a partition, or raise why it cannot be used."""
        partition = self._partitions.get(place)
        if partition is not None:
            return partition
        failure = self.failures.get(place)
        if failure is not None:
            raise failure
        topic = self.metadata.topics.get(place.topic)
        if topic is not None and 0 <= place.partition < topic.partitions:
            raise Unavailable(f"{place} is being opened")
        raise TopicNotFound(f"there is no partition {place.partition} of topic {place.topic!r}")

    def settings(self, topic: str) -> TopicSettings:
        """Return the resolved settings of a topic."""
        settings = self._settings.get(topic)
        if settings is None:
            raise TopicNotFound(f"there is no topic {topic!r}")
        return settings

    @property
    def partitions(self) -> list[Partition]:
        """All partitions that are open on this node."""
        return list(self._partitions.values())

    def logs(self) -> Iterator[ReplicatedLog]:
        """All logs that are open on this node."""
        yield self._metadata_log
        yield from self.group_logs
        for partition in self.partitions:
            yield partition.log

    # Changing.

    async def create_topic(self, name: str, partitions: int, settings: dict[str, str]) -> Topic:
        """Create a topic and open its partitions."""
        return await self._carry_out(self._create_topic(name, partitions, settings))

    async def add_partitions(self, topic: Topic, partitions: int) -> Topic:
        """Let a topic grow."""
        return await self._carry_out(self._add_partitions(topic.topic_id, partitions))

    async def change_settings(
        self, topic: Topic, changed: dict[str, str], removed: list[str]
    ) -> Topic:
        """Change settings of a topic; running partitions follow at once."""
        return await self._carry_out(self._change_settings(topic.topic_id, changed, removed))

    async def delete_topic(self, topic: Topic) -> None:
        """Remove a topic. Its files are out of sight when this returns, and removed soon after."""
        await self._carry_out(self._delete_topic(topic))

    async def _carry_out(self, change: Coroutine[Any, Any, T]) -> T:
        """Make one change at a time, to its end, whatever becomes of the one who asked for it.

        A change is committed first and then its files follow. In between the two do not agree, and
        neither another change nor a client that goes away may come in there.
        """

        async def run() -> T:
            async with self._changes:
                return await change

        task = asyncio.create_task(run())
        self._running_changes.add(task)
        task.add_done_callback(self._running_changes.discard)
        return await asyncio.shield(task)

    async def _create_topic(self, name: str, partitions: int, settings: dict[str, str]) -> Topic:
        topic = await self._change(CreateTopic(name, uuid.uuid4(), partitions, settings))
        await self._open_new_partitions(topic, 0)
        return topic

    async def _add_partitions(self, topic_id: uuid.UUID, partitions: int) -> Topic:
        before = self.metadata.topic_by_id(topic_id).partitions
        grown = await self._change(AddPartitions(topic_id, partitions))
        await self._open_new_partitions(grown, before)
        return grown

    async def _change_settings(
        self, topic_id: uuid.UUID, changed: dict[str, str], removed: list[str]
    ) -> Topic:
        topic = await self._change(ChangeSettings(topic_id, changed, removed))
        self._install(topic, [])
        return topic

    async def _delete_topic(self, topic: Topic) -> None:
        deleted = await self._change(DeleteTopic(topic.topic_id))
        self._settings.pop(topic.name, None)
        places = [TopicPartition(topic.name, number) for number in range(deleted.partitions)]
        for place in places:
            self.failures.pop(place, None)
        partitions = [self._partitions.pop(place, None) for place in places]
        for partition in partitions:
            if partition is not None:
                await self._close_log(partition.log)
        await self._in_thread(lambda: self._directories.discard_topic(topic.name, topic.topic_id))
        await self._in_thread(self._directories.empty_deleted)

    async def new_producer_id(self) -> ProducerId:
        """Return an id that no producer ever had; ids are reserved in blocks."""
        async with self._producer_id_refill:
            if not self._producer_ids:
                first = await self._metadata_log.propose_state(
                    encode_command(AllocateProducerIds(_PRODUCER_ID_BLOCK))
                )
                self._producer_ids = list(range(first + _PRODUCER_ID_BLOCK - 1, first - 1, -1))
            return ProducerId(self._producer_ids.pop())

    async def _change(self, command: Command) -> Topic:
        topic = await self._metadata_log.propose_state(encode_command(command))
        assert isinstance(topic, Topic)
        return topic

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await self._workplace.loop.run_in_executor(self._workplace.executor, work)

    # Opening.

    async def _open_new_partitions(self, topic: Topic, first: int) -> None:
        opened: list[tuple[TopicPartition, Partition | PenstockError]] = []
        await self._in_thread(lambda: opened.extend(self._open_partitions(topic, first)))
        self._install(topic, opened)

    def _open_partitions(
        self, topic: Topic, first: int
    ) -> list[tuple[TopicPartition, Partition | PenstockError]]:
        """Open the files of a topic's partitions from number `first` on. Runs in a thread."""
        places = [TopicPartition(topic.name, number) for number in range(first, topic.partitions)]
        try:
            self._directories.claim_topic(topic.name, topic.topic_id)
        except (OSError, PenstockError) as error:
            return [(place, _cannot_open(place, error)) for place in places]
        settings = resolve_settings(topic.settings, self._options).log
        return [(place, self._open_partition(place, settings)) for place in places]

    def _open_partition(
        self, place: TopicPartition, settings: LogSettings
    ) -> Partition | PenstockError:
        try:
            partition = Partition.open(
                place,
                self._directories.partition(place.topic, place.partition),
                settings,
                producer_expiry_ms=self._options.producer_expiry_ms,
                workplace=self._workplace,
            )
        except (OSError, PenstockError) as error:
            return _cannot_open(place, error)
        cut_bytes = partition.log.log.cut_bytes
        if cut_bytes:
            logger.warning("torn tail cut", extra={"log": str(place), "bytes": cut_bytes})
        return partition

    def _install(
        self, topic: Topic, opened: list[tuple[TopicPartition, Partition | PenstockError]]
    ) -> None:
        settings = resolve_settings(topic.settings, self._options)
        self._settings[topic.name] = settings
        for place, found in opened:
            if isinstance(found, Partition):
                self._partitions[place] = found
            else:
                self.failures[place] = found
        for number in range(topic.partitions):
            partition = self._partitions.get(TopicPartition(topic.name, number))
            if partition is not None:
                partition.log.log.settings = settings.log

    async def close(self) -> None:
        """Close all logs: topics first, the metadata last."""
        await asyncio.gather(*self._running_changes, return_exceptions=True)
        await asyncio.gather(*(self._close_log(partition.log) for partition in self.partitions))
        for log in (*self.group_logs, self._metadata_log):
            await self._close_log(log)

    async def _close_log(self, log: ReplicatedLog) -> None:
        await self.upkeep.end(log)
        try:
            await log.close()
        except (OSError, PenstockError) as failure:
            # What was acknowledged is on disk already; the next start has to read more of it.
            logger.warning("log closed badly", extra={"log": log.name, "reason": str(failure)})


def _cannot_open(place: TopicPartition, error: OSError | PenstockError) -> PenstockError:
    """Report a partition that cannot be opened; it must not keep the others from being served."""
    logger.error("partition is damaged", extra={"log": str(place), "reason": str(error)})
    if isinstance(error, PenstockError):
        return error
    return StorageFailed(f"{place} cannot be opened: {error}")
