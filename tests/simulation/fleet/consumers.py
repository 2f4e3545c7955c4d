"""Those who receive messages of queue groups and answer for them, through any node."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker import Broker, Message, Nack, Reject
from penstock.delivery import parse_receipt
from tests.simulation.fleet.actors import TOPICS, Actor
from tests.simulation.fleet.queue_books import PartitionBooks, Settled
from tests.simulation.fleet.sharers import GROUP as SHARE_GROUP
from tests.simulation.fleet.sharers import Sharer
from tests.simulation.referee import require

if TYPE_CHECKING:
    from tests.simulation.fleet.fleet import Fleet

_RECEIVE_MAX = 20
_HELD_MAX = 60
_DRAIN_INTERVAL_US = 30_000
_DRAIN_US = 500_000
_DRAIN_ROUNDS = 120


class Held(NamedTuple):
    """A message that is out with a consumer, and the books that know of it."""

    topic: str
    receipt: str
    books: PartitionBooks


class Consumer(Actor):
    """Receives for one group, and answers in every way that there is, or not at all."""

    def __init__(
        self, fleet: "Fleet", interval_us: int, settled: Settled, *, group: str, name: str
    ) -> None:
        super().__init__(fleet, interval_us)
        self._settled = settled
        self._name = name
        self.acked = 0
        self._group = group
        self._held: list[Held] = []
        self._is_gentle = False

    def hasten(self) -> None:
        """Ack everything, and quickly: nothing else is left to be tried."""
        self._is_gentle = True
        self._interval_us = _DRAIN_INTERVAL_US

    async def act(self, broker: Broker) -> None:
        """Receive, or answer for what was received."""
        if not self._held or (len(self._held) < _HELD_MAX and self._random.random() < 0.4):
            await self._receive(broker)
        else:
            await self._answer(broker)

    async def _receive(self, broker: Broker) -> None:
        names = [name for name in TOPICS if name in broker.metadata.topics]
        if not names:
            return
        topic = self._random.choice(names)
        count_max = _RECEIVE_MAX if self._is_gentle else 1 + int(_RECEIVE_MAX * self._draw())
        wait_ms = 0 if self._draw() < 0.7 else 300
        known = self._settled.count
        messages = await broker.queues.receive(
            topic, self._group, count_max=count_max, wait_ms=wait_ms, consumer=self._name
        )
        self._hold(topic, messages, known)

    def _hold(self, topic: str, messages: Sequence[Message], known: int) -> None:
        for message in messages:
            books = self._fleet.referee.books_of(message.value, message.offset)
            self._settled.check_open(self._group, books, message.offset, known)
            self._held.append(Held(topic, message.receipt, books))

    def _draw(self) -> float:
        return self._random.random()

    # Answers.

    async def _answer(self, broker: Broker) -> None:
        topic = self._held[0].topic
        those = [each for each in self._held if each.topic == topic]
        those = those[: 1 + int(self._draw() * len(those))]
        self._held = [each for each in self._held if each not in those]
        choice = 0.0 if self._is_gentle else self._draw()
        if choice < 0.6:
            await self._ack(broker, topic, those)
        elif choice < 0.72:
            await self._nack(broker, topic, those)
        elif choice < 0.8:
            await self._extend(broker, topic, those)
        elif choice < 0.85:
            await self._reject(broker, topic, those)
        # And otherwise their leases end.

    def _say(self, kind: str, those: list[Held]) -> None:
        for each in those:
            receipt = parse_receipt(each.receipt)
            each.books.sent[kind].add((self._group, receipt.delivery, receipt.offset))

    async def _ack(self, broker: Broker, topic: str, those: list[Held]) -> None:
        self._say("ack", those)
        receipts = [each.receipt for each in those]
        known = self._settled.count
        if self._draw() < 0.5:
            outcomes = await broker.queues.ack(topic, self._group, receipts)
        else:
            outcomes, messages = await broker.queues.ack_and_receive(
                topic, self._group, receipts, count_max=_RECEIVE_MAX, consumer=self._name
            )
            self._hold(topic, messages, known)
        for each, outcome in zip(those, outcomes, strict=True):
            if outcome is None:
                self.acked += 1
                offset = parse_receipt(each.receipt).offset
                each.books.check_acked(self._group, offset)
                self._settled.note(self._group, each.books, offset)

    async def _nack(self, broker: Broker, topic: str, those: list[Held]) -> None:
        self._say("nack", those)
        is_counted = self._draw() < 0.8
        items = [Nack(each.receipt, None, "not now", is_counted) for each in those]
        await broker.queues.nack(topic, self._group, items)

    async def _extend(self, broker: Broker, topic: str, those: list[Held]) -> None:
        receipts = [each.receipt for each in those]
        await broker.queues.extend(topic, self._group, receipts, lease_ms=1_000)
        self._held += those

    async def _reject(self, broker: Broker, topic: str, those: list[Held]) -> None:
        self._say("reject", those)
        await broker.queues.reject(topic, self._group, [Reject(e.receipt, "never") for e in those])


class Consumers:
    """All consumers of a fleet."""

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet
        groups = ("eaters", "sellers")[: fleet.random.choice((1, 1, 2))]
        self._groups = {*groups, SHARE_GROUP}
        interval_us = int(100_000 * (1 + 3 * fleet.random.random()))
        settled = Settled()
        names = ("one", "other")
        self.all = [
            *(
                Consumer(fleet, interval_us, settled, group=group, name=name)
                for group in groups
                for name in names
            ),
            *(Sharer(fleet, interval_us, settled, number=number) for number in (1, 2)),
        ]
        self._has_begun = False

    def begin(self) -> None:
        """Consume from now on."""
        if not self._has_begun:
            self._has_begun = True
            for consumer in self.all:
                consumer.begin()

    @property
    def acked(self) -> int:
        """How many acks were accepted."""
        return sum(consumer.acked for consumer in self.all)

    def drain(self) -> None:
        """Without faults every message of every group is delivered and can be settled."""
        for consumer in self.all:
            consumer.hasten()
        self.begin()
        for _ in range(_DRAIN_ROUNDS):
            if self._is_done():
                break
            self._fleet.advance(_DRAIN_US)
        for consumer in self.all:
            consumer.is_stopping = True
        for books in self._open_books():
            books.check_done()
            lost = self._groups - books.groups.keys() if books.messages else ()
            require(not lost, "groups never begin with a partition", lost)

    def _is_done(self) -> bool:
        return all(
            books.is_done() and not (books.messages and self._groups - books.groups.keys())
            for books in self._open_books()
        )

    def _open_books(self) -> list[PartitionBooks]:
        shelf, metadata = self._fleet.referee.shelf, self._fleet.any_broker().metadata
        return [
            shelf.by_group[replicas.group]
            for name in TOPICS
            if name in metadata.topics
            for replicas in metadata.topics[name].replicas
            if replicas.group in shelf.by_group
        ]
