"""Draws what goes wrong and when, for those who know how to do it."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from penstock.testing import Schedule

_SHARE = 0.55


class Strikes:
    """Lets faults happen until they are over.

    Each history has some of the kinds of faults, and each of those as often as chance wills, so
    that some histories are nothing but crashes and others nothing but a bad network.
    """

    def __init__(self, schedule: Schedule, random: Random, interval_us: int) -> None:
        self.counts: Counter[str] = Counter()
        self.on_fault: Callable[[str], None] = lambda name: None
        self._schedule = schedule
        self._random = random
        self._interval_us = interval_us
        self._is_over = False

    def _choose(self, kinds: Sequence[tuple[Callable[[], None], float]]) -> None:
        """Draw which faults there are, given how likely each is."""
        chosen = [pair for pair in kinds if self._random.random() < _SHARE] or kinds
        self._actions = [action for action, _ in chosen]
        self._weights = [weight * (0.3 + self._random.random()) for _, weight in chosen]

    def _begin_strikes(self) -> None:
        self._later(self._interval_us, self._strike)

    def _later(self, delay_us: float, act: Callable[..., None], *args: object) -> None:
        self._schedule.later(int(delay_us), self._unless_over, act, *args)

    def _unless_over(self, act: Callable[..., None], *args: object) -> None:
        if not self._is_over:
            act(*args)

    def _strike(self) -> None:
        self._later(self._interval_us * (0.2 + 1.6 * self._random.random()), self._strike)
        action = self._random.choices(self._actions, self._weights)[0]
        self.on_fault(action.__name__.strip("_"))
        action()
