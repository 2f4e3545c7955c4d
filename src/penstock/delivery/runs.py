"""Runs of consecutive offsets: `(start, end)`, half open, ascending."""

from collections.abc import Iterable, Iterator, Sequence

Run = tuple[int, int]


def to_runs(offsets: Iterable[int]) -> list[Run]:
    """Join ascending offsets into runs."""
    runs: list[Run] = []
    start = end = -1
    for offset in offsets:
        if offset == end:
            end += 1
            continue
        if end > start:
            runs.append((start, end))
        start, end = offset, offset + 1
    if end > start:
        runs.append((start, end))
    return runs


def offsets_of(runs: Sequence[Run]) -> Iterator[int]:
    """Yield every offset of some runs."""
    for start, end in runs:
        yield from range(start, end)


def count_of(runs: Sequence[Run]) -> int:
    """Return how many offsets some runs hold."""
    if len(runs) == 1:
        return runs[0][1] - runs[0][0]
    return sum(end - start for start, end in runs)
