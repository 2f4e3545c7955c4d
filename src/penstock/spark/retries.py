"""Trying again, for a limited time.

One exception ends a streaming query, so whatever may pass is tried again here: a broker that
restarts, a partition between two leaders. What cannot pass is raised at once.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from penstock.clock import SystemClock
from penstock.errors import PenstockError, TopicNotFound

PAUSE_S = 0.1
PAUSE_S_MAX = 1.0
# A topic that was just created may not be known to every broker yet.
TOPIC_WAIT_S = 3.0

T = TypeVar("T")
_clock = SystemClock()


class Patience:
    """How long to go on trying since the last success."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self.succeeded()

    def succeeded(self) -> None:
        """Begin anew."""
        self._since_s = _clock.steady_s()
        self._pause_s = PAUSE_S

    def pause(self, error: PenstockError, place: str = "") -> None:
        """Wait before the next try; raise the error when it cannot pass or the time is over."""
        passed_s = _clock.steady_s() - self._since_s
        if passed_s >= self._limit_s(error):
            told = f"{place}: {error}" if place else str(error)
            raise type(error)(f"{told} (tried for {passed_s:.1f} s)") from None
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    def _limit_s(self, error: PenstockError) -> float:
        if isinstance(error, TopicNotFound):
            return min(TOPIC_WAIT_S, self._wait_s)
        return self._wait_s if error.retryable else 0.0


def retrying(action: Callable[[], T], after_failure: Callable[[], None], wait_s: float) -> T:
    """Return what `action` returns; try again for `wait_s` while its error may pass."""
    patience = Patience(wait_s)
    while True:
        try:
            return action()
        except PenstockError as error:
            patience.pause(error)
            after_failure()
