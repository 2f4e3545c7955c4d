"""Clients that read all the time and compare what they get with what others got."""

import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.chaos.history import History, Place

_POLL_S = 0.2
_ASK_TIMEOUT_S = 5.0
_COMMIT_INTERVAL_S = 1.0
_ROUND_S = 0.5
_MEMBER_LIFE_S = (10.0, 40.0)
# How far back a reader begins that comes and goes.
_LOOK_BACK = 2_000

_QUIET = {
    "log_level": 0,
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "reconnect.backoff.max.ms": 1_000,
    "socket.timeout.ms": 5_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    "fetch.wait.max.ms": 200,
}


def new_consumer(bootstrap: str, group: str, **settings: object) -> Consumer:
    """Return a consumer that neither commits nor jumps by itself."""
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, **_QUIET, **dotted})


class Reader:
    """Does rounds of work in a thread of its own until it is stopped."""

    def __init__(self, bootstrap: str, places: list[Place], history: History, name: str) -> None:
        self._bootstrap = bootstrap
        self._places = places
        self._history = history
        self._name = name
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End soon."""
        self._stopping.set()

    def join(self, deadline_s: float) -> None:
        """Wait for the end."""
        self._thread.join(deadline_s)
        if self._thread.is_alive():
            self._history.violate(f"{self._name} does not end")

    def _run(self) -> None:
        try:
            self._read()
        except Exception as error:
            self._history.violate(f"{self._name} ended: {error!r}")
            raise

    def _read(self) -> None:
        raise NotImplementedError

    def _note(self, message: Message | None) -> Message | None:
        """Record a message; an offset that is out of range means that the log went back."""
        if message is None:
            return None
        error = message.error()
        if error is None:
            place = Place(message.topic(), message.partition())
            self._history.note_value(place, message.offset(), message.value(), self._name)
            return message
        if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            self._history.violate(f"{self._name} was told: {error.str()}")
        return None


class Follower(Reader):
    """Reads every partition from its start and stays at its end; offsets must follow each other."""

    def _read(self) -> None:
        consumer = new_consumer(self._bootstrap, self._name)
        consumer.assign([TopicPartition(*place, 0) for place in self._places])
        expected = dict.fromkeys(self._places, 0)
        while not self._stopping.is_set():
            message = self._note(consumer.poll(_POLL_S))
            if message is None:
                continue
            place = Place(message.topic(), message.partition())
            if message.offset() != expected[place]:
                self._history.violate(
                    f"{self._name} got offset {message.offset()} of {place} after"
                    f" {expected[place] - 1}"
                )
            expected[place] = message.offset() + 1
        consumer.close()


class Visitor(Reader):
    """Comes, reads a stretch of what others have read before, and goes."""

    def __init__(
        self, bootstrap: str, places: list[Place], history: History, name: str, seed: int
    ) -> None:
        super().__init__(bootstrap, places, history, name)
        self._random = random.Random(seed)

    def _read(self) -> None:
        while not self._stopping.wait(_ROUND_S):
            place = self._random.choice(self._places)
            end = len(self._history.read[place])
            begin = self._random.randrange(max(0, end - _LOOK_BACK), end + 1)
            consumer = new_consumer(self._bootstrap, self._name)
            consumer.assign([TopicPartition(*place, begin)])
            leave_s = time.monotonic() + self._random.uniform(1.0, 4.0)
            while time.monotonic() < leave_s and not self._stopping.is_set():
                self._note(consumer.poll(_POLL_S))
            consumer.close()


class Watcher(Reader):
    """Asks for high watermarks and committed offsets again and again."""

    def __init__(
        self, bootstrap: str, places: list[Place], history: History, name: str, group: str
    ) -> None:
        super().__init__(bootstrap, places, history, name)
        self._group = group

    def _read(self) -> None:
        consumer = new_consumer(self._bootstrap, self._group)
        while not self._stopping.wait(_ROUND_S):
            for place in self._places:
                self._ask_end(consumer, place)
            self._ask_committed(consumer)
        consumer.close()

    def _ask_end(self, consumer: Consumer, place: Place) -> None:
        known_before = self._history.end_of(place)
        with suppress(KafkaException):
            _, end = consumer.get_watermark_offsets(
                TopicPartition(*place), timeout=_ASK_TIMEOUT_S, cached=False
            )
            if end >= 0:
                self._history.note_end(place, end, known_before)

    def _ask_committed(self, consumer: Consumer) -> None:
        known = {place: self._history.committed(self._group, place) for place in self._places}
        with suppress(KafkaException):
            asked = [TopicPartition(*place) for place in self._places]
            for found in consumer.committed(asked, timeout=_ASK_TIMEOUT_S):
                if found.error is None:
                    place = Place(found.topic, found.partition)
                    offset = max(found.offset, 0)
                    self._history.note_committed(self._group, place, offset, known[place])


@dataclass(frozen=True)
class Group:
    """A consumer group, and the protocol that its members speak."""

    name: str
    settings: dict[str, object]


GROUPS = (
    Group(
        "chaos-group",
        {"session_timeout_ms": 10_000, "partition_assignment_strategy": "cooperative-sticky"},
    ),
    Group("chaos-incremental-group", {"group_protocol": "consumer"}),
)


class Member(Reader):
    """A member of a group that commits what it has read, and is replaced now and then."""

    def __init__(
        self, bootstrap: str, places: list[Place], history: History, group: Group, seed: int
    ) -> None:
        super().__init__(bootstrap, places, history, f"member {seed} of {group.name}")
        self._group = group
        self._random = random.Random(seed)

    def _read(self) -> None:
        while not self._stopping.is_set():
            self._live_once(time.monotonic() + self._random.uniform(*_MEMBER_LIFE_S))

    def _live_once(self, end_s: float) -> None:
        consumer = new_consumer(
            self._bootstrap,
            self._group.name,
            auto_offset_reset="earliest",
            **self._group.settings,
        )
        consumer.subscribe(sorted({place.topic for place in self._places}))
        commit_s = time.monotonic() + _COMMIT_INTERVAL_S
        while time.monotonic() < end_s and not self._stopping.is_set():
            self._note(consumer.poll(_POLL_S))
            if time.monotonic() >= commit_s:
                self._commit(consumer)
                commit_s = time.monotonic() + _COMMIT_INTERVAL_S
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        with suppress(KafkaException):
            for done in consumer.commit(asynchronous=False) or ():
                if done.error is None and done.offset >= 0:
                    place = Place(done.topic, done.partition)
                    self._history.note_commit(self._group.name, place, done.offset)
