"""Ends a long reading in good order."""

import signal
from types import FrameType, TracebackType
from typing import Any, Self


class Interruption:
    """Turns the first Ctrl-C or SIGTERM into a flag for a loop to look at.

    An exception could arise anywhere, between writing a message and noting its offset, or inside
    librdkafka, which does not bear it. A second signal acts as it would without this class.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def hold(self) -> None:
        """Take the signals again, unless one has come: Spark installs a handler when it starts."""
        for number in self._previous:
            signal.signal(number, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.is_requested = True
        self._restore()

    def _restore(self) -> None:
        while self._previous:
            number, previous = self._previous.popitem()
            signal.signal(number, previous)
