"""Compares what clients were told with what the cluster holds in the end.

Plain functions over the history and the final records of each partition, in the order of their
offsets. Each yields sentences about broken promises; none means that all were kept.

Client libraries that are not idempotent may repeat a record and may let a later one overtake it, so
the order of their records is checked where it is promised: a record that is written after another
was acknowledged has the larger offset. The history checks that while it is recorded.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.chaos.history import (
    NOT_ACKNOWLEDGED,
    NOT_READ,
    OFFSET_UNKNOWN,
    History,
    Place,
    WriterKind,
    identity,
    number_of,
    show,
    writer_of,
)


@dataclass
class Findings:
    """What the checker found out."""

    violations: list[str] = field(default_factory=list)
    acknowledged: Counter[str] = field(default_factory=Counter)
    duplicates: Counter[str] = field(default_factory=Counter)
    # Only writers with acks=1 may lose records that were acknowledged.
    lost: Counter[str] = field(default_factory=Counter)


def check(history: History, final: dict[Place, array[int]]) -> Findings:
    """Check all promises about records; `final` holds value identities by offset."""
    findings = Findings(violations=list(history.violations))
    for place, values in final.items():
        findings.violations += check_readings(place, history.read.get(place), values)
        findings.violations += check_ends(place, history.ends.get(place, 0), values)
        positions = first_positions(values)
        for (writer, written_to), offsets in history.acknowledged.items():
            if written_to == place:
                kind = history.kinds[writer]
                _check_writer(findings, place, writer, kind, offsets, values, positions)
    return findings


def check_readings(place: Place, read: array[int] | None, final: array[int]) -> Iterator[str]:
    """What any reader ever got is what the offset holds."""
    for offset, value_id in enumerate(read or ()):
        if value_id == NOT_READ:
            continue
        if offset >= len(final):
            yield f"offset {offset} of {place} was read and is gone; the end is {len(final)}"
        elif final[offset] != value_id:
            yield (
                f"offset {offset} of {place} was read as {show(value_id)} and holds"
                f" {show(final[offset])}"
            )


def check_ends(place: Place, end: int, final: array[int]) -> Iterator[str]:
    """The log reaches as far as any client has seen it reach."""
    if len(final) < end:
        yield f"the high watermark of {place} was {end} and is {len(final)}"


def first_positions(values: array[int]) -> dict[int, int]:
    """Return the first offset of each value."""
    positions: dict[int, int] = {}
    for offset, value_id in enumerate(values):
        positions.setdefault(value_id, offset)
    return positions


def _check_writer(
    findings: Findings,
    place: Place,
    writer: int,
    kind: WriterKind,
    offsets: array[int],
    values: array[int],
    positions: dict[int, int],
) -> None:
    acknowledged = [n for n, offset in enumerate(offsets) if offset != NOT_ACKNOWLEDGED]
    lost = [n for n in acknowledged if identity(writer, n) not in positions]
    findings.acknowledged[kind.name] += len(acknowledged)
    if len(acknowledged) < len(offsets):
        missing = len(offsets) - len(acknowledged)
        findings.violations.append(
            f"{missing} records of writer {writer} for {place} were never acknowledged"
        )
    findings.duplicates[kind.name] += _duplicates(writer, values)
    findings.lost[kind.name] += len(lost)
    if kind.waits_for_all:
        findings.violations += [
            f"{writer}.{n} of {place} was acknowledged and is lost" for n in lost
        ]
        findings.violations += check_offsets(place, writer, offsets, values)
    if kind.is_idempotent:
        findings.violations += check_once(place, writer, values)


def check_offsets(
    place: Place, writer: int, offsets: array[int], values: array[int]
) -> Iterator[str]:
    """A record lies at the offset that its acknowledgement named."""
    for number, offset in enumerate(offsets):
        if offset in (NOT_ACKNOWLEDGED, OFFSET_UNKNOWN) or offset >= len(values):
            continue
        if values[offset] != identity(writer, number):
            yield (
                f"{writer}.{number} was acknowledged at offset {offset} of {place}, which holds"
                f" {show(values[offset])}"
            )


def _duplicates(writer: int, values: array[int]) -> int:
    own = [value_id for value_id in values if writer_of(value_id) == writer]
    return len(own) - len(set(own))


def check_once(place: Place, writer: int, values: array[int]) -> Iterator[str]:
    """An idempotent writer's records are there once each, in the order in which it wrote them."""
    last = -1
    for offset, value_id in enumerate(values):
        if writer_of(value_id) != writer:
            continue
        if number_of(value_id) <= last:
            yield f"{show(value_id)} follows {writer}.{last} at offset {offset} of {place}"
        last = max(last, number_of(value_id))


def check_replicas(place: Place, copies: dict[int, bytes]) -> Iterator[str]:
    """All replicas hold the same bytes up to the high watermark."""
    nodes = sorted(copies)
    for node in nodes[1:]:
        if copies[node] != copies[nodes[0]]:
            yield (
                f"{place} differs: node {nodes[0]} has {len(copies[nodes[0]])} bytes below the high"
                f" watermark, node {node} has {len(copies[node])}"
            )
