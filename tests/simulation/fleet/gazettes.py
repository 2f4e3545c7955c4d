"""One who publishes what is soon old: a topic whose beginning goes while its replicas move.

Whoever begins to replicate it finds no entries to be filled with, and copies a snapshot.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.broker import Broker, NewMessage, NewTopic, Published
from penstock.errors import TopicExists
from tests.simulation.fleet.actors import Actor, padding
from tests.simulation.fleet.referee import content_of, value_of
from tests.simulation.referee import require

if TYPE_CHECKING:
    from tests.simulation.fleet.fleet import Fleet

TOPIC = "news"
_SETTINGS = {"retention.bytes": "4000", "segment.bytes": "1500"}


class Gazette(Actor):
    """Publishes to a topic that gives its oldest segments up."""

    def __init__(self, fleet: "Fleet", interval_us: int) -> None:
        super().__init__(fleet, interval_us)
        self._acked: dict[bytes, int] = {}
        """The offsets of values that were confirmed."""

    async def act(self, broker: Broker) -> None:
        """Publish some news."""
        nodes = len(broker.metadata.nodes)
        if TOPIC not in broker.metadata.topics:
            if self._fleet.is_worth_creating(nodes):
                factor = self._fleet.draw_factor(nodes)
                with suppress(TopicExists):
                    await broker.topics.create(NewTopic(TOPIC, 1, factor, _SETTINGS))
            return
        values = [value_of(self._fleet.next_number()) for _ in range(3)]
        headers = padding(self._fleet)
        messages = [NewMessage(value=value, headers=headers) for value in values]
        answers = await broker.messages.publish(TOPIC, messages)
        for value, answer in zip(values, answers, strict=True):
            if isinstance(answer, Published):
                assert answer.offset is not None
                self._acked[value] = answer.offset

    def check_all(self) -> None:
        """What was acknowledged is in every replica, from where this begins."""
        topic = self._fleet.any_broker().metadata.topics.get(TOPIC)
        require(topic is not None or not self._acked, "the news are gone")
        for log in () if topic is None else self._fleet.logs_of(topic.replicas[0]):
            content = content_of(log)
            for value, offset in self._acked.items():
                wanted = int(offset >= log.log.first_offset)
                require(content.count(value) == wanted, "news are not there once", value, offset)
