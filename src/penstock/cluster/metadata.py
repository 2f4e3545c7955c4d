"""What the cluster knows about itself: its topics, their settings, and producer ids.

Commands are entries of the metadata log. Applying one either changes the state or raises, always
under the same conditions, so that every node comes to the same state and the proposer learns the
outcome.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping

import msgspec

from penstock.cluster.commands import (
    AddPartitions,
    AllocateProducerIds,
    ChangeReplicas,
    ChangeSettings,
    Command,
    ConfigureGroup,
    ConfigureShareGroup,
    CreateTopic,
    DeleteTopic,
    DrainNode,
    ForgetGroup,
    ForgetShareGroup,
    FormCluster,
    PlaceShards,
    RegisterNode,
    RemoveNode,
    SettleReplicas,
    decode_committed,
)
from penstock.cluster.described import Node, Replicas, Topic
from penstock.cluster.machine import RecordlessMachine
from penstock.cluster.resharding import (
    BeginReshard,
    CancelReshard,
    FenceTopic,
    LiftFence,
    Resharding,
    SwitchTopics,
    begun,
    check_fence,
    fenced,
    lifted,
    own,
)
from penstock.cluster.topic_checks import (
    PARTITIONS_MAX,
    check_group_name,
    check_new_topic,
    check_topic_name,
)
from penstock.cluster.topic_settings import check_group_settings, check_settings
from penstock.errors import (
    Conflict,
    InvalidPartitionCount,
    InvalidRequest,
    NotFound,
    TopicExists,
    TopicNotFound,
    Unavailable,
)
from penstock.ids import EntryIndex
from penstock.log import StateEntry
from penstock.record import Buffer

METADATA_GROUP = 0
FIRST_SHARD_GROUP = 1
# Shards never have more than 1,024 logs, so the numbers of the two kinds cannot meet.
FIRST_TOPIC_GROUP = 10_000
# Deleted topics are remembered so that a node which was away can tell their leftovers from data
# whose metadata was lost, which is never removed.
_DELETED_KEPT = 10_000
_SHOWN_MAX = 5


class _Snapshot(msgspec.Struct, frozen=True):
    cluster_id: uuid.UUID | None
    nodes: list[Node]
    draining: list[int]
    shards: list[Replicas]
    topics: list[Topic]
    deleted: list[uuid.UUID]
    next_producer_id: int
    next_group: int
    share_groups: dict[str, dict[str, str]] = {}
    last_fence: int = 0
    joined_share_groups: list[str] = []


_encode = msgspec.msgpack.Encoder().encode
_decode_snapshot = msgspec.msgpack.Decoder(_Snapshot).decode


class ClusterMetadata(RecordlessMachine):
    """The machine of the metadata log. `version` changes whenever a topic does."""

    def __init__(self) -> None:
        self.version = 0
        # A node that starts may know less than its cluster until it has been heard there.
        self.is_current = True
        # Nor does one that is cut off hear of what is created meanwhile.
        self.is_outdated: Callable[[], bool] = lambda: False
        self.cluster_id: uuid.UUID | None = None
        self.nodes: dict[int, Node] = {}
        self.draining: set[int] = set()
        self.share_groups: dict[str, dict[str, str]] = {}
        self.joined_share_groups: set[str] = set()
        self.shards: list[Replicas] = []
        self._next_group = FIRST_TOPIC_GROUP
        self._topics: dict[str, Topic] = {}
        self._names: dict[uuid.UUID, str] = {}
        self._deleted: dict[uuid.UUID, None] = {}
        self._next_producer_id = 1
        self.last_fence = 0
        # Changes whenever a topic may have got another name.
        self.names_version = 0
        self._watchers: list[Callable[[], None]] = []

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name."""
        return self._topics

    def topic(self, name: str) -> Topic:
        """Return a topic or raise `TopicNotFound`."""
        topic = self._topics.get(name)
        if topic is None:
            self.check_current()
            # What is to be created is left to the leader, which may be heard again any moment.
            if self.is_outdated():
                raise Unavailable("this node is cut off and cannot say which topics there are")
            raise TopicNotFound(f"there is no topic {name!r}")
        return topic

    def check_current(self) -> None:
        """Raise `Unavailable` while this node cannot say that something does not exist."""
        if not self.is_current:
            raise Unavailable("this node has not learnt yet which topics there are")

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic:
        """Return a topic or raise `TopicNotFound`."""
        name = self._names.get(topic_id)
        if name is None:
            raise TopicNotFound(f"there is no topic with id {topic_id}")
        return self._topics[name]

    def topic_by_public_id(self, public_id: uuid.UUID) -> Topic:
        """Return the topic that clients know by an id, or raise `TopicNotFound`."""
        name = self._names.get(public_id)
        topic = None if name is None else self._topics[name]
        if topic is None or topic.is_former:
            formers = (each for each in self._topics.values() if each.is_former)
            topic = next((each for each in formers if each.public_id == public_id), None)
        if topic is None:
            raise TopicNotFound(f"there is no topic with id {public_id}")
        return topic

    @property
    def replica_takers(self) -> list[int]:
        """Nodes that new replicas may go to: all that are not being drained."""
        return [node for node in self.nodes if node not in self.draining]

    def watch(self, notify: Callable[[], None]) -> None:
        """Call `notify` whenever a topic has changed."""
        self._watchers.append(notify)

    def was_deleted(self, topic_id: uuid.UUID) -> bool:
        """True when a topic of that id once existed and was deleted."""
        return topic_id in self._deleted

    def apply_state(self, entry: StateEntry) -> Topic | int | None:
        """Apply a command; return the topic that it concerns, or the first producer id."""
        command: Command = decode_committed(entry.payload)
        match command:
            case FormCluster(cluster_id):
                self.cluster_id = self.cluster_id or cluster_id
                return None
            case RegisterNode(node, is_repeated):
                if node.node_id in self.nodes or not is_repeated:
                    self.nodes[node.node_id] = node
                    self._changed()
                return None
            case RemoveNode(node_id):
                self._remove_node(node_id)
                return None
            case PlaceShards(placement):
                self._place_shards(placement)
                return None
            case ChangeReplicas(group, members):
                self._update_replicas(
                    group, lambda replicas: _with_members(replicas, members, entry.index)
                )
                return None
            case SettleReplicas(group, members):
                self._update_replicas(group, lambda replicas: _settled(replicas, members))
                return None
            case DrainNode(node_id, is_draining):
                self._drain(node_id, is_draining=is_draining)
                return None
            case CreateTopic():
                return self._create(command)
            case DeleteTopic(topic_id):
                return self._delete(topic_id)
            case AddPartitions():
                return self._grow(command)
            case ChangeSettings():
                return self._change(command)
            case ConfigureGroup():
                return self._configure_group(command)
            case ConfigureShareGroup():
                self._configure_share_group(command)
                return None
            case ForgetShareGroup(group):
                self.share_groups.pop(group, None)
                self.joined_share_groups.discard(group)
                return None
            case ForgetGroup():
                return self._forget_group(command)
            case AllocateProducerIds(count):
                first = self._next_producer_id
                self._next_producer_id += count
                return first
            case BeginReshard() | FenceTopic() | LiftFence() | SwitchTopics() | CancelReshard():
                return self._reshard(command)

    def _create(self, command: CreateTopic) -> Topic:
        known = self._topics.get(command.name)
        if known is not None and known.topic_id == command.topic_id:
            # The same command again: its proposer had not heard that it was committed.
            return known
        if command.topic_id in self._deleted:
            # It was carried out, and the topic was deleted since: it does not come back.
            raise TopicNotFound(f"topic {command.name!r} was created and is deleted already")
        check_new_topic(command.name, len(command.placement), command.settings, self._topics)
        replicas = self._new_replicas(command.placement)
        topic = Topic(command.name, command.topic_id, replicas, command.settings)
        if any(other.files == topic.files for other in self._topics.values()):
            # No topic can be called that, so it is nobody else's.
            topic = msgspec.structs.replace(topic, directory=f"@{topic.topic_id}")
        self._names[topic.topic_id] = topic.name
        return self._store(topic)

    def _delete(self, topic_id: uuid.UUID) -> Topic | None:
        if topic_id in self._deleted:
            # The same command again: its proposer had not heard that it was committed.
            return None
        topic = self.topic_by_id(topic_id)
        del self._topics[topic.name]
        del self._names[topic_id]
        self._deleted[topic_id] = None
        if len(self._deleted) > _DELETED_KEPT:
            del self._deleted[next(iter(self._deleted))]
        self._changed()
        return topic

    def _grow(self, command: AddPartitions) -> Topic:
        topic = self.topic_by_id(command.topic_id)
        if command.request_id is not None and topic.grown_by == command.request_id:
            # The same command again: its proposer had not heard that it was committed.
            return topic
        check_growth(topic, command.partitions)
        self._check_unresharded(topic)
        added = self._new_replicas(command.placement[: command.partitions - topic.partitions])
        replicas = (*topic.replicas, *added)
        return self._store(
            msgspec.structs.replace(topic, replicas=replicas, grown_by=command.request_id)
        )

    def _new_replicas(self, placement: list[tuple[tuple[int, int], ...]]) -> tuple[Replicas, ...]:
        first = self._next_group
        self._next_group += len(placement)
        return tuple(
            Replicas(first + number, members, members) for number, members in enumerate(placement)
        )

    def _place_shards(self, placement: list[tuple[tuple[int, int], ...]]) -> None:
        if not self.shards:
            self.shards = [
                Replicas(FIRST_SHARD_GROUP + number, members, members)
                for number, members in enumerate(placement)
            ]
            self._changed()

    def _update_replicas(self, group: int, update: Callable[[Replicas], Replicas]) -> None:
        def updated(replicas: Replicas) -> Replicas:
            return update(replicas) if replicas.group == group else replicas

        self.shards = [updated(shard) for shard in self.shards]
        for topic in list(self._topics.values()):
            if any(replicas.group == group for replicas in topic.replicas):
                changed = tuple(updated(replicas) for replicas in topic.replicas)
                self._topics[topic.name] = msgspec.structs.replace(topic, replicas=changed)
        self._changed()

    def _remove_node(self, node_id: int) -> None:
        held = [each for each in self.all_replicas() if each.is_kept_by(node_id)]
        if held:
            shown, advice = self._shown(held, node_id), self._advice(held, node_id)
            raise Conflict(f"node {node_id} still replicates {len(held)} logs: {shown}; {advice}")
        self.nodes.pop(node_id, None)
        self.draining.discard(node_id)
        self._changed()

    def _advice(self, held: list[Replicas], node_id: int) -> str:
        """Say what makes logs leave a node."""
        if node_id not in self.draining:
            return "drain it before it is removed"
        if all(node_id in each.leaving_nodes for each in held):
            return "wait until they have moved"
        return "drain it again, not all of them are being moved"

    def _shown(self, held: list[Replicas], node_id: int) -> str:
        """Name logs of a node, first those that nobody else has: they cannot move without it."""
        names = self.log_names()
        alone = {each.group for each in held if _is_alone(each, node_id)}
        held = sorted(held, key=lambda each: each.group not in alone)
        shown = [
            names[each.group] + (" (the only replica)" if each.group in alone else "")
            for each in held[:_SHOWN_MAX]
        ]
        return ", ".join(shown + ["..."] * (len(held) > _SHOWN_MAX))

    def log_names(self) -> dict[int, str]:
        """What people call each log, by the number of its group."""
        names = {each.group: f"consumer groups {n}" for n, each in enumerate(self.shards)}
        for topic in self._topics.values():
            names |= {each.group: f"{topic.name}-{n}" for n, each in enumerate(topic.replicas)}
        return names

    def _drain(self, node_id: int, *, is_draining: bool) -> None:
        if node_id not in self.nodes:
            raise NotFound(f"there is no node {node_id}; the nodes are {sorted(self.nodes)}")
        if is_draining:
            self.draining.add(node_id)
        else:
            self.draining.discard(node_id)
        self._changed()

    def all_replicas(self) -> Iterator[Replicas]:
        """Who replicates each log, of consumer groups and of topics."""
        yield from self.shards
        for topic in self._topics.values():
            yield from topic.replicas

    def _change(self, command: ChangeSettings) -> Topic:
        topic = self.topic_by_id(command.topic_id)
        check_settings(command.changed)
        for name, value in command.expected.items():
            if topic.settings.get(name) != value:
                raise Conflict(f"{name} of topic {topic.name!r} is another one by now")
        settings = {**topic.settings, **command.changed}
        for name in command.removed:
            settings.pop(name, None)
        return self._store(msgspec.structs.replace(topic, settings=settings))

    def _configure_group(self, command: ConfigureGroup) -> Topic:
        topic = self.topic_by_id(command.topic_id)
        check_group_name(command.group)
        check_group_settings(command.changed)
        settings = {**topic.groups.get(command.group, {}), **command.changed}
        for name in command.removed:
            settings.pop(name, None)
        groups = {**topic.groups, command.group: settings}
        return self._store(msgspec.structs.replace(topic, groups=groups))

    def _configure_share_group(self, command: ConfigureShareGroup) -> None:
        check_group_name(command.group)
        settings = {**self.share_groups.get(command.group, {}), **command.changed}
        for name in command.removed:
            settings.pop(name, None)
        self.share_groups[command.group] = settings
        if command.has_joined:
            self.joined_share_groups.add(command.group)

    def _forget_group(self, command: ForgetGroup) -> Topic:
        topic = self.topic_by_id(command.topic_id)
        groups = {name: each for name, each in topic.groups.items() if name != command.group}
        return self._store(msgspec.structs.replace(topic, groups=groups))

    def _reshard(
        self, command: BeginReshard | FenceTopic | LiftFence | SwitchTopics | CancelReshard
    ) -> Topic | None:
        match command:
            case BeginReshard(topic_id, _, target):
                self.topic_by_id(target)
                topic = self.topic_by_id(topic_id)
                return self._set_resharding(topic, begun(topic.resharding, command))
            case FenceTopic(topic_id, reshard_id):
                topic = self.topic_by_id(topic_id)
                resharding = fenced(own(topic.resharding, reshard_id), self.last_fence + 1)
                self.last_fence = max(self.last_fence, resharding.fence)
                return self._set_resharding(topic, resharding)
            case LiftFence(topic_id):
                topic = self.topic_by_id(topic_id)
                return self._set_resharding(topic, lifted(topic.resharding, command))
            case SwitchTopics():
                return self._switch(command)
            case CancelReshard():
                return self._cancel_reshard(command)

    def _set_resharding(self, topic: Topic, resharding: Resharding | None) -> Topic:
        return self._store(msgspec.structs.replace(topic, resharding=resharding))

    def _switch(self, command: SwitchTopics) -> Topic:
        former = self.topic_by_id(command.topic_id)
        resharding = own(former.resharding, command.reshard_id)
        if resharding.is_switched:
            # The same command again: its proposer had not heard that it was committed.
            return self.topic_by_id(resharding.target)
        check_fence(resharding, command.fence)
        copy = self.topic_by_id(resharding.target)
        check_positions(copy, command.positions)
        check_topic_name(command.former_name)
        if command.former_name in self._topics:
            raise TopicExists(f"topic {command.former_name!r} exists already")
        switched = msgspec.structs.replace(
            copy,
            name=former.name,
            directory=copy.files,
            settings=former.settings,
            groups=former.groups,
            era=command.fence,
            positions=command.positions,
        )
        kept = msgspec.structs.replace(
            former,
            name=command.former_name,
            directory=former.files,
            resharding=msgspec.structs.replace(resharding, is_switched=True),
        )
        del self._topics[copy.name]
        for topic in (kept, switched):
            self._topics[topic.name] = topic
            self._names[topic.topic_id] = topic.name
        self.names_version += 1
        self._changed()
        return switched

    def _cancel_reshard(self, command: CancelReshard) -> Topic:
        topic = self.topic_by_id(command.topic_id)
        if topic.resharding is None:
            # The same command again, or the reshard never began.
            return topic
        resharding = own(topic.resharding, command.reshard_id)
        if resharding.is_switched:
            raise Conflict(f"topic {topic.name!r} was switched to its copy; that cannot be undone")
        if resharding.target in self._names:
            self._delete(resharding.target)
        return self._set_resharding(topic, None)

    def _check_unresharded(self, topic: Topic) -> None:
        """Partitions that a reshard does not know of would be left out of it."""
        if self.is_in_reshard(topic):
            raise Conflict(f"topic {topic.name!r} takes part in a reshard; cancel that first")

    def is_in_reshard(self, topic: Topic) -> bool:
        """True while a topic is copied, and for its copy, until they are switched."""
        if topic.resharding is not None and not topic.resharding.is_switched:
            return True
        targets = (each.resharding.target for each in self._topics.values() if each.resharding)
        return not topic.era and topic.topic_id in targets

    def is_in_force(self, fence: int) -> bool:
        """False when a fence was lifted; one that this node has not heard of yet is in force."""
        return fence > self.last_fence or any(
            topic.resharding is not None and topic.resharding.fence == fence
            for topic in self._topics.values()
        )

    def closes_reads(self, fence: int) -> bool:
        """True while a fence is in force and the topic has not lost its name yet."""
        return fence > self.last_fence or any(
            topic.resharding is not None and topic.resharding.fence == fence and not topic.is_former
            for topic in self._topics.values()
        )

    def _store(self, topic: Topic) -> Topic:
        self._topics[topic.name] = topic
        self._changed()
        return topic

    def _changed(self) -> None:
        self.version += 1
        for notify in self._watchers:
            notify()

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return _encode(
            _Snapshot(
                self.cluster_id,
                list(self.nodes.values()),
                sorted(self.draining),
                self.shards,
                list(self._topics.values()),
                list(self._deleted),
                self._next_producer_id,
                self._next_group,
                self.share_groups,
                self.last_fence,
                sorted(self.joined_share_groups),
            )
        )

    def restore(self, payload: Buffer, index: EntryIndex) -> None:
        """Replace the state by that of a snapshot."""
        snapshot = _decode_snapshot(payload)
        self.cluster_id = snapshot.cluster_id
        self.nodes = {node.node_id: node for node in snapshot.nodes}
        self.draining = set(snapshot.draining)
        self.shards = snapshot.shards
        self._next_group = snapshot.next_group
        self.share_groups = snapshot.share_groups
        self.joined_share_groups = set(snapshot.joined_share_groups)
        self._topics = {topic.name: topic for topic in snapshot.topics}
        self._names = {topic.topic_id: topic.name for topic in snapshot.topics}
        self._deleted = dict.fromkeys(snapshot.deleted)
        self._next_producer_id = snapshot.next_producer_id
        self.last_fence = snapshot.last_fence
        self.names_version += 1
        self.version = index
        for notify in self._watchers:
            notify()


def _is_alone(replicas: Replicas, node_id: int) -> bool:
    return {node for node, _ in replicas.former or replicas.members} == {node_id}


def _with_members(replicas: Replicas, members: tuple[tuple[int, int], ...], index: int) -> Replicas:
    former = dict.fromkeys((*replicas.members, *replicas.leaving))
    leaving = tuple(member for member in former if member not in members)
    former_members = replicas.former or replicas.members
    asked_at = replicas.asked_at if replicas.former else index
    return Replicas(replicas.group, replicas.founders, members, leaving, former_members, asked_at)


def _settled(replicas: Replicas, members: tuple[tuple[int, int], ...]) -> Replicas:
    if replicas.members != members:
        # Another change has begun since the leader saw this one carried out.
        return replicas
    return Replicas(replicas.group, (), members)


def check_growth(topic: Topic, partitions: int) -> None:
    """Raise when a topic cannot grow to that number of partitions."""
    if not topic.partitions < partitions <= PARTITIONS_MAX:
        raise InvalidPartitionCount(
            f"topic {topic.name!r} has {topic.partitions} partitions and can grow to at most"
            f" {PARTITIONS_MAX}; {partitions} was asked for"
        )


def check_positions(copy: Topic, positions: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `InvalidRequest` when groups cannot go on there."""
    for group, offsets in positions.items():
        if len(offsets) != copy.partitions or min(offsets) < 0:
            raise InvalidRequest(
                f"group {group!r} is to go on at {list(offsets)[:20]}; {copy.partitions} offsets"
                " from 0 on are needed"
            )
