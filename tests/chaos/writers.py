"""Clients that write at a steady pace and never give up."""

import threading
import time
import traceback
from dataclasses import dataclass
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.history import OFFSET_UNKNOWN, History, Place, WriterKind, Writing, encode_value

# A writer waits instead of queueing more than this much.
_UNACKNOWLEDGED_MAX = 2_000
# The client library repeats a write for as long as the whole run may take.
_GIVE_UP_MS = 86_400_000

_PATIENT = {
    "log_level": 0,
    "linger.ms": 2,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
    "reconnect.backoff.max.ms": 1_000,
    "socket.timeout.ms": 5_000,
    "request.timeout.ms": 5_000,
    "message.timeout.ms": _GIVE_UP_MS,
    "topic.metadata.refresh.interval.ms": 5_000,
}

IDEMPOTENT = WriterKind(
    "idempotent", {"enable.idempotence": True}, is_idempotent=True, waits_for_all=True
)
PLAIN_ALL = WriterKind(
    "plain acks=all",
    {"acks": "all"},
    is_idempotent=False,
    waits_for_all=True,
)
PLAIN_ONE = WriterKind(
    "plain acks=1",
    {"acks": 1},
    is_idempotent=False,
    waits_for_all=False,
)


@dataclass(frozen=True)
class Load:
    """How much is written: each writer sends one record to every partition, round after round."""

    name: str
    interval_s: float
    value_bytes: int
    kinds: tuple[WriterKind, ...]


_KINDS = (IDEMPOTENT, IDEMPOTENT, PLAIN_ALL, PLAIN_ONE)
LOADS = {
    load.name: load
    for load in (
        Load("steady", interval_s=0.1, value_bytes=120, kinds=_KINDS),
        Load("heavy", interval_s=0.01, value_bytes=1_200, kinds=_KINDS * 2),
    )
}


@dataclass(frozen=True)
class Assignment:
    """Who writes where, how much, and who takes note of it."""

    number: int
    load: Load
    places: list[Place]
    history: History

    @property
    def kind(self) -> WriterKind:
        """How the writer asks for acknowledgement."""
        return self.load.kinds[self.number]


class Writer:
    """A producer with a thread of its own that writes to every partition in turn."""

    def __init__(self, bootstrap: str, assignment: Assignment) -> None:
        self._number = number = assignment.number
        self._kind = kind = assignment.kind
        self._load = assignment.load
        self._places = assignment.places
        self._history = assignment.history
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                **_PATIENT,
                **kind.settings,
                "error_cb": self._failed,
            }
        )
        self._unacknowledged = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer {number}", daemon=True)
        self._history.kinds[number] = kind

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write nothing new."""
        self._stopping.set()

    def finish(self, deadline_s: float) -> int:
        """Wait until everything is acknowledged; return how much is not."""
        self._thread.join(deadline_s)
        return self._producer.flush(deadline_s)

    def _run(self) -> None:
        try:
            self._write_rounds()
        except BaseException as error:
            self._history.violate(f"writer {self._number} ended: {error!r}")
            raise

    def _write_rounds(self) -> None:
        number = 0
        next_s = time.monotonic()
        while not self._stopping.is_set():
            if self._unacknowledged < _UNACKNOWLEDGED_MAX:
                for place in self._places:
                    self._write(place, number)
                number += 1
            next_s = max(next_s + self._load.interval_s, time.monotonic())
            while (left_s := next_s - time.monotonic()) > 0:
                self._producer.poll(left_s)

    def _write(self, place: Place, number: int) -> None:
        writing = self._history.begin(self._number, place, number)
        self._unacknowledged += 1
        self._producer.produce(
            place.topic,
            encode_value(self._number, number, self._load.value_bytes),
            partition=place.partition,
            on_delivery=partial(self._delivered, writing),
        )

    def _delivered(self, writing: Writing, error: KafkaError | None, message: Message) -> None:
        try:
            self._unacknowledged -= 1
            if error is None:
                offset = message.offset()
                known = OFFSET_UNKNOWN if offset is None else offset
                self._history.acknowledge(writing, known)
            else:
                self._history.violate(
                    f"{writing.writer}.{writing.number} of {writing.place} was given up: {error}"
                )
        except Exception:  # noqa: BLE001 (it ends the run as a violation)
            # The client library does not carry errors of callbacks through unharmed.
            self._history.violate(f"a callback failed: {traceback.format_exc()}")

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self._history.violate(
                f"writer {self._number} ({self._kind.name}) cannot go on: {error}"
            )
