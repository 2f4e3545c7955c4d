"""Members of a consumer group whose partitions the server assigns, as KIP-848 has it.

They come, are led from assignment to assignment, commit positions in what they own, and go: in good
order or without a word. Whoever coordinates tells them nothing that is not final; that a partition
never has two owners is in the books of the group's shard.
"""

from typing import TYPE_CHECKING

from penstock.broker import Broker
from penstock.errors import PenstockError
from penstock.groups import Assignment, ConsumerHeartbeat, Reconciled
from penstock.ids import TopicPartition
from tests.simulation.fleet.actors import TOPICS, Actor
from tests.simulation.referee import require

if TYPE_CHECKING:
    from tests.simulation.fleet.fleet import Fleet

GROUP = "crew"
_LEAVING = -1
_REBALANCE_MS = 3_000
_NAMES = ("ann", "bob", "cid")
_END_US = 500_000
_END_ROUNDS = 120


class CrewMember(Actor):
    """One consumer, over many lives."""

    def __init__(self, fleet: "Fleet", interval_us: int, name: str) -> None:
        super().__init__(fleet, interval_us)
        self.owned: Assignment = {}
        """What it reads."""
        self.wanted: Assignment = {}
        """What it was told to read."""
        self.is_gentle = False
        """Whether it stays, and does as it is told."""
        self.beats = 0
        self._name = name
        self._lives = 0
        self._member_id = ""
        self._epoch = 0
        self._last_beat = 0
        self._is_unsure = False
        """Whether an answer may have been lost: then everything is said again."""

    async def act(self, broker: Broker) -> None:
        """Go to the coordinator with a heartbeat or with a position."""
        if not self.is_gentle and self._random.random() < 0.02:
            # Killed: the group finds out when the session ends.
            self._begin_anew()
        place = self._some_place(broker)
        coordinator = broker.coordinator_of(GROUP).node_id
        if place is not None and self._random.random() < 0.4:
            self._go_to(coordinator, self._commit, place)
        else:
            self._go_to(coordinator, self._beat)

    def _begin_anew(self) -> None:
        self._epoch = 0
        self.owned = self.wanted = {}

    def _some_place(self, broker: Broker) -> TopicPartition | None:
        names = {topic.public_id: topic.name for topic in broker.metadata.topics.values()}
        places = [
            TopicPartition(names[topic], partition)
            for topic, partitions in sorted(self.owned.items())
            for partition in sorted(partitions)
            if topic in names
        ]
        return self._random.choice(places) if places else None

    async def _commit(self, broker: Broker, place: TopicPartition) -> None:
        # A door refuses what the node does not know.
        if self._epoch > 0 and place.topic in broker.metadata.topics:
            await self._fleet.committer.commit(
                broker, GROUP, place, member_id=self._member_id, epoch=self._epoch
            )

    # Heartbeats.

    async def _beat(self, broker: Broker) -> None:
        is_joining = self._epoch == 0
        if is_joining:
            self._lives += 1
            self._member_id = f"{self._name} {self._lives}"
        elif not self.is_gentle and self._random.random() < 0.02:
            self._epoch = _LEAVING
        if self.is_gentle or self._random.random() < 0.7:
            # Otherwise it is still busy with what it has to give up.
            self.owned = self.wanted
        self._last_beat += 1
        number, epoch = self._last_beat, self._epoch
        is_full = is_joining or self._is_unsure
        self._is_unsure = True

        def beat(ticket: int) -> ConsumerHeartbeat:
            return ConsumerHeartbeat(
                ticket=ticket,
                group_id=GROUP,
                member_id=self._member_id,
                candidate_id=self._member_id,
                member_epoch=epoch,
                rebalance_ms=_REBALANCE_MS if is_full else None,
                topics=TOPICS if is_full else None,
                owned=self.owned,
            )

        if epoch == _LEAVING:
            self._begin_anew()
        try:
            answer = await broker.groups.ask(GROUP, beat)
        except PenstockError as error:
            if number == self._last_beat and not error.retryable:
                # The group has gone on without this member.
                self._begin_anew()
            return
        assert isinstance(answer, Reconciled)
        if number == self._last_beat and epoch != _LEAVING:
            self._follow(broker, answer, epoch)

    def _follow(self, broker: Broker, answer: Reconciled, epoch: int) -> None:
        told = answer.member_epoch
        require(told >= epoch, "a member's epoch fell", answer.member_id, epoch, told)
        self._epoch = told
        self._is_unsure = False
        self.beats += 1
        if answer.assignment is not None:
            books = self._fleet.books_of_group(broker, GROUP)
            is_final = books.was_assigned(GROUP, answer.member_id, told, answer.assignment)
            require(is_final, "a member is told what is not final", answer)
            self.wanted = answer.assignment


class Crew:
    """All members of the group."""

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet
        interval_us = int(250_000 * (1 + fleet.random.random()))
        self.members = [CrewMember(fleet, interval_us, name) for name in _NAMES]
        self._has_begun = False

    def begin(self) -> None:
        """Join from now on."""
        if not self._has_begun:
            self._has_begun = True
            for member in self.members:
                member.begin()

    @property
    def beats(self) -> int:
        """How many heartbeats were answered."""
        return sum(member.beats for member in self.members)

    def check_all(self) -> None:
        """Without faults every partition comes to one of them, and to no other."""
        for member in self.members:
            member.is_gentle = True
        self.begin()
        for _ in range(_END_ROUNDS):
            self._fleet.advance(_END_US)
            if not (problem := self._problem()):
                break
        for member in self.members:
            member.is_stopping = True
        require(not problem, "the members of a group do not come to an end", problem)

    def _problem(self) -> str:
        topics = self._fleet.any_broker().metadata.topics
        wanted = sorted(
            (topics[name].public_id, partition)
            for name in TOPICS
            if name in topics
            for partition in range(topics[name].partitions)
        )
        owned = sorted(
            (topic, partition)
            for member in self.members
            for topic, partitions in member.owned.items()
            for partition in partitions
        )
        return "" if owned == wanted else f"{wanted} are to be read, {owned} are"
