"""Dead letters as values: what they hold, which are meant, what was done with them.

A dead letter is a record with notes in its headers, which the burial writes and this reads.
"""

from typing import Self

import msgspec

from penstock.broker.burial import (
    ATTEMPTS,
    DLQ_PREFIX,
    ERROR,
    GROUP,
    REASON,
    REDRIVEN,
    SOURCE_ID,
    SOURCE_OFFSET,
    SOURCE_PARTITION,
    SOURCE_TIMESTAMP,
    SOURCE_TOPIC,
)
from penstock.ids import TopicPartition
from penstock.record import IDEMPOTENCY_KEY, Record

Headers = tuple[tuple[str, bytes | None], ...]


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that no consumer of its group could handle."""

    id: str
    topic: str
    """The topic of dead letters that it is in, as are its partition and offset."""
    partition: int
    log: int
    """The number of the partition's log; a later topic of the same name has others."""
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    """Those that the message had, without the notes about its end."""
    source_topic: str
    source_partition: int
    source_offset: int
    source_id: str
    source_timestamp: int
    group: str
    attempts: int
    reason: str
    error: str
    redriven: int


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are meant; what is not given does not matter."""

    group: str | None = None
    reason: str | None = None
    """Part of the reason or of the last error."""
    key: bytes | None = None
    ids: frozenset[str] | None = None
    source_topic: str | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """True when a dead letter is meant."""
        return (
            (self.group is None or letter.group == self.group)
            and (self.key is None or letter.key == self.key)
            and (self.ids is None or letter.id in self.ids)
            and (self.source_topic is None or letter.source_topic == self.source_topic)
            and (self.reason is None or self.reason in letter.reason or self.reason in letter.error)
        )

    def from_topic(self, topic: str) -> Self:
        """Return the filter for what came from a topic."""
        return msgspec.structs.replace(self, source_topic=topic)

    def in_grave(self, mark: str) -> Self:
        """Return the filter for one topic of dead letters, by ids as they are there."""
        if self.ids is None:
            return self
        parted = (each.partition("@") for each in self.ids)
        bare = frozenset(bare for bare, at, name in parted if at + name == mark)
        return msgspec.structs.replace(self, ids=bare)

    def unknown(self, found: set[str]) -> list[str]:
        """Return the ids that are asked for and were not found."""
        return sorted((self.ids or frozenset()) - found)


EVERYTHING = DeadLetterFilter()


class Redrive(msgspec.Struct, frozen=True):
    """What a redrive did, or would do: moved, held back by the guard against loops, failed."""

    moved: int
    skipped: int
    failed: int
    errors: list[str] = []
    unknown: list[str] = []
    """Ids that were given and that no dead letter has which is meant."""


class Purge(msgspec.Struct, frozen=True):
    """What a purge did; `unknown` are ids that were given and that none has which is meant."""

    purged: int
    unknown: list[str] = []


def read_letter(place: TopicPartition, record: Record, *, log: int) -> DeadLetter | None:
    """Read the notes of a dead letter; None for a record that somebody else put there."""
    notes = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
    try:
        return DeadLetter(
            id=f"{place.partition}-{record.offset}",
            topic=place.topic,
            partition=place.partition,
            log=log,
            offset=record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=tuple(
                (name, value)
                for name, value in record.headers
                if not name.startswith(DLQ_PREFIX) and name not in (REDRIVEN, IDEMPOTENCY_KEY)
            ),
            source_topic=notes[SOURCE_TOPIC],
            source_partition=int(notes[SOURCE_PARTITION]),
            source_offset=int(notes[SOURCE_OFFSET]),
            source_id=notes[SOURCE_ID],
            source_timestamp=int(notes[SOURCE_TIMESTAMP]),
            group=notes[GROUP],
            attempts=int(notes[ATTEMPTS]),
            reason=notes[REASON],
            error=notes[ERROR],
            redriven=int(notes.get(REDRIVEN, "0")),
        )
    except (KeyError, ValueError):
        return None


def notes_of(letter: DeadLetter) -> Headers:
    """Return the headers that keep the history of a dead letter."""
    notes = {
        SOURCE_ID: letter.source_id,
        SOURCE_TOPIC: letter.source_topic,
        SOURCE_PARTITION: letter.source_partition,
        SOURCE_OFFSET: letter.source_offset,
        SOURCE_TIMESTAMP: letter.source_timestamp,
        GROUP: letter.group,
        ATTEMPTS: letter.attempts,
        REASON: letter.reason,
        ERROR: letter.error,
        REDRIVEN: letter.redriven,
    }
    return tuple((name, str(value).encode()) for name, value in notes.items())
