"""Consumers of a consumer group, and books of what its shard must say.

Members join by the incremental protocol, keep their epoch, and commit offsets under it; others
commit without being members. All of it goes through the real `Groups` of a node.
"""

import uuid
from typing import TYPE_CHECKING, Any

from penstock.broker.groups import Groups
from penstock.config import NodeOptions
from penstock.errors import NotCoordinator, PenstockError
from penstock.groups import (
    Assignment,
    CommitOffsets,
    ConsumerHeartbeat,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetToCommit,
    Reconciled,
    TopicInfo,
)
from penstock.groups.events import (
    ConsumerSaved,
    GroupRemoved,
    MemberRemoved,
    MemberSaved,
    OffsetsRemoved,
    OffsetsSaved,
    TopicsForgotten,
    decode,
)
from penstock.ids import NodeId, TopicPartition
from penstock.raft import Entry
from penstock.raft import EntryKind as RaftKind
from tests.simulation.callers import Caller, Reply, Surroundings, answer
from tests.simulation.referee import require

if TYPE_CHECKING:
    from tests.simulation.node import Node

TOPIC = "orders"
PARTITIONS = 8
TOPICS = {TOPIC: TopicInfo(uuid.UUID(int=1), PARTITIONS)}

Place = tuple[str, str, int]
"""A group, and a partition of a topic."""


def new_groups(node: "Node") -> Groups:
    """The consumer groups of one life of a node, in one shard."""
    options = NodeOptions(data_dir=node.directory, node_id=NodeId(node.name), group_shards=1)
    groups = Groups(options, node.workplace)
    groups._topics = dict(TOPICS)
    return groups


class GroupsBooks:
    """Positions and members, as committed events say."""

    def __init__(self) -> None:
        self.positions: dict[Place, list[tuple[int, int | None]]] = {}
        """All values that a position ever had, with the term that made each final."""
        self._confirmed: dict[Place, int] = {}
        """Up to which of them consumers were told that they are final."""
        self._owned: dict[str, dict[str, set[tuple[uuid.UUID, int]]]] = {}
        self._assigned: dict[tuple[str, str, int], list[Assignment]] = {}
        """All that a member ever was assigned at an epoch."""
        self._epochs: dict[str, int] = {}

    def commit(self, entry: Entry, term: int) -> None:
        """An entry is final, under a leader of this term."""
        if entry.kind is not RaftKind.STATE:
            return
        touched = set()
        for record in decode(bytes(entry.payload)):
            match record:
                case OffsetsSaved(group, offsets):
                    for row in offsets:
                        self._history(group, row.topic, row.partition).append((term, row.offset))
                case OffsetsRemoved(group, partitions):
                    for topic, partition in partitions:
                        self._history(group, topic, partition).append((term, None))
                case TopicsForgotten(topics):
                    for (_, topic, _), history in self.positions.items():
                        if topic in topics:
                            history.append((term, None))
                case ConsumerSaved(group, epoch):
                    known = self._epochs.get(group, 0)
                    require(epoch >= known, "the epoch of a group fell", group, known, epoch)
                    self._epochs[group] = epoch
                case MemberSaved(group, member):
                    touched.add(group)
                    key = (group, member.member_id, member.epoch)
                    self._assigned.setdefault(key, []).append(member.assigned)
                    self._owned.setdefault(group, {})[member.member_id] = {
                        (topic, partition)
                        for assignment in (member.assigned, member.revoking)
                        for topic, partitions in assignment.items()
                        for partition in partitions
                    }
                case MemberRemoved(group, member_id):
                    self._owned.get(group, {}).pop(member_id, None)
                case GroupRemoved(group):
                    self._forget(group, term)
        for group in touched:
            self._check_owners(group)

    def _history(self, group: str, topic: str, partition: int) -> list[tuple[int, int | None]]:
        return self.positions.setdefault((group, topic, partition), [])

    def _forget(self, group: str, term: int) -> None:
        self._owned.pop(group, None)
        self._epochs.pop(group, None)
        for (name, *_), history in self.positions.items():
            if name == group:
                history.append((term, None))

    def _check_owners(self, group: str) -> None:
        seen: set[tuple[uuid.UUID, int]] = set()
        for member, owned in self._owned[group].items():
            require(not seen & owned, "a partition has two owners", group, member, seen & owned)
            seen |= owned

    def was_assigned(self, group: str, member_id: str, epoch: int, told: Assignment) -> bool:
        """Whether what a member is told is in the log."""
        return told in self._assigned.get((group, member_id, epoch), [])

    def confirmed(self, place: Place) -> int:
        """How many values whoever answers must know of: a consumer was told so."""
        return self._confirmed.get(place, 0)

    def confirmed_to(self, place: Place, term: int) -> int:
        """How many of them a leader of this term must know of by itself."""
        count = self.confirmed(place)
        return count if count and self.positions[place][count - 1][0] <= term else 0

    def check_fetched(self, place: Place, found: int | None, *, known: int) -> None:
        """A leader tells no older position than the last that was confirmed before."""
        history = self.positions.get(place, [])
        allowed = {offset for _, offset in history[max(known - 1, 0) :]}
        if known == 0:
            allowed.add(None)
        require(found in allowed, "a committed offset went back", place, found, allowed)

    def check_committed(self, place: Place, offset: int) -> None:
        """A commit that was confirmed is in the log."""
        history = [each for _, each in self.positions.get(place, [])]
        require(offset in history, "an offset commit was confirmed and is not final", place, offset)
        count = 1 + history.index(offset)
        self._confirmed[place] = max(count, self._confirmed.get(place, 0))


class Committer(Caller):
    """Commits the positions of one partition, each higher than the last, and looks at them."""

    def __init__(
        self, number: int, around: Surroundings, *, books: GroupsBooks, interval_us: int
    ) -> None:
        super().__init__(number, around, interval_us=interval_us)
        self.acked = 0
        self._books = books
        self._is_member = number % 2 == 0
        self._group = "members" if self._is_member else "others"
        self._lives = 0
        self._member_id = ""
        self._epoch = 0
        self._offset = 0

    def _act(self) -> None:
        if self.is_stopping or self._waits_for:
            return
        if not self._is_member:
            self._commit_or_fetch()
        elif self._epoch == 0 or self._random() < 0.3:
            self._beat()
        else:
            self._commit_or_fetch()

    def _commit_or_fetch(self) -> None:
        if self._random() < 0.6:
            self._commit()
        else:
            self._fetch()

    def _ask_groups(self, command: Any, on_success: Any) -> None:
        def ask(node: "Node", reply: Reply) -> None:
            node.spawn(answer(node.consumer_groups.ask(self._group, command), reply))

        self._ask(ask, on_success)

    def _follow(self, error: PenstockError, leader: int | None) -> None:
        if isinstance(error, NotCoordinator) and leader is not None and leader != self._target:
            self._target = leader
            return
        if not error.retryable:
            # The group has gone on without this member.
            self._epoch = 0
        super()._follow(error, leader)

    def _beat(self) -> None:
        is_leaving = self._epoch > 0 and self._random() < 0.05
        if self._epoch == 0:
            self._lives += 1
            self._member_id = f"member {self.number} {self._lives}"
        member_id = self._member_id
        epoch = -1 if is_leaving else self._epoch
        is_new = self._epoch == 0

        def beat(ticket: int) -> ConsumerHeartbeat:
            return ConsumerHeartbeat(
                ticket=ticket,
                group_id=self._group,
                member_id=member_id,
                candidate_id=member_id,
                member_epoch=epoch,
                rebalance_ms=1_000 if is_new else None,
                topics=(TOPIC,) if is_new else None,
                owned={} if is_new else None,
            )

        def beaten(result: Reconciled) -> None:
            if member_id != self._member_id:
                return
            if is_leaving:
                self._epoch = 0
                return
            told = result.member_epoch
            require(told >= epoch, "a member's epoch fell", member_id, epoch, told)
            self._epoch = max(self._epoch, told)

        self._ask_groups(beat, beaten)

    def _commit(self) -> None:
        self._offset += 1
        offset = self._offset
        member_id, epoch = (self._member_id, self._epoch) if self._is_member else ("", -1)

        def commit(ticket: int) -> CommitOffsets:
            return CommitOffsets(
                ticket=ticket,
                group_id=self._group,
                member_id=member_id,
                instance_id=None,
                generation=epoch,
                offsets=(OffsetToCommit(TOPIC, self.number, offset),),
            )

        def committed(result: OffsetsCommitted) -> None:
            require(not result.refused, "an offset is refused", result)
            self.acked += 1
            self._books.check_committed((self._group, TOPIC, self.number), offset)

        self._ask_groups(commit, committed)

    def _fetch(self) -> None:
        place = (self._group, TOPIC, self.number)
        partition = TopicPartition(TOPIC, self.number)

        def fetch(node: "Node", reply: Reply) -> None:
            assert node.log is not None
            known = self._books.confirmed_to(place, node.log.term)

            def command(ticket: int) -> FetchOffsets:
                return FetchOffsets(ticket=ticket, group_id=self._group, partitions=(partition,))

            async def fetched() -> None:
                result = await node.consumer_groups.ask(self._group, command)
                assert isinstance(result, OffsetsFetched)
                row = result.offsets.get(partition)
                found = None if row is None else row.offset
                self._books.check_fetched(place, found, known=known)

            node.spawn(answer(fetched(), reply))

        self._ask(fetch, lambda _: None)
