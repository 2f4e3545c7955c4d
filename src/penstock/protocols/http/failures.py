"""The table of errors: what a caller is answered when a request fails.

A failure is counted where it is described, so that none is answered without being counted.
"""

from typing import NamedTuple

import msgspec

from penstock.broker import Statistics
from penstock.errors import Conflict, InvalidRequest, NotFound, PenstockError, Unavailable
from penstock.protocols.http.answers import Failure, FailureAnswer

# The first class that an error belongs to decides.
ERROR_STATUSES: tuple[tuple[type[PenstockError], int], ...] = (
    (InvalidRequest, 400),
    (NotFound, 404),
    (Conflict, 409),
    (Unavailable, 503),
    (PenstockError, 500),
)
RETRY_AFTER_S = 1


class Refusal(NamedTuple):
    """An answer that says why there is no other."""

    status: int
    body: bytes
    headers: dict[str, str] | None = None


class Failures:
    """Describes to callers of the door what went wrong."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def of(self, error: PenstockError) -> Failure:
        """Return an error as callers see it, of a request or of a part of one."""
        return self._failure(type(error).__name__, str(error), is_retryable=error.retryable)

    def refusal_of(self, error: PenstockError) -> Refusal:
        """Return the answer to a request that an error has ended."""
        headers = {"Retry-After": str(RETRY_AFTER_S)} if error.retryable else None
        return _refusal(self.of(error), status_of(error), headers)

    def refuse(
        self, kind: str, message: str, *, status: int, headers: dict[str, str] | None = None
    ) -> Refusal:
        """Return the answer to a request that no endpoint takes."""
        return _refusal(self._failure(kind, message), status, headers)

    def surprise(self) -> Refusal:
        """Return the answer to a request that the node failed on.

        The log has the error with its trace; a client learns only that it is not at fault.
        """
        message = "The node failed on this request; its log tells why."
        return _refusal(self._failure("InternalError", message), 500)

    def _failure(self, kind: str, message: str, *, is_retryable: bool = False) -> Failure:
        self._statistics.count_error("http", kind)
        return Failure(type=kind, message=message, retryable=is_retryable)


def status_of(error: PenstockError) -> int:
    """Return the status of the first class that an error belongs to."""
    return next(status for kind, status in ERROR_STATUSES if isinstance(error, kind))


def _refusal(failure: Failure, status: int, headers: dict[str, str] | None = None) -> Refusal:
    """Return a failure in the envelope that all of them share."""
    return Refusal(status, msgspec.json.encode(FailureAnswer(error=failure)), headers)
