"""Those who publish messages for later, and change their minds about some."""

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from penstock.broker import Broker, NewMessage, Published
from penstock.delivery import parse_stage_id
from tests.simulation.fleet.actors import TOPICS, Actor
from tests.simulation.fleet.queue_books import PartitionBooks
from tests.simulation.fleet.referee import value_of
from tests.simulation.referee import require

if TYPE_CHECKING:
    from tests.simulation.fleet.fleet import Fleet

_LATER_MS = 4_000
_KNOWN_MAX = 30


class Scheduled(NamedTuple):
    """A message that waits, as far as its publisher knows."""

    topic: str
    topic_id: UUID
    id: str
    books: PartitionBooks


class Planner(Actor):
    """Publishes with times; cancels and moves what was published, through any node.

    A message is due by the clock of whoever leads its partition then. Clocks of machines may differ
    and jump, so that is all that can be promised: the books compare the time that the leader wrote
    into the released record.
    """

    def __init__(self, fleet: "Fleet", interval_us: int) -> None:
        super().__init__(fleet, interval_us)
        self.acked: list[bytes] = []
        self.cancelled = 0
        self._known: list[Scheduled] = []

    async def act(self, broker: Broker) -> None:
        """Publish, cancel or move."""
        choice = self._random.random()
        if choice < 0.65 or not self._known:
            await self._publish(broker)
        else:
            one = self._known.pop(int(self._random.random() * len(self._known)))
            topic = broker.metadata.topics.get(one.topic)
            # Ids count in their topic: one who knows that it is gone has nothing to cancel.
            if topic is not None and topic.topic_id == one.topic_id:
                deed = self._cancel if choice < 0.85 else self._move
                await deed(broker, one)

    async def _publish(self, broker: Broker) -> None:
        names = [name for name in TOPICS if name in broker.metadata.topics]
        if not names:
            return
        topic = broker.metadata.topics[self._random.choice(names)]
        values = [value_of(self._fleet.next_number()) for _ in range(self._random.choice((1, 3)))]
        due_ms = broker.now_ms() + int(_LATER_MS * self._random.random() ** 2)
        messages = [NewMessage(value=value, deliver_at_ms=due_ms) for value in values]
        answers = await broker.messages.publish(topic.name, messages)
        for value, answer in zip(values, answers, strict=True):
            if isinstance(answer, Published):
                self.acked.append(value)
                if answer.offset is None:
                    books = self._fleet.referee.books_of_scheduled(value)
                    self._check_there(answer.id, books)
                    scheduled = Scheduled(topic.name, topic.topic_id, answer.id, books)
                    self._known = [*self._known[-_KNOWN_MAX:], scheduled]

    def _check_there(self, name: str, books: PartitionBooks) -> None:
        number = parse_stage_id(name)[1]
        is_there = number in books.staged or number in books.released or number in books.cancelled
        require(is_there, "a message was acknowledged and is not there", name)

    async def _cancel(self, broker: Broker, one: Scheduled) -> None:
        (outcome,) = await broker.schedule.cancel(one.topic, [one.id])
        # While its topic is being deleted, the id may be met by a message of the next one.
        if outcome is None and one.topic_id not in self._fleet.founder.doomed:
            self.cancelled += 1
            is_gone = parse_stage_id(one.id)[1] in one.books.cancelled
            require(is_gone, "a cancellation was confirmed and is not final", one.id)

    async def _move(self, broker: Broker, one: Scheduled) -> None:
        due_ms = broker.now_ms() + int(_LATER_MS * self._random.random() ** 2)
        await broker.schedule.move(one.topic, [one.id], due_ms)
        self._known.append(one)
