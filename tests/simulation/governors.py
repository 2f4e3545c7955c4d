"""Those who change the metadata, and books of what it must say.

Commands go through the real `MetadataChanges` of any node, which finds the leader and asks again.
A governor whose patience ends sends the same command once more, as a node does that has not heard
the answer; it may have been carried out, and undone by somebody else since.
"""

import uuid
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.cluster.commands import (
    AddPartitions,
    AllocateProducerIds,
    ChangeReplicas,
    ChangeSettings,
    Command,
    ConfigureGroup,
    CreateTopic,
    DeleteTopic,
    DrainNode,
    ForgetGroup,
    RegisterNode,
    SettleReplicas,
    decode_command,
)
from penstock.cluster.described import Node, Topic
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.placement import choose_replicas
from penstock.errors import PenstockError
from penstock.raft import Entry
from penstock.raft import EntryKind as RaftKind
from tests.simulation.callers import Caller, Reply, Surroundings, answer
from tests.simulation.referee import require

if TYPE_CHECKING:
    from tests.simulation.node import Node as SimNode

_NAMES = [f"topic-{number}" for number in range(8)]
_NODES = 5
_BLOCK = 10


class Known(NamedTuple):
    """What the metadata says of a topic, as far as commands decide it alone."""

    name: str
    partitions: int
    settings: tuple[tuple[str, str], ...]


class MetadataBooks:
    """The topics after each committed entry."""

    def __init__(self) -> None:
        self.versions: list[dict[uuid.UUID, Known]] = [{}]
        self.created: set[uuid.UUID] = set()
        self.deleted: set[uuid.UUID] = set()
        self._owners: dict[int, tuple[uuid.UUID, int]] = {}
        self._producer_ids: set[int] = set()

    def commit(self, entry: Entry, term: int) -> None:
        """An entry is final."""
        del term
        topics = self.versions[-1]
        if entry.kind is RaftKind.STATE:
            topics = self._after(topics, decode_command(bytes(entry.payload)))
        self.versions.append(topics)

    def _after(self, topics: dict[uuid.UUID, Known], command: Command) -> dict[uuid.UUID, Known]:
        match command:
            case CreateTopic(name, topic_id, placement, settings):
                if topic_id in self.created or any(each.name == name for each in topics.values()):
                    return topics
                self.created.add(topic_id)
                return {**topics, topic_id: Known(name, len(placement), _pairs(settings))}
            case DeleteTopic(topic_id):
                if topic_id not in topics:
                    return topics
                self.deleted.add(topic_id)
                return {each: known for each, known in topics.items() if each != topic_id}
            case AddPartitions(topic_id, partitions) if topic_id in topics:
                known = topics[topic_id]
                if partitions <= known.partitions:
                    return topics
                return {**topics, topic_id: known._replace(partitions=partitions)}
            case ChangeSettings(topic_id, changed) if topic_id in topics:
                known = topics[topic_id]
                settings = {**dict(known.settings), **changed}
                return {**topics, topic_id: known._replace(settings=_pairs(settings))}
        return topics

    def check_applied(self, metadata: ClusterMetadata, index: int) -> None:
        """What a node says after an entry is what the entries say."""
        expected = self.versions[index]
        found = {
            topic.topic_id: Known(topic.name, topic.partitions, _pairs(topic.settings))
            for topic in metadata.topics.values()
        }
        back = found.keys() & self.deleted - expected.keys()
        require(not back, "a deleted topic came back", index, back)
        require(found == expected, "the metadata says something else", index, found, expected)
        if expected is not self.versions[index - 1]:
            for topic in metadata.topics.values():
                self._check_owners(topic)

    def _check_owners(self, topic: Topic) -> None:
        """A number is given to one log for good."""
        for number, replicas in enumerate(topic.replicas):
            owner = (topic.topic_id, number)
            known = self._owners.setdefault(replicas.group, owner)
            require(known == owner, "two logs have the same group", replicas.group, known, owner)
            require(bool(replicas.members), "a log has no replicas", owner)

    def check_answer(self, command: Command, result: Any) -> None:
        """Whoever was told that a command is carried out can rely on it."""
        match command:
            case CreateTopic(topic_id=topic_id):
                is_done = topic_id in self.created
            case DeleteTopic(topic_id):
                is_done = topic_id in self.deleted
            case AllocateProducerIds(count):
                block = set(range(result, result + count))
                is_done = not block & self._producer_ids
                self._producer_ids |= block
            case _:
                return
        require(is_done, "a command was confirmed and is not final", command, result)


class Governor(Caller):
    """Creates, changes, moves and deletes topics."""

    def __init__(
        self, number: int, around: Surroundings, *, books: MetadataBooks, interval_us: int
    ) -> None:
        super().__init__(number, around, interval_us=interval_us)
        self.acked = 0
        self._books = books
        self._draw = around.random
        self._last: Command | None = None
        self._registered = 0

    def _act(self) -> None:
        if self.is_stopping or self._waits_for:
            return
        if self._last is not None and self._random() < 0.7:
            self._send(self._last)
            return
        node = self._referee.nodes[self._target]
        if node.log is not None:
            self._send(self._next_command(node.metadata))

    def _send(self, command: Command) -> None:
        self._last = command

        def change(node: "SimNode", reply: Reply) -> None:
            node.spawn(answer(_changed(node, command), reply))

        def changed(result: Any) -> None:
            self.acked += 1
            self._books.check_answer(command, result)
            self._answered(command)

        self._ask(change, changed)

    def _answered(self, command: Command) -> None:
        if self._last is command:
            self._last = None

    def _follow(self, error: PenstockError, leader: int | None) -> None:
        if not error.retryable:
            self._last = None
        super()._follow(error, leader)

    def _next_command(self, metadata: ClusterMetadata) -> Command:
        if self._registered < _NODES:
            self._registered += 1
            return RegisterNode(Node(self._registered, 1, "host", 1, "host", 2, 3))
        topics = list(metadata.topics.values())
        choice = self._random()
        if choice < 0.1:
            return AllocateProducerIds(_BLOCK)
        if choice < 0.4 or not topics:
            return self._new_topic(metadata)
        topic = self._draw.choice(topics)
        if choice < 0.65:
            return DeleteTopic(topic.topic_id)
        return self._change_of(topic, choice)

    def _new_topic(self, metadata: ClusterMetadata) -> Command:
        free = [name for name in _NAMES if name not in metadata.topics]
        try:
            placement = choose_replicas(
                metadata,
                self._draw.randint(1, 3),
                self._draw.randint(1, 3),
                reachable=metadata.nodes,
            )
        except PenstockError:
            return DrainNode(self._draw.randint(1, _NODES), is_draining=False)
        name = self._draw.choice(free or _NAMES)
        return CreateTopic(name, _drawn_id(self._draw), placement, {})

    def _change_of(self, topic: Topic, choice: float) -> Command:
        replicas = self._draw.choice(topic.replicas)
        if choice < 0.72:
            more = topic.partitions + self._draw.randint(1, 2)
            return AddPartitions(
                topic.topic_id,
                more,
                [replicas.members] * (more - topic.partitions),
                _drawn_id(self._draw),
            )
        if choice < 0.8:
            days = str(self._draw.randint(1, 9))
            return ChangeSettings(topic.topic_id, {"retention.ms": days}, [])
        if choice < 0.86:
            member = (self._draw.randint(1, _NODES), 1)
            return ChangeReplicas(replicas.group, (member,))
        if choice < 0.9:
            return SettleReplicas(replicas.group, replicas.members)
        if choice < 0.94:
            return DrainNode(self._draw.randint(1, _NODES), is_draining=self._random() < 0.5)
        if choice < 0.97:
            return ConfigureGroup(topic.topic_id, "workers", {"delivery.lease.ms": "1000"})
        return ForgetGroup(topic.topic_id, "workers")


async def _changed(node: "SimNode", command: Command) -> Any:
    result = await node.changes.change(command)
    metadata = node.metadata
    if isinstance(command, CreateTopic | DeleteTopic):
        # The node that was asked has applied it.
        names = {topic.topic_id for topic in metadata.topics.values()}
        is_there = command.topic_id in names
        is_known = is_there or metadata.was_deleted(command.topic_id)
        is_applied = is_known and not (is_there and isinstance(command, DeleteTopic))
        require(is_applied, "a node confirms what it has not applied", node.name, command)
    return result


def _drawn_id(random: Random) -> uuid.UUID:
    return uuid.UUID(int=random.getrandbits(128), version=4)


def _pairs(settings: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(settings.items()))
