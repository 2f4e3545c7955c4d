"""When leadership goes back to the node that is meant to lead.

The first replica of a log is meant to lead it. While its node is away another one does, and goes on
when the node is back. So each leader looks now and then at the groups that it leads, and hands over
those whose first replica is in step again and not being drained.

Nothing is handed to and fro: the first replica must have been in step in two rounds running, and a
group that comes back to this leader, because the other one failed again, stays twice as long each
time.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.ids import NodeId

_ROUNDS_IN_STEP = 2
_DOUBLINGS_MAX = 6


@dataclass(frozen=True, slots=True)
class LedGroup:
    """A group that this node leads for another one that is meant to."""

    group: int
    intended: NodeId
    is_ready: bool
    """Whether the intended leader could take over now."""


@dataclass(slots=True)
class _Patience:
    rounds_in_step: int = 0
    times_given: int = 0
    not_before_s: float = 0.0


class LeaderBalance:
    """Decides, round by round, what to hand over."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._patience: dict[int, _Patience] = {}

    def due(self, led: Iterable[LedGroup], now_s: float) -> list[LedGroup]:
        """Return the groups to hand over in this round."""
        due = []
        seen = set()
        for each in led:
            seen.add(each.group)
            patience = self._patience.setdefault(each.group, _Patience())
            patience.rounds_in_step = patience.rounds_in_step + 1 if each.is_ready else 0
            if patience.rounds_in_step >= _ROUNDS_IN_STEP and now_s >= patience.not_before_s:
                self._give(patience, now_s)
                due.append(each)
        for group in self._patience.keys() - seen:
            # Rounds in step count when they follow each other.
            self._patience[group].rounds_in_step = 0
        return due

    def _give(self, patience: _Patience, now_s: float) -> None:
        longest_s = self._interval_s * 2**_DOUBLINGS_MAX
        if now_s >= patience.not_before_s + longest_s:
            patience.times_given = 0
        patience.times_given += 1
        patience.rounds_in_step = 0
        doublings = min(patience.times_given, _DOUBLINGS_MAX)
        patience.not_before_s = now_s + self._interval_s * 2**doublings

    def forget(self, groups: Iterable[int]) -> None:
        """Drop what is known about groups that are not here any more."""
        for group in self._patience.keys() - set(groups):
            del self._patience[group]
