"""The replicas that a node keeps: opened, found and closed as the metadata says.

One task at a time works here. A partition that cannot be opened is reported and does not keep the
others from being served; where other nodes replicate it too, this node takes part in its group
again as a stranger, with an empty log.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from penstock.cluster.deliveries import DeliveryHost
from penstock.cluster.described import Replicas, Topic
from penstock.cluster.directories import Directories
from penstock.cluster.identity import Identity
from penstock.cluster.machine import Machine
from penstock.cluster.metadata import METADATA_GROUP, ClusterMetadata
from penstock.cluster.partition import Partition
from penstock.cluster.partition_fence import KnownFences
from penstock.cluster.replica_identity import ReplicaIdentity, Transport
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.topic_settings import (
    TopicSettings,
    resolve_group_settings,
    resolve_settings,
)
from penstock.cluster.unwanted_replicas import UnwantedReplicas
from penstock.cluster.upkeep import Upkeep
from penstock.cluster.workplace import Workplace
from penstock.config import NodeOptions
from penstock.delivery import GroupSettings
from penstock.errors import (
    Corruption,
    NotLeader,
    PenstockError,
    StorageFailed,
    TopicNotFound,
)
from penstock.ids import EntryIndex, NodeId, TopicPartition
from penstock.log import LogSettings
from penstock.raft import Incarnation, Member, Membership, RaftSettings

logger = logging.getLogger(__name__)

# Stand for the consumer groups and the metadata among failures; no topic can have these names.
_SHARDS = "(groups)"
_METADATA = TopicPartition("(metadata)", 0)
# State logs hold no records worth keeping: a segment goes once a snapshot covers it.
_STATE_LOG_SETTINGS = LogSettings(segment_bytes=16 * 1024 * 1024, retention_ms=0)


class ReplicaSet:
    """All replicas of this node.

    `on_opened` is told of each log before it takes part in its group, with the number of its shard
    when it keeps consumer groups; `on_replaced` when the node has become a stranger to a group;
    `on_unwanted` when a replica was closed whose files are to go. `is_led` says whether another
    node leads a group: only then can it do without this node's replica.
    """

    def __init__(
        self,
        options: NodeOptions,
        workplace: Workplace,
        *,
        metadata: ClusterMetadata,
        transport: Transport,
        group_machine: Callable[[int], Machine],
    ) -> None:
        self._options = options
        self._workplace = workplace
        self._metadata = metadata
        self._transport = transport
        self._group_machine = group_machine
        self._directories = Directories(options.data_dir, workplace.disk)
        self._directories.claim_group_shards(options.group_shards)
        self.identity = Identity(workplace.disk, options.data_dir, options.node_id)
        self.raft_settings = RaftSettings(election_ticks=options.election_ticks, heartbeat_ticks=2)
        self.upkeep = Upkeep()
        self.by_group: dict[int, ReplicatedLog] = {}
        self._partitions: dict[TopicPartition, Partition] = {}
        self._shards: dict[int, ReplicatedLog] = {}
        self._settings: dict[str, TopicSettings] = {}
        self._group_settings: dict[tuple[str, str], tuple[Topic, GroupSettings]] = {}
        self.delivery = DeliveryHost(self.group_settings)
        self.failures: dict[TopicPartition, PenstockError] = {}
        self._failed: dict[TopicPartition, Replicas] = {}
        self.unwanted = UnwantedReplicas()
        self._names_version = metadata.names_version
        self.on_released: Callable[[int], None] = lambda _: None
        self.on_decided: Callable[[TopicPartition], None] = lambda _: None
        self.on_opened: Callable[[ReplicatedLog, int | None], None] = lambda *_: None
        self.on_replaced: Callable[[], None] = lambda: None
        self.on_unwanted: Callable[[], None] = lambda: None
        self.is_led: Callable[[int], bool] = lambda _: False

    # Finding.

    def partition(self, place: TopicPartition) -> Partition:
        """Return a partition that this node replicates, or raise why it cannot be used."""
        partition = self._partitions.get(place)
        if partition is not None:
            return partition
        failure = self.failures.get(place)
        if failure is not None:
            raise failure
        replicas = self.replicas_of(place)
        if self.identity.member.node in replicas.nodes:
            raise NotLeader(f"{place} is being opened")
        raise NotLeader(f"{place} is replicated by nodes {replicas.nodes}, not by this one")

    def replicas_of(self, place: TopicPartition) -> Replicas:
        """Return who replicates a partition, or raise `TopicNotFound`."""
        topic = self._metadata.topics.get(place.topic)
        if topic is None or not 0 <= place.partition < topic.partitions:
            raise TopicNotFound(f"there is no partition {place.partition} of topic {place.topic!r}")
        return topic.replicas[place.partition]

    def settings(self, topic: str) -> TopicSettings:
        """Return the resolved settings of a topic."""
        settings = self._settings.get(topic)
        if settings is None:
            found = self._metadata.topic(topic)
            settings = self._settings[topic] = resolve_settings(found.settings, self._options)
        return settings

    def group_settings(self, topic: str, group: str) -> GroupSettings:
        """Return the resolved settings of a queue group."""
        found = self._metadata.topic(topic)
        cached = self._group_settings.get((topic, group))
        if cached is not None and cached[0] is found:
            return cached[1]
        settings = resolve_group_settings(topic, found.settings, found.groups.get(group, {}))
        self._group_settings[topic, group] = (found, settings)
        return settings

    def opened(self) -> list[tuple[TopicPartition, Partition]]:
        """All partitions that are open on this node, with their names."""
        return list(self._partitions.items())

    @property
    def partitions(self) -> list[Partition]:
        """All partitions that are open on this node."""
        return list(self._partitions.values())

    def logs(self) -> Iterator[ReplicatedLog]:
        """All logs that are open on this node."""
        return iter(tuple(self.by_group.values()))

    def log_of(self, group: int) -> ReplicatedLog:
        """Return the replica of a group, or raise when it is not here or cannot be used."""
        log = self.by_group.get(group)
        if log is None:
            raise NotLeader(f"group {group} is not replicated here")
        log.check_open()
        return log

    # Names.

    def follow_names(self) -> None:
        """Know every partition by the name that its topic has now.

        Called in the step in which the metadata changes: nobody may look for a partition of a topic
        and find that of the one which had the name before.
        """
        if self._names_version == self._metadata.names_version:
            return
        self._names_version = self._metadata.names_version
        self._settings.clear()
        known = {
            replicas.group: TopicPartition(topic.name, number)
            for topic in self._metadata.topics.values()
            for number, replicas in enumerate(topic.replicas)
        }
        former, self._partitions = self._partitions, {}
        for partition in former.values():
            group = partition.log.identity.group
            place = known.get(group) or _nowhere(group)
            self._partitions[place] = partition
            if place != partition.place:
                self._rename(partition, place)
        for place, partition in self._partitions.items():
            before = former.get(place)
            if before is not None and before is not partition:
                partition.take_refusals_of(before)
        self._move_failures(known)

    def _rename(self, partition: Partition, place: TopicPartition) -> None:
        logger.info("partition renamed", extra={"log": partition.log.name, "to": str(place)})
        partition.rename(place)
        partition.writes.on_decided = partial(self.on_decided, place)

    def _move_failures(self, places: dict[int, TopicPartition]) -> None:
        failures, failed = dict(self.failures), self._failed
        self.failures.clear()
        self._failed = {}
        for former, replicas in failed.items():
            place = former if former.topic == _SHARDS else places.get(replicas.group, former)
            self.failures[place] = failures[former]
            self._failed[place] = replicas

    # Opening and closing.

    def open_metadata(self, founding: Membership, *, are_others_expected: bool) -> ReplicatedLog:
        """Open the metadata, or begin it anew where it is damaged and others have it too.

        The metadata cannot say whether others do: it is what is damaged.
        """
        nothing = self._metadata.snapshot()
        try:
            log = self._open_metadata(founding)
            log.check_readable()
        except Corruption as error:
            if not are_others_expected:
                raise
            logger.error("metadata is damaged", extra={"reason": str(error)})
            self._metadata.restore(nothing, EntryIndex(0))
            self._begin_anew("metadata", METADATA_GROUP, self._directories.metadata)
            log = self._open_metadata(founding)
        self.by_group[METADATA_GROUP] = log
        return log

    def metadata_failed(self, error: OSError | PenstockError) -> None:
        """Report that the metadata cannot be opened, on a node that is running already."""
        logger.error(
            "metadata cannot be opened, start the node again when its disk works",
            extra={"log": str(self._directories.metadata), "reason": str(error)},
        )
        if isinstance(error, OSError):
            error = StorageFailed(f"the metadata cannot be opened: {error}")
        self.failures[_METADATA] = error

    @property
    def is_metadata_replaceable(self) -> bool:
        """True when the metadata turned out to be damaged, and others do without this replica."""
        log = self.by_group.get(METADATA_GROUP)
        return (
            log is not None
            and isinstance(log.failure, Corruption)
            and len(log.raft.membership.voters) > 1
            and self.is_led(METADATA_GROUP)
        )

    async def replace_metadata(self, machine: ClusterMetadata) -> ReplicatedLog:
        """Begin the damaged metadata anew, with a machine that knows nothing yet."""
        await self._close_log(self.by_group.pop(METADATA_GROUP))
        log = await self._workplace.in_thread(lambda: self._begin_metadata_anew(machine))
        self.by_group[METADATA_GROUP] = log
        return log

    def _begin_metadata_anew(self, machine: ClusterMetadata) -> ReplicatedLog:
        directory = self._directories.metadata
        self._begin_anew("metadata", METADATA_GROUP, directory)
        return self._open_log("metadata", METADATA_GROUP, directory, machine)

    def _open_metadata(self, founding: Membership) -> ReplicatedLog:
        """Open the metadata, after beginning it where a crash came between founding and that.

        Were the replica founded before the membership is written down, a node that crashed in
        between could write down another one and begin the group with two first memberships.
        """
        directory = self._directories.metadata
        if self.identity.member_of(METADATA_GROUP) in founding.voters:
            ReplicatedLog.found(self._workplace, directory, founding, self._metadata)
        return self._open_log("metadata", METADATA_GROUP, directory, self._metadata)

    def _open_log(self, name: str, group: int, directory: Path, machine: Machine) -> ReplicatedLog:
        return ReplicatedLog(
            ReplicaIdentity(name, group, self.identity.member_of(group)),
            directory,
            _STATE_LOG_SETTINGS,
            machine,
            self._workplace,
            transport=self._transport,
            raft_settings=self.raft_settings,
        )

    async def reconcile(self, topics: list[Topic]) -> None:
        """Close what is not to be here and open what is.

        `topics` is one look at the metadata for the whole round: a topic that is deleted and
        created again meanwhile must not have its new directory claimed while the old partitions
        are open.
        """
        await self._replace_damaged(topics)
        await self._close_unwanted(topics)
        await self._open_wanted(topics)

    async def _replace_damaged(self, topics: list[Topic]) -> None:
        """Begin replicas anew that turned out to be damaged while they were used."""
        for number, shard in enumerate(self._metadata.shards):
            log = self._shards.get(number)
            if log is not None and self._is_replaceable(log, shard):
                del self._shards[number]
                await self._close_and_replace(log, shard)
        for topic in topics:
            for number, replicas in enumerate(topic.replicas):
                place = TopicPartition(topic.name, number)
                partition = self._partitions.get(place)
                if partition is not None and self._is_replaceable(partition.log, replicas):
                    del self._partitions[place]
                    await self._close_and_replace(partition.log, replicas)

    def _is_replaceable(self, log: ReplicatedLog, replicas: Replicas) -> bool:
        """True for a damaged replica that others do without, of the log that is meant."""
        is_damaged = isinstance(log.failure, Corruption) and log.identity.group == replicas.group
        return is_damaged and len(replicas.members) > 1 and self.is_led(replicas.group)

    @property
    def has_damaged(self) -> bool:
        """True when a log was found to be damaged while it was in use."""
        return any(isinstance(log.failure, Corruption) for log in self.by_group.values())

    async def _close_and_replace(self, log: ReplicatedLog, replicas: Replicas) -> None:
        del self.by_group[replicas.group]
        await self._close_log(log)
        await self._workplace.in_thread(
            partial(self._replace_replica, log.name, replicas, log.log.directory)
        )

    async def empty_deleted(self) -> None:
        """Remove the files of deleted topics."""
        await self._tidy(self._directories.empty_deleted)

    async def _tidy(self, work: Callable[[], None]) -> None:
        """Put files away that nobody needs; what the disk refuses is left to a later round."""
        try:
            await self._workplace.in_thread(work)
        except OSError as failure:
            logger.error("files cannot be put away", extra={"reason": str(failure)})

    async def report_unknown(self) -> None:
        """Name directories that no topic explains."""
        await self._workplace.in_thread(lambda: self._directories.report_unknown(self._is_current))

    async def find_leftovers(self, topics: list[Topic]) -> None:
        """Look for files of replicas that were to go when the node stopped, before any is opened.

        What the node was in groups that are gone by now is forgotten, too. `topics` must be those
        of now. Files that this node keeps under another incarnation are not looked at: they may be
        damaged, and those are kept for people to look at.
        """

        def look() -> None:
            found.update(self._leftovers(topics))
            self.identity.forget(deleted)

        found: dict[int, Path] = {}
        deleted = self._deleted_groups()
        await self._tidy(look)
        for group, directory in found.items():
            logger.info("replica is left over", extra={"path": str(directory)})
            self.unwanted.add(group, directory)
            self.on_unwanted()

    def _leftovers(self, topics: list[Topic]) -> Iterator[tuple[int, Path]]:
        node = self.identity.member.node
        for topic in topics:
            names = self._directories.partitions_of(topic.files, topic.topic_id)
            for number, replicas in enumerate(topic.replicas):
                if str(number) in names and not replicas.is_kept_by(node):
                    yield replicas.group, self._directories.partition(topic.files, number)
        for number, shard in enumerate(self._metadata.shards):
            directory = self._directories.group_shard(number)
            if not shard.is_kept_by(node) and self._workplace.disk.exists(directory):
                yield shard.group, directory

    def _is_mine(self, replicas: Replicas) -> bool:
        """True for replicas that this node keeps, also while it is on its way out."""
        member = tuple(self.identity.member_of(replicas.group))
        return member in (*replicas.members, *replicas.leaving)

    async def _close_unwanted(self, topics: list[Topic]) -> None:
        """Close replicas that are not to be here.

        They are told by the numbers of their groups, which are never given twice: a topic may get
        another name in the middle of a round.
        """
        wanted = {
            TopicPartition(topic.name, number): replicas
            for topic in topics
            for number, replicas in enumerate(topic.replicas)
            if self._is_mine(replicas)
        }
        wanted |= {
            TopicPartition(_SHARDS, number): shard
            for number, shard in enumerate(self._metadata.shards)
            if self._is_mine(shard)
        }
        groups = {replicas.group for replicas in wanted.values()}
        for partition in self.partitions:
            if partition.log.identity.group not in groups:
                del self._partitions[partition.place]
                await self._let_go(partition.log)
        for place, failed in list(self._failed.items()):
            if place not in wanted or self._is_replaced(failed, wanted[place]):
                del self.failures[place]
                del self._failed[place]
        for name in [name for name in self._settings if name not in self._metadata.topics]:
            del self._settings[name]
        for key in [key for key in self._group_settings if key[0] not in self._metadata.topics]:
            del self._group_settings[key]
        for number, log in list(self._shards.items()):
            if number < len(self._metadata.shards) and not self._is_mine(
                self._metadata.shards[number]
            ):
                del self._shards[number]
                await self._let_go(log)
        await self._discard_unwanted(groups)
        await self._discard_deleted({topic.topic_id for topic in topics})
        await self.empty_deleted()

    async def _discard_deleted(self, wanted: set[uuid.UUID]) -> None:
        """Move the files of deleted topics away, but for one that this round still keeps open."""

        def was_deleted(topic_id: uuid.UUID) -> bool:
            return topic_id not in wanted and self._metadata.was_deleted(topic_id)

        await self._tidy(lambda: self._directories.discard_deleted(was_deleted))

    async def _let_go(self, log: ReplicatedLog) -> None:
        """Close a replica that is not to be here, by all that this node knows."""
        group = log.identity.group
        self.by_group.pop(group, None)
        await self._close_log(log)
        # The files of a topic that was deleted go with the topic.
        if any(replicas.group == group for replicas in self._metadata.all_replicas()):
            self.unwanted.add(group, log.log.directory)
            self.on_unwanted()

    async def _discard_unwanted(self, wanted: set[int]) -> None:
        """Move the files of replicas away that others keep for certain."""
        known = {replicas.group: replicas for replicas in self._metadata.all_replicas()}
        self.unwanted.forget(
            lambda group: group in wanted or group not in known or self._is_mine(known[group])
        )
        if certain := self.unwanted.take_certain():
            await self._tidy(partial(self._discard_replicas, certain, self._deleted_groups()))

    def _deleted_groups(self) -> set[int]:
        """Groups to which this node has been a stranger, and which are gone."""
        if not self._metadata.is_current:
            # A node that has not caught up does not know all groups that there are.
            return set()
        known = {replicas.group for replicas in self._metadata.all_replicas()}
        return self.identity.replaced.keys() - known - {METADATA_GROUP}

    def _discard_replicas(self, directories: dict[int, Path], deleted: set[int]) -> None:
        """Move the files of replicas away, and be a stranger to their groups from now on.

        A replica that comes back begins with nothing and is filled from the start of the log. So it
        comes by memberships in which it was a voter, and would vote by them without knowing what it
        has voted and acknowledged: two that come back can be a majority of such a membership, and
        elect one of themselves. Under another incarnation they belong to none of them.

        The incarnations are durable before the files go. A crash in between leaves files under a
        new incarnation, which know more than they need to.
        """
        self.identity.replace(directories, deleted=deleted)
        self._workplace.loop.call_soon_threadsafe(self.on_replaced)
        for directory in directories.values():
            self._directories.discard_replica(directory)

    def _is_replaced(self, failed: Replicas, wanted: Replicas) -> bool:
        """Whether this node is to keep another replica than the one that could not be opened.

        A damaged replica begins anew under another incarnation, and the metadata may know of it
        before the round has ended in which the damage was found.
        """
        node = self.identity.member.node

        def own(replicas: Replicas) -> list[tuple[int, int]]:
            return [each for each in (*replicas.members, *replicas.leaving) if each[0] == node]

        return failed.group != wanted.group or own(failed) != own(wanted)

    def _is_current(self, topic_id: uuid.UUID) -> bool:
        return any(topic.topic_id == topic_id for topic in self._metadata.topics.values())

    async def _open_wanted(self, topics: list[Topic]) -> None:
        for number, shard in enumerate(self._metadata.shards):
            place = TopicPartition(_SHARDS, number)
            is_open = shard.group in self.by_group or place in self.failures
            if self._is_mine(shard) and not is_open:
                try:
                    await self._open_shard(number, shard)
                except (OSError, PenstockError) as error:
                    # Topics and the other groups are served all the same.
                    self._install(place, shard, _cannot_open(place, error))
        for topic in topics:
            opened = await self._workplace.in_thread(partial(self._open_partitions, topic))
            for place, found in opened:
                self._install(place, topic.replicas[place.partition], found)
            self._follow_settings(topic)

    def _follow_settings(self, topic: Topic) -> None:
        settings = resolve_settings(topic.settings, self._options)
        named = self._metadata.topics.get(topic.name)
        if named is not None and named.topic_id == topic.topic_id:
            # Otherwise the topic has another name since the round began.
            self._settings[topic.name] = settings
        log_settings = settings.log
        if self._metadata.is_in_reshard(topic):
            # Topic and copy are compared record by record, so neither may lose any by itself.
            log_settings = replace(log_settings, deletes=False, compacts=False)
        for replicas in topic.replicas:
            log = self.by_group.get(replicas.group)
            if log is not None:
                log.log.settings = log_settings

    async def _open_shard(self, number: int, shard: Replicas) -> None:
        directory = self._directories.group_shard(number)
        machine = self._group_machine(number)

        name = f"groups-{number}"

        def open_log() -> ReplicatedLog:
            try:
                self._found_replica(directory, shard, machine)
                return self._open_log(name, shard.group, directory, machine)
            except Corruption:
                self._replace_replica(name, shard, directory)
                raise

        log = await self._workplace.in_thread(open_log)
        self.by_group[shard.group] = self._shards[number] = log
        self.on_opened(log, number)
        self._begin(log, shard)

    def _found_replica(self, directory: Path, replicas: Replicas, machine: Machine) -> None:
        """Begin a group that this node founds; a later member starts with nothing."""
        if tuple(self.identity.member_of(replicas.group)) in replicas.founders:
            founders = [
                Member(NodeId(node), Incarnation(incarnation))
                for node, incarnation in replicas.founders
            ]
            ReplicatedLog.found(self._workplace, directory, Membership.of(founders), machine)

    def begin_metadata(self, log: ReplicatedLog) -> None:
        """Let the metadata have a leader at once where nobody can have led it before."""
        voters = log.raft.membership.voters
        self._stand(log, is_intended=min(voters, default=None) == log.identity.member)

    def _begin(self, log: ReplicatedLog, replicas: Replicas) -> None:
        self._stand(log, is_intended=replicas.founders[:1] == (tuple(log.identity.member),))

    def _stand(self, log: ReplicatedLog, *, is_intended: bool) -> None:
        """Elect the intended leader of a new group at once; others wait for their timeout."""
        is_alone = log.raft.membership.voters == (log.identity.member,)
        is_new = log.raft.last_index == 0
        if is_alone:
            log.campaign()
        elif is_new and is_intended:
            self._campaign(log, self._options.election_ticks)

    def _campaign(self, log: ReplicatedLog, times: int) -> None:
        """Stand for election, and again while the others still open their replicas."""
        if times > 0 and log.leader is None:
            log.campaign()
            self._workplace.loop.call_later(
                self._options.tick_ms / 1000, self._campaign, log, times - 1
            )

    def _open_partitions(
        self, topic: Topic
    ) -> list[tuple[TopicPartition, Partition | PenstockError]]:
        """Open the files of a topic's partitions that are to be here. Runs in a thread."""
        settings = resolve_settings(topic.settings, self._options).log
        opened: list[tuple[TopicPartition, Partition | PenstockError]] = []
        for number, replicas in enumerate(topic.replicas):
            place = TopicPartition(topic.name, number)
            is_open = replicas.group in self.by_group or place in self.failures
            if self._is_mine(replicas) and not is_open:
                opened.append((place, self._claim_and_open(topic, place, replicas, settings)))
        return opened

    def _claim_and_open(
        self, topic: Topic, place: TopicPartition, replicas: Replicas, settings: LogSettings
    ) -> Partition | PenstockError:
        try:
            self._directories.claim_topic(topic.files, topic.topic_id)
        except (OSError, PenstockError) as error:
            return _cannot_open(place, error)
        directory = self._directories.partition(topic.files, place.partition)
        return self._open_partition(place, replicas, settings, directory)

    def _open_partition(
        self, place: TopicPartition, replicas: Replicas, settings: LogSettings, directory: Path
    ) -> Partition | PenstockError:
        try:
            partition = Partition.open(
                place,
                ReplicaIdentity(
                    str(place), replicas.group, self.identity.member_of(replicas.group)
                ),
                directory,
                settings,
                found=lambda machine: self._found_replica(directory, replicas, machine),
                producer_expiry_ms=self._options.producer_expiry_ms,
                workplace=self._workplace,
                transport=self._transport,
                raft_settings=self.raft_settings,
                host=self.delivery,
                fences=KnownFences(self._metadata.is_in_force, self._metadata.closes_reads),
            )
        except Corruption as error:
            self._replace_replica(str(place), replicas, directory)
            return _cannot_open(place, error)
        except (OSError, PenstockError) as error:
            return _cannot_open(place, error)
        cut_bytes = partition.log.log.cut_bytes
        if cut_bytes:
            logger.warning("torn tail cut", extra={"log": str(place), "bytes": cut_bytes})
        return partition

    def _install(
        self, place: TopicPartition, replicas: Replicas, found: Partition | PenstockError
    ) -> None:
        # The topic may have got another name while the files were opened.
        place = self._place_of(replicas.group, place)
        if not isinstance(found, Partition):
            self.failures[place] = found
            self._failed[place] = replicas
            return
        self._partitions[place] = found
        found.rename(place)
        found.stage.on_released = self.on_released
        found.writes.on_decided = partial(self.on_decided, place)
        log = found.log
        self.by_group[log.identity.group] = log
        self.on_opened(log, None)
        self._begin(log, replicas)

    def _place_of(self, group: int, place: TopicPartition) -> TopicPartition:
        """Return the place of a group's partition as it is now."""
        if place.topic == _SHARDS:
            return place
        topics = self._metadata.topics
        likely = [topics[place.topic]] if place.topic in topics else []
        for topic in (*likely, *topics.values()):
            replicas = topic.replicas[place.partition : place.partition + 1]
            if [each.group for each in replicas] == [group]:
                return TopicPartition(topic.name, place.partition)
        return place if place not in self._partitions else _nowhere(group)

    async def _close_log(self, log: ReplicatedLog) -> None:
        await self.upkeep.end(log)
        try:
            await log.close()
        except (OSError, PenstockError) as failure:
            # What was acknowledged is on disk already; the next start has to read more of it.
            logger.warning("log closed badly", extra={"log": log.name, "reason": str(failure)})

    def _replace_replica(self, name: str, replicas: Replicas, directory: Path) -> None:
        """Take part in the group of a damaged replica as a stranger, where others keep it too."""
        if len(replicas.members) == 1:
            return
        try:
            self._begin_anew(name, replicas.group, directory)
        except OSError as failure:
            # It stays damaged, and is found to be so again by the next start.
            logger.error("replica stays damaged", extra={"log": name, "reason": str(failure)})
            return
        self._workplace.loop.call_soon_threadsafe(self.on_replaced)

    def _begin_anew(self, name: str, group: int, directory: Path) -> None:
        """Be a stranger to a group from now on, with an empty log.

        The new incarnation is durable before the damaged files are moved away: an empty log under
        the old one could vote against what the replica once acknowledged. A crash in between finds
        the damaged files under the new incarnation, and replaces them again.
        """
        self.identity.replace([group])
        self._directories.set_aside(directory, name)

    async def close(self) -> None:
        """Close all logs: topics first, the metadata last."""
        await asyncio.gather(*(self._close_log(partition.log) for partition in self.partitions))
        for log in self._shards.values():
            await self._close_log(log)
        metadata_log = self.by_group.get(METADATA_GROUP)
        if metadata_log is not None:
            await self._close_log(metadata_log)


def _nowhere(group: int) -> TopicPartition:
    """Where a partition is until it is closed whose topic is gone; no topic has such a name."""
    return TopicPartition(f"(group {group})", 0)


def _cannot_open(place: TopicPartition, error: OSError | PenstockError) -> PenstockError:
    """Report a partition that cannot be opened; it must not keep the others from being served."""
    logger.error("partition is damaged", extra={"log": str(place), "reason": str(error)})
    if isinstance(error, PenstockError):
        return error
    return StorageFailed(f"{place} cannot be opened: {error}")
