"""What Spark raises, as errors of Penstock."""

import re

from penstock import errors
from penstock.errors import PenstockError

_PASSING = ("Python worker failed to connect back", "Python worker exited unexpectedly")
_RAISED = re.compile(r"penstock\.errors\.(\w+): (.*)")


def told_error(error: Exception) -> PenstockError:
    """Return the error that Spark wrapped into traces, or one with the first line of its own."""
    if isinstance(error, PenstockError):
        return error
    found = _RAISED.findall(str(error))
    if not found:
        first = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        return PenstockError(f"Spark failed: {first.strip()}")
    name, message = found[-1]
    kind = getattr(errors, name, None)
    is_known = isinstance(kind, type) and issubclass(kind, PenstockError)
    if kind is None or not is_known or kind is errors.MemberIdRequired:
        return PenstockError(message)
    raised: PenstockError = kind(message)
    return raised


def is_passing(error: Exception) -> bool:
    """True for what a busy machine does to Spark's Python processes.

    Spark gives a process ten seconds to start, and does not try again itself; a query can be
    started again from its checkpoint.
    """
    return any(text in str(error) for text in _PASSING)
