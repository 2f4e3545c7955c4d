"""Times as people type them."""

import re
from datetime import UTC, datetime

import typer

from penstock.clock import SystemClock
from penstock.config import parse_duration_ms


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
    """Read a duration such as `30s` or `5m`; a mistake is a usage error that names the option."""
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is {error}.", param_hint=option) from None


def show_time(timestamp_ms: int | None) -> str | None:
    """Write a time as ISO 8601 in UTC with milliseconds."""
    if timestamp_ms is None:
        return None
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
