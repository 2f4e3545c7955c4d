"""Those who use a fleet: they create and delete topics, publish, and move replicas."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.broker import Broker, NewMessage, NewTopic, Published
from penstock.errors import PenstockError
from penstock.ids import TopicPartition
from penstock.testing import Schedule
from tests.simulation.fleet.referee import value_of

if TYPE_CHECKING:
    from tests.simulation.fleet.fleet import Fleet

TOPICS = ("apples", "pears", "plums")
_SETTINGS = {
    "delivery.lease.ms": "1500",
    "delivery.attempts.max": "5",
    "delivery.backoff.min.ms": "100",
    "delivery.backoff.max.ms": "1000",
}
_ORDERS = {"apples": "parallel", "pears": "key", "plums": "key-batch"}
_KEYS = 30
NODES_MAX = 6


class Actor:
    """Does something every now and then, on some node that serves."""

    def __init__(self, fleet: "Fleet", interval_us: int) -> None:
        self.is_stopping = False
        self._fleet = fleet
        self._schedule: Schedule = fleet.schedule
        self._random: Random = fleet.random
        self._interval_us = int(interval_us * fleet.filling.leisure)

    def begin(self) -> None:
        """Act from now on, again and again."""
        self._schedule.later(int(self._interval_us * (0.5 + self._random.random())), self._turn)

    def _turn(self) -> None:
        if self.is_stopping:
            return
        self.begin()
        if self._fleet.is_quiet:
            return
        serving = [node for node in self._fleet.nodes.values() if node.is_serving]
        if serving:
            node = self._random.choice(serving)
            assert node.broker is not None
            node.ask(self._try, node.broker)

    async def _try(self, broker: Broker) -> None:
        # Refusals are part of the game.
        with suppress(PenstockError):
            await self.act(broker)

    def _go_to(self, node_id: int, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Go on at a certain node, if it is there."""
        node = self._fleet.nodes.get(node_id)
        if node is not None and node.is_serving:
            assert node.broker is not None
            node.ask(self._try_there, work, node.broker, *args)

    async def _try_there(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        with suppress(PenstockError):
            await work(*args)

    async def act(self, broker: Broker) -> None:
        """Do it."""
        raise NotImplementedError


def padding(fleet: "Fleet") -> tuple[tuple[str, bytes], ...]:
    """Headers that make a record as large as records are in this history."""
    size_bytes = fleet.filling.padding_bytes
    return (("padding", bytes(size_bytes)),) if size_bytes else ()


class Founder(Actor):
    """Creates topics, lets them grow, and deletes them again."""

    def __init__(self, fleet: "Fleet", interval_us: int) -> None:
        super().__init__(fleet, interval_us)
        self.created: set[UUID] = set()
        self.doomed: set[UUID] = set()
        """Topics whose deletion was asked for, whatever was answered."""

    async def act(self, broker: Broker) -> None:
        """Create what is missing, change what is there."""
        name = self._random.choice(TOPICS)
        found = broker.metadata.topics.get(name)
        if not self._fleet.is_worth_creating(len(broker.metadata.nodes)):
            return
        if found is None:
            partitions = self._random.choice((1, 1, 2))
            factor = self._fleet.draw_factor(len(broker.metadata.nodes))
            settings = {**_SETTINGS, "delivery.order": _ORDERS[name]}
            made = await broker.topics.create(NewTopic(name, partitions, factor, settings))
            assert made is not None
            self.created.add(made.topic_id)
        elif self._random.random() < (0.1 if self._fleet.filling.is_slow else 0.6):
            self.doomed.add(found.topic_id)
            await broker.topics.delete(name)
        elif found.partitions < 3:
            await broker.topics.grow(name, found.partitions + 1)


class Writer(Actor):
    """Publishes values, each of them once."""

    def __init__(self, fleet: "Fleet", interval_us: int) -> None:
        super().__init__(fleet, interval_us)
        self.acked: list[bytes] = []

    async def act(self, broker: Broker) -> None:
        """Publish to a topic that the node knows of."""
        names = [name for name in TOPICS if name in broker.metadata.topics]
        if not names:
            return
        topic = self._random.choice(names)
        values = [
            value_of(self._fleet.next_number()) for _ in range(self._random.choice((1, 1, 5)))
        ]
        headers = padding(self._fleet)
        messages = [
            NewMessage(value=value, key=self._draw_key(), headers=headers) for value in values
        ]
        answers = await broker.messages.publish(topic, messages)
        self.acked += [
            value
            for value, answer in zip(values, answers, strict=True)
            if isinstance(answer, Published)
        ]

    def _draw_key(self) -> bytes | None:
        number = int(2 * _KEYS * self._random.random())
        return b"key %d" % number if number < _KEYS else None


class Operator(Actor):
    """Moves replicas and leaders about."""

    def __init__(self, fleet: "Fleet", interval_us: int) -> None:
        super().__init__(fleet, interval_us)
        # Whoever moves replicas about has no leisure.
        self._interval_us = int(interval_us / fleet.filling.leisure)
        self._homes: dict[TopicPartition, list[list[int]]] = {}
        """Between which nodes a partition goes back and forth, where it is filled slowly."""

    async def act(self, broker: Broker) -> None:
        """Do what an operator may do at any time."""
        deeds = (self._move, self._move, self._move, self._cancel, self._drain, self._balance,
                 self._transfer, self._add_node, self._remove_node)  # fmt: skip
        if self._fleet.filling.is_slow:
            deeds += (self._move,) * 6
        deed = self._random.choice(deeds)
        await deed(broker)
        self._fleet.done[deed.__name__.strip("_")] += 1

    def _place(self, broker: Broker) -> TopicPartition | None:
        places = [
            TopicPartition(topic.name, number)
            for topic in broker.metadata.topics.values()
            for number in range(topic.partitions)
        ]
        if self._fleet.filling.is_slow and self._random.random() < 0.8:
            # One that keeps all its records is moved again and again.
            places = [place for place in places if place.topic in TOPICS][:1]
        return self._random.choice(places) if places else None

    async def _move(self, broker: Broker) -> None:
        place = self._place(broker)
        if place is not None and self._may_move(place, broker):
            nodes = self._draw_nodes(place, broker)
            await broker.operations.move(place, nodes)

    def _may_move(self, place: TopicPartition, broker: Broker) -> bool:
        """Whether to; what is filled slowly is mostly left alone until it has been filled."""
        replicas = broker.metadata.topics[place.topic].replicas[place.partition]
        is_moving = bool(replicas.leaving or replicas.former)
        return not (is_moving and self._fleet.filling.is_slow) or self._random.random() < 0.1

    def _draw_nodes(self, place: TopicPartition, broker: Broker) -> list[int]:
        nodes = sorted(broker.metadata.nodes)
        count = self._fleet.draw_factor(len(nodes))
        if not self._fleet.filling.is_slow or self._random.random() < 0.2:
            return self._random.sample(nodes, count)
        present = broker.metadata.topics[place.topic].replicas[place.partition].nodes
        known = self._homes.setdefault(place, [])
        if len(known) < 2:
            known.append(self._apart_from(present, nodes, count))
        back = [each for each in known if set(each) <= {*nodes} and {*each} != {*present}]
        return self._random.choice(back) if back else self._apart_from(present, nodes, count)

    def _apart_from(self, present: Sequence[int], nodes: list[int], count: int) -> list[int]:
        """Draw nodes of which one has the partition now, if all others can be others."""
        others = [node for node in nodes if node not in present]
        kept = [node for node in present if node in nodes]
        drawn = self._random.sample(kept, min(len(kept), int(count > 1)))
        drawn += self._random.sample(others, min(len(others), count - len(drawn)))
        rest = [node for node in nodes if node not in drawn]
        return drawn + self._random.sample(rest, count - len(drawn))

    async def _cancel(self, broker: Broker) -> None:
        if place := self._place(broker):
            await broker.operations.cancel_move(place)

    async def _drain(self, broker: Broker) -> None:
        node = self._random.choice(sorted(broker.metadata.nodes))
        if node in broker.metadata.draining:
            await broker.operations.end_drain(node)
        else:
            await broker.operations.drain(node)

    async def _balance(self, broker: Broker) -> None:
        await broker.operations.balance()

    async def _transfer(self, broker: Broker) -> None:
        if place := self._place(broker):
            to = self._random.choice(broker.replicas_of(place).nodes)
            await broker.operations.transfer_leader(place, to)

    async def _add_node(self, broker: Broker) -> None:
        if len(self._fleet.nodes) < NODES_MAX and len(broker.metadata.nodes) < NODES_MAX:
            self._fleet.add_node()

    async def _remove_node(self, broker: Broker) -> None:
        held = {node for each in broker.metadata.all_replicas() for node in each.nodes}
        held |= {node for each in broker.metadata.all_replicas() for node, _ in each.leaving}
        empty = sorted(broker.metadata.draining - held - {broker.node_id})
        # One that holds rotten files is no measure of what the others lack.
        if empty and empty[0] in self._fleet.nodes and not self._fleet.nodes[empty[0]].is_rotten:
            self._fleet.removals.add(empty[0])
            await broker.operations.remove_node(empty[0])
            self._fleet.switch_off(empty[0])
