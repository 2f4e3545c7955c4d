"""Sets of partitions, kept by topic id."""

from collections.abc import Iterator, Mapping
from uuid import UUID

Assignment = Mapping[UUID, frozenset[int]]

NOTHING: Assignment = {}


def intersection(left: Assignment, right: Assignment) -> Assignment:
    """What both hold."""
    shared = {topic: left[topic] & right[topic] for topic in left.keys() & right.keys()}
    return {topic: partitions for topic, partitions in shared.items() if partitions}


def difference(left: Assignment, right: Assignment) -> Assignment:
    """What only `left` holds."""
    rest = {topic: partitions - right.get(topic, frozenset()) for topic, partitions in left.items()}
    return {topic: partitions for topic, partitions in rest.items() if partitions}


def union(left: Assignment, right: Assignment) -> Assignment:
    """What either holds."""
    both = dict(left)
    for topic, partitions in right.items():
        both[topic] = both.get(topic, frozenset()) | partitions
    return both


def overlaps(left: Assignment, right: Assignment) -> bool:
    """Whether some partition is in both."""
    return any(not left[topic].isdisjoint(right[topic]) for topic in left.keys() & right.keys())


def contains(whole: Assignment, part: Assignment) -> bool:
    """Whether every partition of `part` is in `whole`."""
    return all(partitions <= whole.get(topic, frozenset()) for topic, partitions in part.items())


def each(assignment: Assignment) -> Iterator[tuple[UUID, int]]:
    """One pair per partition."""
    for topic, partitions in assignment.items():
        for partition in partitions:
            yield topic, partition
