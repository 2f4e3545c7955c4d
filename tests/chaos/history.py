"""What clients did and were told, kept small enough for hours.

Values are told apart by the number of their writer and their own number. What was acknowledged is
an array of offsets per writer and partition; what was read is an array of values per partition.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

NOT_ACKNOWLEDGED = -1
# The client library knows that a record is stored, but not where: an answer was lost, and that of a
# later record told.
OFFSET_UNKNOWN = -2
NOT_READ = -1
_NUMBER_BITS = 40
# Contradictions beyond this many say nothing new.
_VIOLATIONS_MAX = 100


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class WriterKind:
    """How a writer asks for acknowledgement."""

    name: str
    settings: dict[str, object]
    is_idempotent: bool
    waits_for_all: bool


def encode_value(writer: int, number: int, size_bytes: int) -> bytes:
    """Return a value that names its writer and its number."""
    return f"{writer}.{number}.".encode().ljust(size_bytes, b"x")


def decode_value(value: bytes) -> int:
    """Return the identity of a value, as one integer."""
    writer, number, _ = value.split(b".", 2)
    return identity(int(writer), int(number))


def identity(writer: int, number: int) -> int:
    """Return the identity of a record, as one integer."""
    return writer << _NUMBER_BITS | number


def writer_of(value_id: int) -> int:
    """Return who wrote a value."""
    return value_id >> _NUMBER_BITS


def number_of(value_id: int) -> int:
    """Return which of its writer's values it is."""
    return value_id & ((1 << _NUMBER_BITS) - 1)


class Writing(NamedTuple):
    """A record on its way.

    `floor` is the largest offset of its partition that was acknowledged before it was written,
    whoever wrote there; its own must be larger.
    """

    writer: int
    place: Place
    number: int
    begun_s: float
    floor: int


@dataclass
class Probe:
    """Waits for the first record that is written after a fault and acknowledged."""

    kind: str
    place: Place
    begin_s: float


class Failover(NamedTuple):
    """How long a partition took to acknowledge again after its leader was hit."""

    kind: str
    place: Place
    took_s: float


@dataclass
class History:
    """Everything that happened. Its methods may be called from any thread."""

    kinds: dict[int, WriterKind] = field(default_factory=dict)
    acknowledged: dict[tuple[int, Place], array[int]] = field(default_factory=dict)
    read: dict[Place, array[int]] = field(default_factory=lambda: defaultdict(lambda: array("q")))
    ends: dict[Place, int] = field(default_factory=dict)
    commits: dict[tuple[str, Place], int] = field(default_factory=dict)
    commit_count: int = 0
    gap_max_s: dict[Place, float] = field(default_factory=dict)
    failovers: list[Failover] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    _floors: dict[Place, int] = field(default_factory=dict)
    _probes: list[Probe] = field(default_factory=list)
    _last_ack_s: dict[Place, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def violate(self, what: str) -> None:
        """Note a broken promise."""
        with self._lock:
            if len(self.violations) < _VIOLATIONS_MAX:
                self.violations.append(what)

    # Writing.

    def begin(self, writer: int, place: Place, number: int) -> Writing:
        """A record is handed to the client library."""
        offsets = self.acknowledged.setdefault((writer, place), array("q"))
        assert len(offsets) == number, "records are written in order"
        offsets.append(NOT_ACKNOWLEDGED)
        return Writing(writer, place, number, time.monotonic(), self._floors.get(place, -1))

    def acknowledge(self, writing: Writing, offset: int) -> None:
        """A record was acknowledged, at an offset or at `OFFSET_UNKNOWN`."""
        place = writing.place
        self.acknowledged[writing.writer, place][writing.number] = offset
        if self.kinds[writing.writer].waits_for_all:
            if offset != OFFSET_UNKNOWN and offset <= writing.floor:
                self.violate(
                    f"{writing.writer}.{writing.number} of {place} got offset {offset}, although"
                    f" {writing.floor} was acknowledged before it was written"
                )
            self._note_progress(place, writing.begun_s, offset)

    def _note_progress(self, place: Place, begun_s: float, offset: int) -> None:
        now_s = time.monotonic()
        with self._lock:
            self._floors[place] = max(self._floors.get(place, -1), offset)
            last_s = self._last_ack_s.get(place, now_s)
            self._last_ack_s[place] = now_s
            self.gap_max_s[place] = max(self.gap_max_s.get(place, 0.0), now_s - last_s)
            if self._probes:
                self._settle(place, begun_s, now_s)

    def _settle(self, place: Place, begun_s: float, now_s: float) -> None:
        for probe in [probe for probe in self._probes if probe.place == place]:
            if begun_s >= probe.begin_s:
                self._probes.remove(probe)
                self.failovers.append(Failover(probe.kind, place, now_s - probe.begin_s))

    def probe(self, kind: str, place: Place) -> None:
        """The leader of a partition is hit now."""
        with self._lock:
            if all(probe.place != place for probe in self._probes):
                self._probes.append(Probe(kind, place, time.monotonic()))

    # Reading.

    def note_value(self, place: Place, offset: int, value: bytes, reader: str) -> None:
        """A reader got a value; it must be the one that everybody gets at this offset."""
        value_id = decode_value(value)
        with self._lock:
            values = self.read[place]
            while len(values) <= offset:
                values.append(NOT_READ)
            known = values[offset]
            values[offset] = value_id
        if known not in (NOT_READ, value_id):
            self.violate(
                f"offset {offset} of {place} showed {show(known)} and then {show(value_id)}"
                f" to {reader}"
            )

    def note_end(self, place: Place, end: int, known_before: int) -> None:
        """The high watermark was seen; `known_before` was known when it was asked for."""
        if end < known_before:
            self.violate(f"the high watermark of {place} went from {known_before} to {end}")
        with self._lock:
            self.ends[place] = max(self.ends.get(place, 0), end)

    def end_of(self, place: Place) -> int:
        """Return how far a partition is known to reach: by what anybody was told of it."""
        read = len(self.read.get(place, ()))
        return max(self.ends.get(place, 0), self._floors.get(place, -1) + 1, read)

    # Groups.

    def note_commit(self, group: str, place: Place, offset: int) -> None:
        """A commit was acknowledged."""
        with self._lock:
            self.commit_count += 1
            self.commits[group, place] = max(self.commits.get((group, place), 0), offset)

    def committed(self, group: str, place: Place) -> int:
        """Return the largest offset whose commit was acknowledged."""
        return self.commits.get((group, place), 0)

    def note_committed(self, group: str, place: Place, offset: int, known_before: int) -> None:
        """A committed offset was asked for; `known_before` was acknowledged before that."""
        if offset < known_before:
            self.violate(f"group {group} had committed {known_before} of {place} and then {offset}")


def show(value_id: int) -> str:
    """Return a value's identity for people."""
    return f"{writer_of(value_id)}.{number_of(value_id)}"
