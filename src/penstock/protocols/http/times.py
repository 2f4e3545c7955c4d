"""Durations and moments as people write them in JSON."""

import re
from datetime import UTC, datetime

from penstock.errors import InvalidRequest

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d)")
# Year 9999: what every client can still show as a date.
MOMENT_MS_MAX = 253_402_300_799_999
# How far ahead a message can be scheduled.
DELAY_MS_MAX = 10 * 365 * 86_400_000


def read_duration_ms(name: str, value: str | float, *, max_ms: int) -> int:
    """Return a duration: a number of seconds, or a text such as `1.5s`, `500ms`, `5m`, `2h`."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None:
            raise InvalidRequest(
                f"{name} is {value[:40]!r}, not a number of seconds or a duration such as 500ms,"
                " 30s, 5m, 2h, 7d"
            )
        duration_ms = float(match[1]) * _UNITS_MS[match[2]]
    else:
        duration_ms = value * 1_000
    if not 0 <= duration_ms <= max_ms:
        raise InvalidRequest(f"{name} is {value!r}, not between 0 and {max_ms / 1000:.12g} s")
    return round(duration_ms)


def read_moment_ms(name: str, value: str | float) -> int:
    """Return a moment: milliseconds since 1970, or a date and time in ISO 8601."""
    if isinstance(value, str) and not value.isdecimal():
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidRequest(
                f"{name} is {value[:40]!r}, neither milliseconds since 1970 nor ISO 8601"
            ) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        moment_ms = moment.timestamp() * 1_000
    else:
        moment_ms = float(value)
    if not 0 <= moment_ms <= MOMENT_MS_MAX:
        raise InvalidRequest(f"{name} is {value!r}, not between 1970 and the year 9999")
    return round(moment_ms)
