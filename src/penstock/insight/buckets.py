"""Widths of the spans of time that a plot counts in."""

BUCKETS_MAX = 120
_S = 1000
_WIDTHS_MS = (
    1 * _S, 2 * _S, 5 * _S, 10 * _S, 15 * _S, 30 * _S,
    60 * _S, 120 * _S, 300 * _S, 600 * _S, 900 * _S, 1800 * _S,
    3600 * _S, 7200 * _S, 3 * 3600 * _S, 6 * 3600 * _S, 12 * 3600 * _S,
)  # fmt: skip
_DAY_MS = 86_400 * _S


def bucket_ms(start_ms: int, end_ms: int) -> int:
    """Return a round width that cuts a span of time into at most `BUCKETS_MAX` pieces."""
    span_ms = max(end_ms - start_ms, 1)
    for width_ms in _WIDTHS_MS:
        if span_ms <= width_ms * (BUCKETS_MAX - 1):
            return width_ms
    days = -(-span_ms // (_DAY_MS * (BUCKETS_MAX - 1)))
    return days * _DAY_MS


def bucket_starts(start_ms: int, end_ms: int, width_ms: int) -> list[int]:
    """Return the beginnings of all buckets that a span touches."""
    first = start_ms - start_ms % width_ms
    return list(range(first, end_ms + 1, width_ms))


def show_width(width_ms: int) -> str:
    """Write a width for people."""
    for unit, size_ms in (("day", _DAY_MS), ("hour", 3600 * _S), ("minute", 60 * _S)):
        if width_ms % size_ms == 0:
            count = width_ms // size_ms
            return unit if count == 1 else f"{count} {unit}s"
    seconds = width_ms // _S
    return "second" if seconds == 1 else f"{seconds} seconds"
