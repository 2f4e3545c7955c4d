"""Server-side assignors: who should read which partition.

Both are functions of their input alone, so that a new coordinator decides as the old one did.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from uuid import UUID

from penstock.groups.assignment import Assignment


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member that wants partitions: the topics it reads and what it was given before."""

    topics: frozenset[UUID]
    given: Assignment
    instance_id: str | None = None


Assignor = Callable[[Mapping[str, Candidate], Mapping[UUID, int]], dict[str, Assignment]]


def uniform(
    candidates: Mapping[str, Candidate], topics: Mapping[UUID, int]
) -> dict[str, Assignment]:
    """Balance all partitions together, and move none that need not move.

    When all members read the same topics, the numbers of partitions differ by one at most, and no
    fewer moves would do. With different subscriptions no member has two partitions more than
    another that could take one of them, directly or by passing others on.
    """
    spread = _Spread(candidates, topics)
    spread.keep_given()
    spread.place_free()
    spread.level()
    return spread.assignments()


def ranged(
    candidates: Mapping[str, Candidate], topics: Mapping[UUID, int]
) -> dict[str, Assignment]:
    """Give each member a run of neighbouring partitions, topic by topic.

    Topics with the same subscribers and the same number of partitions are cut at the same places,
    so that one member reads the same numbers of each. Members are lined up by instance id, then by
    member id.
    """
    assignments: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in candidates}
    line = sorted(candidates, key=lambda member_id: _place(member_id, candidates[member_id]))
    for topic, count in topics.items():
        readers = [member_id for member_id in line if topic in candidates[member_id].topics]
        start = 0
        for position, member_id in enumerate(readers):
            end = start + count // len(readers) + (position < count % len(readers))
            if start < end:
                assignments[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(assignments)


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": ranged}
DEFAULT_ASSIGNOR = "uniform"


def _place(member_id: str, candidate: Candidate) -> tuple[bool, str, str]:
    return candidate.instance_id is None, candidate.instance_id or "", member_id


class _Spread:
    """A distribution in the making."""

    def __init__(self, candidates: Mapping[str, Candidate], topics: Mapping[UUID, int]) -> None:
        self._candidates = {member_id: candidates[member_id] for member_id in sorted(candidates)}
        self._topics = topics
        self._held: dict[str, dict[UUID, list[int]]] = {m: {} for m in self._candidates}
        self._load = dict.fromkeys(self._candidates, 0)
        self._readers: dict[UUID, list[str]] = defaultdict(list)
        for member_id, candidate in self._candidates.items():
            for topic in candidate.topics:
                self._readers[topic].append(member_id)

    def assignments(self) -> dict[str, Assignment]:
        """The distribution as it stands."""
        return {
            member_id: {topic: frozenset(held) for topic, held in topics.items() if held}
            for member_id, topics in self._held.items()
        }

    def keep_given(self) -> None:
        """Leave every partition with its reader, as long as both still exist."""
        taken: set[tuple[UUID, int]] = set()
        for member_id, candidate in self._candidates.items():
            for topic in candidate.given.keys() & candidate.topics:
                for partition in sorted(candidate.given[topic]):
                    exists = partition < self._topics.get(topic, 0)
                    if exists and (topic, partition) not in taken:
                        taken.add((topic, partition))
                        self._give(member_id, topic, partition)

    def place_free(self) -> None:
        """Give each partition without a reader to the least loaded member that reads the topic."""
        for topic, count in self._topics.items():
            readers = self._readers.get(topic)
            if not readers:
                continue
            taken = {p for member_id in readers for p in self._held[member_id].get(topic, ())}
            queue = [(self._load[member_id], member_id) for member_id in readers]
            heapify(queue)
            for partition in range(count):
                if partition not in taken:
                    load, member_id = queue[0]
                    self._give(member_id, topic, partition)
                    heapreplace(queue, (load + 1, member_id))

    def level(self) -> None:
        """Move partitions from loaded members to idle ones until no move helps."""
        # Each move lowers the sum of squared loads, so the rounds come to an end.
        while self._has_levelled():
            pass

    def _has_levelled(self) -> bool:
        """Serve the least loaded member first, again and again; tell whether anything moved."""
        has_moved = False
        queue = [(load, member_id) for member_id, load in self._load.items()]
        heapify(queue)
        while queue and self._is_uneven():
            load, idle = heappop(queue)
            path = self._path_to(idle) if load == self._load[idle] else []
            for receiver, topic, giver in path:
                self._give(receiver, topic, self._take(giver, topic))
                has_moved = True
            if load != self._load[idle]:
                heappush(queue, (self._load[idle], idle))
        return has_moved

    def _is_uneven(self) -> bool:
        return bool(self._load) and max(self._load.values()) - min(self._load.values()) > 1

    def _path_to(self, idle: str) -> list[tuple[str, UUID, str]]:
        """The shortest chain of moves to `idle` from a member with two partitions more."""
        reached: dict[str, tuple[str, UUID] | None] = {idle: None}
        seen: set[UUID] = set()
        receivers = [idle]
        while receivers:
            givers: list[str] = []
            for receiver in receivers:
                for topic in sorted(self._candidates[receiver].topics - seen):
                    seen.add(topic)
                    for giver in self._readers[topic]:
                        if giver not in reached and self._held[giver].get(topic):
                            reached[giver] = (receiver, topic)
                            givers.append(giver)
            loaded = max(givers, key=self._load.__getitem__, default=idle)
            if self._load[loaded] >= self._load[idle] + 2:
                return _chain(loaded, reached)
            receivers = givers
        return []

    def _give(self, member_id: str, topic: UUID, partition: int) -> None:
        self._held[member_id].setdefault(topic, []).append(partition)
        self._load[member_id] += 1

    def _take(self, member_id: str, topic: UUID) -> int:
        self._load[member_id] -= 1
        return self._held[member_id][topic].pop()


def _chain(
    loaded: str, reached: Mapping[str, tuple[str, UUID] | None]
) -> list[tuple[str, UUID, str]]:
    moves, giver = [], loaded
    while (step := reached[giver]) is not None:
        receiver, topic = step
        moves.append((receiver, topic, giver))
        giver = receiver
    return moves
