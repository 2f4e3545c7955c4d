"""Decides which node to ask, and after a failure whether, where and when to ask again.

Nothing here waits or reads a clock. A call is repeated only when its error is retryable, and only
when that does no harm: the call says so itself, or no connection was made and nothing was sent.
Other addresses are tried at once; after a round through all of them comes a pause that doubles.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from penstock.client.calls import Call
from penstock.client.wire import Target
from penstock.errors import InvalidRequest, PenstockError, Unavailable

PAUSE_MIN_S = 0.05
PAUSE_MAX_S = 2.0


class Unreached(Unavailable):
    """No connection was made, so nothing was sent."""


class Route:
    """The addresses of a cluster, and the one that has worked last."""

    def __init__(self, urls: str | Sequence[str], *, retry_s: float) -> None:
        given = urls.split(",") if isinstance(urls, str) else list(urls)
        if not given:
            raise InvalidRequest("no url was given, at least one is needed")
        self.targets = [Target.parse(url) for url in given]
        self.retry_s = retry_s
        self.current = 0

    def begin(self, call: Call[Any], now_s: float) -> "Attempts":
        """Begin a call at `now_s`."""
        return Attempts(self, call, now_s)


class Attempts:
    """The attempts of one call."""

    def __init__(
        self,
        route: Route,
        call: Call[Any],
        now_s: float,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._route = route
        self._call = call
        self._give_up_s = now_s + route.retry_s
        self._chance = chance
        self._failures = 0
        self._number = route.current

    @property
    def target(self) -> Target:
        """The node to ask next."""
        return self._route.targets[self._number]

    def failed(self, error: PenstockError, now_s: float) -> float:
        """Return the seconds to wait before the next attempt, or raise `error`."""
        is_safe = self._call.is_repeatable or isinstance(error, Unreached)
        if not error.retryable or not is_safe:
            raise error
        self._failures += 1
        targets = len(self._route.targets)
        self._number = (self._number + 1) % targets
        # Calls of others that begin from here on are spared the node that has just failed.
        self._route.current = self._number
        rounds, is_within_round = divmod(self._failures, targets)
        pause_s = 0.0 if is_within_round else self._pause_s(rounds)
        if now_s + pause_s >= self._give_up_s:
            raise error
        return pause_s

    def _pause_s(self, rounds: int) -> float:
        """Half of it is left to chance, so that clients that failed together part."""
        longest_s = min(PAUSE_MAX_S, PAUSE_MIN_S * (1 << min(rounds, 10)))
        return longest_s * (0.5 + self._chance() / 2)
