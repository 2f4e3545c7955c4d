"""Checks of names and places that all parts of a file share."""

import re
from pathlib import Path

from penstock.pipelines.documents import Section
from penstock.pipelines.durations import parse_duration_ms
from penstock.pipelines.model import Watermark

_VIEW = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_topic(text: str) -> str:
    """Return the name of a topic; anything else is a `ValueError`."""
    if not _TOPIC.fullmatch(text):
        raise ValueError("not a topic: up to 249 letters, digits, dots, dashes and underscores")
    return text


def check_view_name(section: Section, name: str) -> None:
    """Note a name that SQL would not read as one."""
    if not _VIEW.fullmatch(name):
        section.problem(f"{name!r} is not a name for a view: letters, digits and underscores")


def check_view(section: Section, key: str, view: str, views: list[str]) -> None:
    """Note a view that is not there."""
    if view and view not in views:
        section.problem(f"there is no view {view}; there are {', '.join(views) or 'none'}", key)


def located(path: str, directory: Path) -> str:
    """Return a path as seen from anywhere: paths of a file begin in its directory."""
    return path if "://" in path or not path else str((directory / path).resolve())


def read_watermark(section: Section) -> Watermark | None:
    """Return the watermark of a view, None when there is none."""
    inner = section.section("watermark")
    if inner is None:
        return None
    inner.expect(("column", "delay"))
    column = inner.required("column")
    inner.required("delay")
    delay_ms = inner.read("delay", parse_duration_ms)
    return None if delay_ms is None else Watermark(column, delay_ms)
