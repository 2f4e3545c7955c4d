"""Durations as people write them: `500 ms`, `10s`, `1 minute`, `2 hours`."""

import re

_UNITS_MS = {
    "ms": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
_DURATION = re.compile(r"(\d{1,12})\s*([a-z]+)")


def parse_duration_ms(text: str) -> int:
    """Return milliseconds; anything else is a `ValueError`."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise ValueError("not a duration such as 500 ms, 10 seconds, 5m or 1 hour")
    return int(match[1]) * _UNITS_MS[match[2]]
