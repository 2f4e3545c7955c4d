"""Receives of FIFO queues that may be asked for again: `ReceiveRequestAttemptId`.

A consumer whose answer was lost on the way repeats its request with the same id and gets the same
messages, with the same receipt handles and their visibility timeout from the beginning. Without
that, the message groups concerned would stand still until the timeout has passed.

Attempts are kept in the memory of the node that was asked, and nowhere else. To commit them would
make each such receive as slow as a send, and save a wait of one visibility timeout where a node is
lost or a retry goes to another one: it is a new receive there, which breaks no promise, as messages
that are out are not handed out twice. That also bounds what is kept: an attempt is of no use after
its leases have ended, and where too many are kept the oldest are forgotten.

Whether the messages are still out is asked of their partitions. That one of them was deleted or its
timeout changed is noticed here at once, where that was asked of this node. One that was deleted
through another node is out no more; a timeout that was changed there is set anew.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID
from weakref import WeakValueDictionary

import msgspec

from penstock.broker import Message

ATTEMPT_MS_MAX = 5 * 60 * 1_000
ATTEMPTS_MAX = 10_000
ATTEMPTS_BYTES_MAX = 32 * 1024 * 1024
_SWEEP_MS = 1_000


class Attempt(NamedTuple):
    """One request: which queue it was for, its id, and everything else that it said."""

    topic_id: UUID
    id: str
    request: bytes


class _Kept(msgspec.Struct):
    messages: Sequence[Message]
    size_bytes: int
    repeated_until_ms: int
    until_ms: int


class ReceiveAttempts:
    """What was handed out in the last minutes, by attempt."""

    def __init__(self) -> None:
        self._kept: dict[Attempt, _Kept] = {}
        self._by_receipt: dict[tuple[UUID, str], Attempt] = {}
        self._size_bytes = 0
        self._swept_ms = 0
        self._turns: WeakValueDictionary[Attempt, asyncio.Lock] = WeakValueDictionary()

    def turn(self, attempt: Attempt) -> asyncio.Lock:
        """Return what is held while a request is answered.

        A retry may come while the first request waits for messages; it gets those of the first.
        """
        return self._turns.setdefault(attempt, asyncio.Lock())

    def keep(
        self, attempt: Attempt, messages: Sequence[Message], *, now_ms: int, lease_ms: int
    ) -> None:
        """Remember what a request is answered with."""
        self._drop(attempt)
        size_bytes = sum(map(_size_of, messages))
        if not messages or size_bytes > ATTEMPTS_BYTES_MAX:
            return
        repeated_until_ms = now_ms + ATTEMPT_MS_MAX
        until_ms = min(repeated_until_ms, now_ms + lease_ms)
        self._kept[attempt] = _Kept(messages, size_bytes, repeated_until_ms, until_ms)
        self._by_receipt.update({(attempt.topic_id, each.receipt): attempt for each in messages})
        self._size_bytes += size_bytes
        self._make_room(now_ms)

    def find(self, attempt: Attempt, *, now_ms: int) -> Sequence[Message]:
        """Return what a request was answered with; nothing when that is over or unknown."""
        kept = self._kept.get(attempt)
        return kept.messages if kept is not None and now_ms < kept.until_ms else ()

    def renewed(self, attempt: Attempt, *, now_ms: int, lease_ms: int) -> None:
        """The messages of an attempt are out for longer, and it is the youngest."""
        kept = self._kept.pop(attempt, None)
        if kept is not None:
            kept.until_ms = min(kept.repeated_until_ms, now_ms + lease_ms)
            self._kept[attempt] = kept

    def forget(self, topic_id: UUID, receipts: Iterable[str]) -> None:
        """Messages are deleted or changed: the requests that got them cannot be repeated."""
        for receipt in receipts:
            attempt = self._by_receipt.get((topic_id, receipt))
            if attempt is not None:
                self._drop(attempt)

    def _make_room(self, now_ms: int) -> None:
        if now_ms - self._swept_ms >= _SWEEP_MS:
            self._swept_ms = now_ms
            over = [attempt for attempt, kept in self._kept.items() if kept.until_ms <= now_ms]
            for attempt in over:
                self._drop(attempt)
        while len(self._kept) > ATTEMPTS_MAX or self._size_bytes > ATTEMPTS_BYTES_MAX:
            self._drop(next(iter(self._kept)))

    def _drop(self, attempt: Attempt) -> None:
        kept = self._kept.pop(attempt, None)
        if kept is not None:
            self._size_bytes -= kept.size_bytes
            for message in kept.messages:
                del self._by_receipt[attempt.topic_id, message.receipt]


def read_request(parameters: Mapping[str, Any]) -> bytes:
    """Return what a request says beside the queue, whose address may be written in several ways."""
    said = {name: value for name, value in parameters.items() if name != "QueueUrl"}
    return msgspec.json.encode(said, order="deterministic")


def _size_of(message: Message) -> int:
    headers_bytes = sum(len(name) + len(value or b"") for name, value in message.headers)
    return len(message.value or b"") + len(message.key or b"") + headers_bytes
