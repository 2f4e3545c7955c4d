"""Shares messages that may go anywhere evenly among the partitions of their topic.

The partition that was given the fewest is given the next ones. Messages that come together go
together, in runs, as a batch of many costs little more than a batch of one. Each node counts what
it was asked to publish itself: what is even on each is even as a whole.

Partitions that nobody leads are passed over, and counted as if they had been given their share, so
that they are not flooded when they are back.
"""

from collections.abc import Callable, Iterator
from heapq import heapreplace
from itertools import repeat

RUN_MAX = 1_000
_TOPICS_MAX = 10_000


class Spread:
    """How many messages the partitions of each topic were given; `is_led` tells who takes any."""

    def __init__(self, is_led: Callable[[str, int], bool]) -> None:
        self._is_led = is_led
        self._given: dict[str, list[tuple[int, int]]] = {}

    def partitions(self, topic: str, *, among: int, count: int) -> Iterator[int]:
        """Yield a partition for each of `count` messages; what is not taken counts by the run."""
        for start in range(0, count, RUN_MAX):
            run = min(RUN_MAX, count - start)
            yield from repeat(self.take(topic, among=among, run=run), run)

    def take(self, topic: str, *, among: int, run: int) -> int:
        """Return the partition for a run of messages that go together."""
        heap = self._given.get(topic)
        if heap is None or len(heap) != among:
            # New partitions do not have to catch up with what the others were given before.
            heap = self._start(topic, among)
        for _ in range(among):
            given, partition = heap[0]
            heapreplace(heap, (given + run, partition))
            if self._is_led(topic, partition):
                break
        return partition

    def _start(self, topic: str, among: int) -> list[tuple[int, int]]:
        if len(self._given) >= _TOPICS_MAX:
            # Who is forgotten starts with an even count again, as topics that are gone should be.
            self._given.clear()
        heap = self._given[topic] = [(0, partition) for partition in range(among)]
        return heap
