"""The table of errors: what a caller is answered when a request fails."""

from typing import NamedTuple

import msgspec

from penstock.errors import Conflict, InvalidRequest, NotFound, PenstockError, Unavailable
from penstock.protocols.http.answers import Failure, FailureAnswer, describe_failure

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


def refuse(failure: Failure, *, status: int, headers: dict[str, str] | None = None) -> Refusal:
    """Return a failure in the envelope that all of them share."""
    return Refusal(status, msgspec.json.encode(FailureAnswer(error=failure)), headers)


def refusal_of(error: PenstockError) -> Refusal:
    """Return what an error looks like to the caller."""
    status = next(status for kind, status in ERROR_STATUSES if isinstance(error, kind))
    headers = {"Retry-After": str(RETRY_AFTER_S)} if error.retryable else None
    return refuse(describe_failure(error), status=status, headers=headers)


def surprise() -> Refusal:
    """Return the answer to a request that the node failed on.

    The log has the error with its trace; a client learns only that it is not at fault.
    """
    message = "The node failed on this request; its log tells why."
    return refuse(Failure(type="InternalError", message=message, retryable=False), status=500)
