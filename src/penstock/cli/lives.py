"""The life of a message as a tree.

The message as a whole comes first. Each group is a branch with its deliveries, and what became of a
delivery hangs on it. Branches stand in the order in which they began.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.output import Branch
from penstock.cli.times import show_duration, show_time

if TYPE_CHECKING:
    from penstock.client import TraceStep

_DELIVERIES = {"DELIVERED", "REDELIVERED"}
# What ends or prolongs a delivery. A dead letter is made of a message and not of one delivery.
_ANSWERS = {"EXTENDED", "NACKED", "REJECTED", "EXPIRED", "ACKNOWLEDGED"}
# Nodes begin these details with a time in milliseconds; what follows is a person's text.
_TIMED = {"SCHEDULED", "DELIVERED", "REDELIVERED", "EXTENDED", "NACKED"}
_TIME = re.compile(r"((?:moved, )?due at|leased until|until|ready at) ([0-9]+)")


def tree_of(title: str, steps: "Sequence[TraceStep]") -> Branch:
    """Return the tree of a life; there is at least one step."""
    life = Branch(title)
    groups: dict[str, _Group] = {}
    start_ms = steps[0].at
    for step in steps:
        if not step.group:
            since = show_time(step.at) if step is steps[0] else _since(step, start_ms)
            life.branches.append(Branch(f"{since}  {_told(step)}"))
            continue
        if step.group not in groups:
            groups[step.group] = _Group(step.group, start_ms)
            life.branches.append(groups[step.group].branch)
        groups[step.group].add(step)
    return life


class _Group:
    """The branch of one group, as its steps come."""

    def __init__(self, name: str, start_ms: int) -> None:
        self.branch = Branch(f"group {name}")
        self._start_ms = start_ms
        self._before_ms: int | None = None
        self._delivery: Branch | None = None

    def add(self, step: "TraceStep") -> None:
        since = _since(step, self._start_ms)
        if self._before_ms is not None:
            since += f" ({show_duration(step.at - self._before_ms)} later)"
        self._before_ms = step.at
        branch = Branch(f"{since}  {_told(step)}")
        if step.kind in _ANSWERS and self._delivery is not None:
            self._delivery.branches.append(branch)
        else:
            self.branch.branches.append(branch)
        if step.kind in _DELIVERIES:
            self._delivery = branch


def _since(step: "TraceStep", start_ms: int) -> str:
    since_ms = step.at - start_ms
    return f"{'+' if since_ms >= 0 else ''}{show_duration(since_ms)}"


def _told(step: "TraceStep") -> str:
    told = step.kind
    if step.kind in _DELIVERIES:
        told += f" to {step.consumer or 'a consumer without a name'}, attempt {step.attempt}"
    detail = step.detail
    if step.kind in _TIMED and (found := _TIME.match(detail)):
        detail = f"{found[1]} {show_time(int(found[2]))}{detail[found.end() :]}"
    if step.kind == "RETAINED":
        detail += f" ({show_time(step.at)})"
    return f"{told}: {detail}" if detail else told
