"""Members of a share group (KIP-932): they fetch from leaders, and answer where they have fetched.

Membership is kept by the coordinator and sessions by the leaders, both in memory alone. So they are
lost with every failover, and what was acquired comes back: but nothing that was accepted, and
nothing of a topic that is gone.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from penstock.broker import Acknowledged, Broker
from penstock.errors import (
    FencedMemberEpoch,
    InvalidShareSessionEpoch,
    PenstockError,
    ShareSessionNotFound,
    UnknownMember,
)
from penstock.groups import ShareAssignment, ShareBeat
from penstock.ids import TopicPartition
from tests.simulation.fleet.actors import TOPICS, Actor
from tests.simulation.fleet.queue_books import PartitionBooks, Settled

if TYPE_CHECKING:
    from tests.simulation.fleet.fleet import Fleet

GROUP = "pickers"
_ACCEPT, _RELEASE, _REJECT = 1, 2, 3
_KINDS = {_ACCEPT: "ack", _RELEASE: "nack", _REJECT: "reject"}
_RECORDS_MAX = 20
_DRAIN_INTERVAL_US = 30_000
_CLOSED = -1
_SETTINGS = {"share.record.lock.duration.ms": "1500", "share.auto.offset.reset": "earliest"}

Work = Callable[..., Awaitable[None]]
Node = tuple[int, int]
"""A node, and the how manieth life of its machine."""


class Picked(NamedTuple):
    """A record that the member has acquired, and the books that know of it."""

    place: TopicPartition
    topic_id: UUID
    offset: int
    books: PartitionBooks


class Sharer(Actor):
    """One consumer of the group."""

    def __init__(self, fleet: "Fleet", interval_us: int, settled: Settled, *, number: int) -> None:
        super().__init__(fleet, interval_us)
        self._connection = number
        self.acked = 0
        self._settled = settled
        self._name = f"picker {number}"
        self._epoch = 0
        self._assigned: ShareAssignment = {}
        self._sessions: dict[Node, int] = {}
        """The epoch of the session with each node."""
        self._busy: set[Node] = set()
        """Nodes that have not answered yet: clients have one request on its way to each."""
        self._held: dict[Node, list[Picked]] = {}
        self._failed: dict[Node, list[Picked]] = {}
        """Records whose answer was refused or lost: the session may hold them all the same."""
        self._is_gentle = False

    def hasten(self) -> None:
        """Accept everything, and quickly: nothing else is left to be tried."""
        self._is_gentle = True
        self._interval_us = _DRAIN_INTERVAL_US

    async def act(self, broker: Broker) -> None:
        """Say that it lives, fetch, or answer for what was fetched."""
        draw = self._random.random()
        holders = [node for node, held in self._held.items() if held]
        if draw < 0.25 or not self._assigned:
            self._go_to(broker.coordinator_of(GROUP).node_id, self._beat)
        elif draw < 0.6 or not holders:
            self._go_and_fetch(broker)
        else:
            self._go_with(self._random.choice(holders)[0], self._answer)

    # Membership.

    async def _beat(self, broker: Broker) -> None:
        if GROUP not in broker.metadata.share_groups:
            await broker.share.configure(GROUP, _SETTINGS, [])
        topics = TOPICS if self._epoch == 0 else None
        beat = ShareBeat(self._name, self._epoch, topics, "", "")
        try:
            epoch, assigned = await broker.share.heartbeat(GROUP, beat)
        except (UnknownMember, FencedMemberEpoch):
            self._epoch = 0
            return
        self._epoch = epoch
        if assigned is not None:
            self._assigned = assigned

    # Sessions.

    def _go_with(self, node_id: int, work: Work, *args: Any) -> None:
        node = self._fleet.nodes.get(node_id)
        if node is not None and (node_id, node.machine.life) not in self._busy:
            self._go_to(node_id, self._in_session, (node_id, node.machine.life), work, *args)

    async def _in_session(self, broker: Broker, node: Node, work: Work, *args: Any) -> None:
        if node in self._busy:
            return
        self._busy.add(node)
        try:
            await work(broker, node, *args)
        except (ShareSessionNotFound, InvalidShareSessionEpoch):
            self._sessions.pop(node, None)
        finally:
            self._busy.discard(node)

    def _open(
        self, broker: Broker, node: Node, added: Mapping[TopicPartition, UUID] | None = None
    ) -> None:
        """Open a session, or go on with the one that there is."""
        epoch = self._sessions.get(node, -1) + 1
        self._speak(broker, epoch, added or {})
        self._sessions[node] = epoch

    def _speak(self, broker: Broker, epoch: int, added: Mapping[TopicPartition, UUID]) -> None:
        broker.share.open_session(
            GROUP, self._name, epoch, added=added, forgotten=(), connection=self._connection
        )

    # Records.

    def _go_and_fetch(self, broker: Broker) -> None:
        names = {topic.public_id: topic.name for topic in broker.metadata.topics.values()}
        places = {
            TopicPartition(names[topic_id], number): topic_id
            for topic_id, numbers in sorted(self._assigned.items())
            for number in sorted(numbers)
            if topic_id in names
        }
        if places:
            place = self._random.choice(list(places))
            self._go_with(broker.leader_of(place)[0], self._fetch, {place: places[place]})

    async def _fetch(
        self, broker: Broker, node: Node, added: Mapping[TopicPartition, UUID]
    ) -> None:
        known = self._settled.count
        self._open(broker, node, added)
        found = await broker.share.acquire(
            GROUP,
            self._name,
            records_max=1 + int(_RECORDS_MAX * self._random.random()),
            wait_ms=0 if self._random.random() < 0.7 else 300,
        )
        for partition in found:
            if partition.error is not None or not partition.acquired:
                continue
            for acquired in partition.acquired:
                offset = acquired.record.offset
                books = self._fleet.referee.books_of(acquired.record.value, offset)
                self._settled.check_open(GROUP, books, offset, known)
                picked = Picked(partition.place, partition.topic_id, offset, books)
                self._held.setdefault(node, []).append(picked)

    async def _answer(self, broker: Broker, node: Node) -> None:
        if not self._is_gentle and self._random.random() < 0.1:
            await self._close(broker, node)
            return
        self._open(broker, node)
        held = self._held.get(node, [])
        those = held[: 1 + int(len(held) * self._random.random())]
        self._held[node] = held[len(those) :]
        for each in those:
            await self._acknowledge(broker, node, each)

    def _say(self, broker: Broker, kind: str, picked: Picked) -> None:
        """Note what is said. It names a record: that may have come to the member once more."""
        session = broker.share._sessions.get((GROUP, self._name))
        held = session.held.get(picked.place, {}) if session else {}
        if (delivery := held.get(picked.offset)) is not None:
            picked.books.sent[kind].add((GROUP, delivery, picked.offset))

    async def _close(self, broker: Broker, node: Node) -> None:
        """End the session: what it holds goes to others."""
        for each in (*self._held.pop(node, []), *self._failed.pop(node, [])):
            self._say(broker, "nack", each)
        self._speak(broker, _CLOSED, {})
        self._sessions.pop(node, None)
        await broker.share.close_session(GROUP, self._name)

    async def _acknowledge(self, broker: Broker, node: Node, picked: Picked) -> None:
        draw = 0.0 if self._is_gentle else self._random.random()
        answer = _ACCEPT if draw < 0.7 else _RELEASE if draw < 0.85 else _REJECT
        topic = broker.metadata.topics.get(picked.place.topic)
        if topic is None or topic.public_id != picked.topic_id:
            # Members name a topic by its id: the door refuses one that is gone.
            return
        self._say(broker, _KINDS[answer], picked)
        try:
            said = Acknowledged(picked.place, picked.offset, picked.offset + 1, [answer])
            await broker.share.acknowledge(GROUP, self._name, said)
        except PenstockError:
            self._failed.setdefault(node, []).append(picked)
            return
        if answer == _ACCEPT:
            self.acked += 1
            picked.books.check_acked(GROUP, picked.offset)
            self._settled.note(GROUP, picked.books, picked.offset)
