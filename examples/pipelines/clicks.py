"""Reads lines of a web server's log for `click_sessions.yml`."""

import re
from datetime import datetime
from typing import Any

LINE = re.compile(r"(?P<at>\S+) (?P<user>\S+) (?P<page>/\S*)")


def parse(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return one click; a line that is none raises, a line of a robot is left out."""
    match = LINE.fullmatch(row["value"])
    if match is None:
        raise ValueError(f"{row['value']!r} is not a click")
    if match["user"].endswith("bot"):
        return None
    return {**match.groupdict(), "at": datetime.fromisoformat(match["at"])}
