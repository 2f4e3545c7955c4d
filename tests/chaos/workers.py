"""Consumers of a queue group over HTTP: they receive, settle, give back, or say nothing.

What a worker was told is settled must not come to anyone who asks after that, whichever node is
asked. And in the end everything that was written has come to a worker that could settle it.
"""

from __future__ import annotations

import random
import threading
import time
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence

from penstock.client import Client, LeasedMessage
from penstock.errors import PenstockError
from tests.chaos.history import History, Place
from tests.chaos.readers import Reader

GROUP = "chaos-workers"
SETTINGS = {"delivery_attempts_max": "0", "delivery_backoff_max_ms": "1000"}
"""Of topics that workers receive from: no message is given up."""

_RECEIVE_MAX = 100
_LEASE_S = 5.0
_WAIT_S = 0.5
_ANSWER_S = 10.0
_PAUSE_S = 0.1
_NEVER_S = float("inf")


class Ledger:
    """What workers were given and told. Its methods may be called from any thread."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._settled_s: defaultdict[Place, array[float]] = defaultdict(lambda: array("d"))
        self._unsure: defaultdict[Place, set[int]] = defaultdict(set)
        self._lock = threading.Lock()
        self.deliveries = 0
        self.settled = 0

    def note_delivered(self, place: Place, offset: int, asked_s: float) -> None:
        """A message has come to one who asked at that time."""
        with self._lock:
            self.deliveries += 1
            was_settled = self._times(place, offset)[offset] < asked_s
        if was_settled:
            self._history.violate(f"offset {offset} of {place} was settled and came back")

    def note_sent(self, place: Place, offset: int) -> None:
        """An ack is on its way, and may take effect whatever comes of the answer."""
        with self._lock:
            self._unsure[place].add(offset)

    def note_settled(self, place: Place, offset: int) -> None:
        """An ack was accepted."""
        with self._lock:
            times = self._times(place, offset)
            self.settled += times[offset] == _NEVER_S
            times[offset] = min(times[offset], time.monotonic())
            self._unsure[place].discard(offset)

    def open_below(self, place: Place, end: int) -> list[int]:
        """Return offsets for which no ack was ever sent."""
        with self._lock:
            times = self._times(place, end)
            unsure = self._unsure[place]
            return [n for n in range(end) if times[n] == _NEVER_S and n not in unsure]

    def _times(self, place: Place, offset: int) -> array[float]:
        times = self._settled_s[place]
        if len(times) <= offset:
            times.extend([_NEVER_S] * (offset + 1 - len(times)))
        return times


class Worker(Reader):
    """Receives through any node, and answers through any other."""

    def __init__(
        self, urls: Sequence[str], places: list[Place], ledger: Ledger, history: History, name: str
    ) -> None:
        super().__init__("", places, history, name)
        self._ledger = ledger
        # Errors are answered by asking another node, and not by asking the same one again.
        self._clients = [Client(url, wait_s=_ANSWER_S, retry_s=0.0) for url in urls]
        self._random = random.Random(name)
        self._is_gentle = False

    def hasten(self) -> None:
        """Settle whatever comes from now on."""
        self._is_gentle = True

    def _read(self) -> None:
        topics = sorted({place.topic for place in self._places})
        while not self._stopping.is_set():
            try:
                self._answer(self._receive(topics))
            except PenstockError:
                time.sleep(_PAUSE_S)
        for client in self._clients:
            client.close()

    def _receive(self, topics: list[str]) -> list[LeasedMessage]:
        client = self._random.choice(self._clients)
        asked_s = time.monotonic()
        messages = client.receive(
            topics, GROUP, wait_s=_WAIT_S, count_max=_RECEIVE_MAX, lease_s=_LEASE_S,
            consumer=self._name,
        )  # fmt: skip
        for place, message in _placed(messages):
            self._history.note_value(place, message.offset, message.value or b"", self._name)
            self._ledger.note_delivered(place, message.offset, asked_s)
        return messages

    def _answer(self, messages: list[LeasedMessage]) -> None:
        client = self._random.choice(self._clients)
        choice = 0.0 if self._is_gentle else self._random.random()
        if choice < 0.8:
            self._ack(client, messages)
        elif choice < 0.9:
            client.nack_batch(messages)
        # And otherwise their leases end.

    def _ack(self, client: Client, messages: list[LeasedMessage]) -> None:
        for place, message in _placed(messages):
            self._ledger.note_sent(place, message.offset)
        refused = {refusal.message.receipt for refusal in client.ack_batch(messages)}
        for place, message in _placed(messages):
            if message.receipt not in refused:
                self._ledger.note_settled(place, message.offset)


def _placed(messages: Sequence[LeasedMessage]) -> Iterator[tuple[Place, LeasedMessage]]:
    for message in messages:
        yield Place(message.topic, message.partition), message


def unsettled_in(url: str, topic: str) -> int:
    """Return how many messages of a topic the workers have not settled."""
    with Client(url, wait_s=_ANSWER_S) as client:
        return client.groups.get(topic, GROUP).totals.unsettled
