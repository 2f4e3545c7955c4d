"""Times as people type and read them."""

import re
from datetime import UTC, datetime, timedelta

import typer

from penstock.clock import SystemClock
from penstock.config import parse_duration_ms

_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999
# Units with the next smaller ones.
_UNITS = (
    ("d", _DAY_MS, "h", _HOUR_MS),
    ("h", _HOUR_MS, "m", _MINUTE_MS),
    ("m", _MINUTE_MS, "s", _SECOND_MS),
)


def parse_time_ms(text: str, *, now_ms: int) -> int:
    """Read ISO 8601, epoch milliseconds, `now`, or a time ago such as `-1h`.

    A time without a zone is local time, as ISO 8601 has it. Anything else is a `ValueError`.
    """
    text = text.strip()
    if text == "now":
        return now_ms
    if re.fullmatch(r"[0-9]+", text, re.ASCII):
        return int(text)
    if re.match(r"[-+][0-9]", text, re.ASCII):
        sign = -1 if text[0] == "-" else 1
        return now_ms + sign * parse_duration_ms(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("not a time like 2025-01-31T12:00:00Z, 1738324800000 or -1h") from None
    return round(moment.timestamp() * 1000)


def read_time_ms(text: str | None, *, option: str) -> int | None:
    """Read the value of an option; a mistake is a usage error that names the option."""
    if text is None:
        return None
    try:
        return parse_time_ms(text, now_ms=SystemClock().now_ms())
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is {error}.", param_hint=option) from None


def read_duration_s(text: str, *, option: str) -> float:
    """Read a duration such as `30s` or `5m`; a mistake is a usage error that names the option.

    A number alone is one: options of nodes take it for milliseconds, requests for seconds.
    """
    if re.fullmatch(r"\s*[0-9]*[1-9][0-9]*\s*", text, re.ASCII):
        number = text.strip()
        raise typer.BadParameter(
            f"{text!r} has no unit: write {number}s or {number}ms.", param_hint=option
        )
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is {error}.", param_hint=option) from None


def show_time(timestamp_ms: int | None) -> str | None:
    """Write a time as ISO 8601 in UTC with milliseconds; one after the year 9999 stays a number."""
    if timestamp_ms is None:
        return None
    if timestamp_ms > _LAST_MS:
        return str(timestamp_ms)
    moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def show_duration(duration_ms: int) -> str:
    """Write a duration for people, by its two largest units: `7ms`, `1.250s`, `2m 5s`, `3d 4h`."""
    if duration_ms < 0:
        return f"-{show_duration(-duration_ms)}"
    if duration_ms < _SECOND_MS:
        return f"{duration_ms}ms"
    if duration_ms < _MINUTE_MS:
        return f"{duration_ms / _SECOND_MS:.3f}s"
    unit, unit_ms, small, small_ms = next(each for each in _UNITS if each[1] <= duration_ms)
    count, rest_ms = divmod(duration_ms, unit_ms)
    rest = rest_ms // small_ms
    return f"{count}{unit} {rest}{small}" if rest else f"{count}{unit}"
