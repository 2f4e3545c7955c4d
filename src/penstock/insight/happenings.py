"""Follows the journal of one partition from its beginning and tells what happened to messages.

The journal says what was asked; this keeps the leases as the partition's books do, and tells only
what took effect: an ack whose lease had ended settles nothing. What a journal does not tell any
more, because its beginning is gone, is believed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from penstock.client import JournalEntry

LEASE_ENDED = "lease ended"


@dataclass(frozen=True, slots=True)
class Happening:
    """The same thing happened to the messages of one group from `start` up to `end`.

    Kinds are `created` (the group begins at `start`), `delivered`, `redelivered`, `acked`,
    `returned`, `expired`, `rejected`, `dead_lettered` and `dropped`.
    """

    group: str
    kind: str
    start: int
    end: int
    at_ms: int
    reason: str = ""
    consumer: str = ""


@dataclass(slots=True)
class _Chunk:
    start: int
    end: int
    until_ms: int
    consumer: str


@dataclass(slots=True)
class _Books:
    """One group: chunks of messages that are out, by delivery, and why messages failed last.

    `first` is the first delivery that the journal tells of; they are numbered in their order.
    """

    out: dict[int, list[_Chunk]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    first: int | None = None


class Follower:
    """Turns the entries of one partition, in their order, into happenings."""

    def __init__(self) -> None:
        self._groups: dict[str, _Books] = {}

    def follow(self, entries: Iterable[JournalEntry]) -> Iterator[Happening]:
        """Yield what entries mean."""
        for entry in entries:
            yield from self._one(entry)

    def _one(self, entry: JournalEntry) -> Iterator[Happening]:
        match entry.kind:
            case "created" | "reset" | "deleted":
                self._groups.pop(entry.group, None)
                if entry.kind != "deleted":
                    yield Happening(entry.group, "created", entry.floor, entry.floor, entry.at)
            case "leased":
                yield from self._leased(entry)
            case "acked":
                yield from self._acked(entry)
            case "extended":
                self._extend(entry)
            case "expired":
                yield from self._expired(entry)
            case "returned" | "rejected":
                yield from self._failed(entry)
            case "dead_lettered":
                yield from self._dead(entry)

    def _books(self, group: str) -> _Books:
        return self._groups.setdefault(group, _Books())

    def _leased(self, entry: JournalEntry) -> Iterator[Happening]:
        books = self._books(entry.group)
        for start, end in entry.dropped:
            yield Happening(entry.group, "dropped", start, end, entry.at)
        for delivery, start, end in entry.runs:
            books.first = delivery if books.first is None else books.first
            chunk = _Chunk(start, end, entry.until, entry.consumer)
            books.out.setdefault(delivery, []).append(chunk)
            again = sorted(each for each in books.failed if start <= each < end)
            for is_again, first, last in _split(start, end, again):
                kind = "redelivered" if is_again else "delivered"
                yield Happening(entry.group, kind, first, last, entry.at, consumer=entry.consumer)

    def _acked(self, entry: JournalEntry) -> Iterator[Happening]:
        books = self._books(entry.group)
        for delivery, start, end in entry.runs:
            for chunk in self._take(books, delivery, start, end):
                for offset in [each for each in books.failed if chunk.start <= each < chunk.end]:
                    del books.failed[offset]
                yield Happening(
                    entry.group, "acked", chunk.start, chunk.end, entry.at, "", chunk.consumer
                )

    def _extend(self, entry: JournalEntry) -> None:
        books = self._books(entry.group)
        for delivery, start, end in entry.runs:
            for chunk in self._take(books, delivery, start, end):
                chunk.until_ms = entry.until
                books.out.setdefault(delivery, []).append(chunk)

    def _expired(self, entry: JournalEntry) -> Iterator[Happening]:
        books = self._books(entry.group)
        for delivery in entry.deliveries:
            chunks = books.out.pop(delivery, [])
            books.out[delivery] = [chunk for chunk in chunks if chunk.until_ms > entry.at]
            for chunk in chunks:
                if chunk.until_ms <= entry.at:
                    offsets = range(chunk.start, chunk.end)
                    books.failed |= dict.fromkeys(offsets, LEASE_ENDED)
                    yield Happening(
                        entry.group, "expired", chunk.start, chunk.end, entry.at, LEASE_ENDED,
                        chunk.consumer,
                    )  # fmt: skip
            if not books.out[delivery]:
                del books.out[delivery]

    def _failed(self, entry: JournalEntry) -> Iterator[Happening]:
        books = self._books(entry.group)
        for delivery, offset, reason in entry.failures:
            for chunk in self._take(books, delivery, offset, offset + 1):
                books.failed[offset] = reason
                yield Happening(
                    entry.group, entry.kind, offset, offset + 1, entry.at, reason, chunk.consumer
                )

    def _dead(self, entry: JournalEntry) -> Iterator[Happening]:
        books = self._books(entry.group)
        for _, start, end in entry.runs:
            offsets = range(start, end)
            for reason, alike in groupby(offsets, lambda each: books.failed.pop(each, "")):
                told = list(alike)
                yield Happening(
                    entry.group, "dead_lettered", told[0], told[-1] + 1, entry.at, reason
                )

    def _take(self, books: _Books, delivery: int, start: int, end: int) -> list[_Chunk]:
        """Take messages out of a delivery; what is not out any more is left out.

        A delivery that began before the journal does is believed.
        """
        if delivery not in books.out:
            is_older = books.first is None or delivery < books.first
            return [_Chunk(start, end, 0, "")] if is_older else []
        taken: list[_Chunk] = []
        left: list[_Chunk] = []
        for chunk in books.out[delivery]:
            low, high = max(start, chunk.start), min(end, chunk.end)
            if low >= high:
                left.append(chunk)
                continue
            taken.append(_Chunk(low, high, chunk.until_ms, chunk.consumer))
            for first, last in ((chunk.start, low), (high, chunk.end)):
                if first < last:
                    left.append(_Chunk(first, last, chunk.until_ms, chunk.consumer))
        books.out[delivery] = left
        if not left:
            del books.out[delivery]
        return taken


def _split(start: int, end: int, marked: list[int]) -> Iterator[tuple[bool, int, int]]:
    """Yield runs of offsets that are marked, and of those that are not, in order."""
    place = start
    for offset in marked:
        if place < offset:
            yield False, place, offset
        yield True, offset, offset + 1
        place = offset + 1
    if place < end:
        yield False, place, end
