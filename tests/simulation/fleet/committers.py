"""Those who commit offsets of consumer groups and look at them, at whichever node coordinates."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.broker import Broker
from penstock.errors import PenstockError
from penstock.groups import (
    CommitOffsets,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetToCommit,
)
from penstock.ids import TopicPartition
from tests.simulation.fleet.actors import TOPICS, Actor
from tests.simulation.referee import require

if TYPE_CHECKING:
    from tests.simulation.fleet.fleet import Fleet

Deed = Callable[[Broker, str, TopicPartition], Awaitable[None]]
_GROUPS = ("bakers", "brewers", "cooks")
_END_US = 300_000
_END_ROUNDS = 40


class Committer(Actor):
    """Commits positions and fetches them.

    A position is a number that nobody else commits, so that what is fetched tells which commit it
    comes from. As Kafka's clients do, it asks any node who coordinates the group and goes there.
    """

    def __init__(self, fleet: "Fleet", interval_us: int) -> None:
        super().__init__(fleet, interval_us)
        self.confirmed = 0
        self._topic_of: dict[int, UUID] = {}
        """The topic that a position was committed for, as the coordinator knew it."""
        self._safe: set[int] = set()
        """Positions that were confirmed before anyone wanted to delete their topic."""

    async def act(self, broker: Broker) -> None:
        """Commit or fetch one position."""
        names = [name for name in TOPICS if name in broker.metadata.topics]
        if names:
            topic = broker.metadata.topics[self._random.choice(names)]
            place = TopicPartition(topic.name, int(topic.partitions * self._random.random()))
            deed = self.commit if self._random.random() < 0.6 else self._fetch
            self._go(broker, deed, self._random.choice(_GROUPS), place)

    def _go(self, broker: Broker, deed: Deed, group: str, place: TopicPartition) -> None:
        """Go to the node that coordinates a group, if it is there."""
        self._go_to(broker.coordinator_of(group).node_id, self._at_coordinator, deed, group, place)

    async def _at_coordinator(
        self, broker: Broker, deed: Deed, group: str, place: TopicPartition
    ) -> None:
        # A door refuses what the node does not know.
        if place.topic in broker.metadata.topics:
            await deed(broker, group, place)

    async def commit(
        self,
        broker: Broker,
        group: str,
        place: TopicPartition,
        *,
        member_id: str = "",
        epoch: int = -1,
    ) -> None:
        """Commit a position, as a member or as one who assigns partitions itself."""
        offset = self._fleet.next_number()
        topic_id = broker.metadata.topics[place.topic].topic_id
        self._topic_of[offset] = topic_id

        def commit(ticket: int) -> CommitOffsets:
            return CommitOffsets(
                ticket=ticket,
                group_id=group,
                member_id=member_id,
                instance_id=None,
                generation=epoch,
                offsets=(OffsetToCommit(place.topic, place.partition, offset),),
            )

        answer = await broker.groups.ask(group, commit)
        assert isinstance(answer, OffsetsCommitted)
        require(not answer.refused, "an offset is refused", answer)
        self._fleet.books_of_group(broker, group).check_committed((group, *place), offset)
        self.confirmed += 1
        if topic_id not in self._fleet.founder.doomed:
            self._safe.add(offset)

    async def _fetch(self, broker: Broker, group: str, place: TopicPartition) -> None:
        books = self._fleet.books_of_group(broker, group)
        known = books.confirmed((group, *place))
        found = await self._fetched(broker, group, place)
        if found is not None or not self._is_outlived(broker, group, place):
            books.check_fetched((group, *place), found, known=known)

    def _is_outlived(self, broker: Broker, group: str, place: TopicPartition) -> bool:
        """Whether the last position was meant for a topic that had the name before.

        It does not count from then on when the coordinator knows of that. So one may be lost that
        was committed at a coordinator which had not heard of the deletion.
        """
        topic = broker.metadata.topics.get(place.topic)
        history = self._fleet.books_of_group(broker, group).positions.get((group, *place), [])
        last = next((offset for _, offset in reversed(history) if offset is not None), None)
        return last is not None and (topic is None or self._topic_of[last] != topic.topic_id)

    async def _fetched(self, broker: Broker, group: str, place: TopicPartition) -> int | None:
        def fetch(ticket: int) -> FetchOffsets:
            return FetchOffsets(ticket=ticket, group_id=group, partitions=(place,))

        answer = await broker.groups.ask_currently(group, fetch)
        assert isinstance(answer, OffsetsFetched)
        row = answer.offsets.get(place)
        topic = broker.metadata.topics.get(place.topic)
        if row is not None and topic is not None and row.offset in self._safe:
            is_same = self._topic_of[row.offset] == topic.topic_id
            require(is_same, "a position outlives its topic", group, place, row)
        return None if row is None else row.offset

    # The end.

    def check_all(self) -> None:
        """Without faults, every group has the position that was committed last."""
        metadata = self._fleet.any_broker().metadata
        wanted = {
            (group, TopicPartition(topic, partition))
            for books in self._fleet.referee.shards.values()
            for group, topic, partition in books.positions
            if topic in metadata.topics
        }
        for _ in range(_END_ROUNDS):
            for group, place in sorted(wanted):
                with suppress(PenstockError):
                    self._go(self._fleet.any_broker(), partial(self._end, wanted), group, place)
            self._fleet.advance(_END_US)
            if not wanted:
                return
        require(False, "positions cannot be fetched", wanted)

    async def _end(
        self,
        wanted: set[tuple[str, TopicPartition]],
        broker: Broker,
        group: str,
        place: TopicPartition,
    ) -> None:
        found = await self._fetched(broker, group, place)
        (_, last) = self._fleet.books_of_group(broker, group).positions[group, *place][-1]
        if self._is_outlived(broker, group, place):
            last = None
        require(found == last, "a position is not what was committed last", group, place, found)
        wanted.discard((group, place))
