"""Members of consumer groups that read in the background and remember what happened to them."""

import threading
import time
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.kafka_clients import consumer_config, new_producer
from tests.processes import NodeProcess

_POLL_S = 0.02
_STOP_WAIT_S = 120.0


class Reading(NamedTuple):
    """A message as a member got it."""

    partition: int
    offset: int
    value: bytes
    read_s: float


class Member:
    """A consumer with a thread of its own; it commits by itself, also before it gives up."""

    def __init__(
        self, node: NodeProcess, group: str, topics: list[str], **settings: object
    ) -> None:
        self._topics = topics
        self._consumer = Consumer(consumer_config(node, group, **settings))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None
        self.readings: list[Reading] = []
        self.owned: set[tuple[str, int]] = set()
        self.revoked: list[tuple[str, int]] = []
        self.assignments = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    @property
    def partitions(self) -> set[int]:
        """The partitions that the member owns now, for tests with one topic."""
        return {partition for _, partition in self.owned}

    def leave(self) -> None:
        """Commit, leave the group and wait for the thread; what went wrong in it is raised."""
        self._stopping.set()
        self._thread.join(_STOP_WAIT_S)
        assert not self._thread.is_alive(), "a member does not stop"
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._consumer.subscribe(
                self._topics,
                on_assign=self._take,
                on_revoke=self._give_up,
                on_lost=self._give_up,
            )
            while not self._stopping.is_set():
                self._note(self._consumer.poll(_POLL_S))
            self._consumer.close()
        except BaseException as error:  # noqa: BLE001 (it is raised by leave)
            self._failure = error

    def _note(self, message: Message | None) -> None:
        if message is None:
            return
        error = message.error()
        if error is None:
            reading = Reading(
                message.partition(), message.offset(), message.value(), time.monotonic()
            )
            self.readings.append(reading)
        elif not error.retriable() and error.fatal():
            raise KafkaException(error)

    def _take(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.assignments += 1
        self.owned |= {(place.topic, place.partition) for place in places}

    def _give_up(self, _: Consumer, places: list[TopicPartition]) -> None:
        given_up = [(place.topic, place.partition) for place in places]
        if not self._stopping.is_set():
            self.revoked += given_up
        self.owned -= set(given_up)


class Publisher:
    """Publishes to every partition at a steady pace until it is stopped."""

    def __init__(
        self, node: NodeProcess, topic: str, *, partitions: int, interval_s: float
    ) -> None:
        self._producer = new_producer(node, linger_ms=0)
        self._topic = topic
        self._partitions = partitions
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.rounds_s: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def gap_max_s(self) -> float:
        """The longest time that the publisher itself let pass between two messages."""
        return gap_max_s(self.rounds_s)

    def stop(self) -> int:
        """Stop and return how many messages each partition got."""
        self._stopping.set()
        self._thread.join(_STOP_WAIT_S)
        assert self._producer.flush(_STOP_WAIT_S) == 0
        return len(self.rounds_s)

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            self.rounds_s.append(time.monotonic())
            for partition in range(self._partitions):
                self._producer.produce(self._topic, b"x", partition=partition)
            self._producer.poll(0)


def gap_max_s(times_s: list[float]) -> float:
    """Return the longest time between neighbours."""
    return max((after - before for before, after in pairwise(times_s)), default=0.0)
