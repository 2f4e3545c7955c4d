"""What Spark raises, as errors of Penstock."""

import re

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from penstock import errors
from penstock.errors import PenstockError

SPARK_FAILURES = (PySparkException, Py4JError, PenstockError, ConnectionError)
"""What a job on Spark raises."""
_GONE = (
    "SparkContext was shut down",
    "stopped SparkContext",
    "Answer from Java side is empty",
    "JAVA_GATEWAY_EXITED",
    # Said of every class once nobody answers.
    "does not exist in the JVM",
)
_NO_SOURCE = "Failed to find the data source: penstock"
NO_SOURCE_ADVICE = (
    "Spark does not know format penstock: the Python that it starts has no Penstock. Set"
    " PYSPARK_PYTHON to one that has, where Spark's server is started"
)
_PASSING = ("Python worker failed to connect back", "Python worker exited unexpectedly")
_TRACE = "Traceback (most recent call last):"
_PYTHON_ERROR = re.compile(r"[A-Za-z_][\w.]*: ")
_RAISED = re.compile(r"penstock\.errors\.(\w+): (.*)")


def told_error(error: Exception) -> PenstockError:
    """Return the error that Spark wrapped into traces, or one with the first line of its own."""
    if isinstance(error, PenstockError):
        return error
    if _NO_SOURCE in str(error):
        return PenstockError(NO_SOURCE_ADVICE)
    found = _RAISED.findall(str(error))
    if not found:
        return PenstockError(f"Spark failed: {_told_line(error)}")
    name, message = found[-1]
    kind = getattr(errors, name, None)
    is_known = isinstance(kind, type) and issubclass(kind, PenstockError)
    if kind is None or not is_known or kind is errors.MemberIdRequired:
        return PenstockError(message)
    raised: PenstockError = kind(message)
    return raised


def _told_line(error: Exception) -> str:
    """Return what Python raised in a worker, or else the first line."""
    # Traces of Java follow those of Python.
    trace = str(error).partition(_TRACE)[2].partition("\n\tat ")[0]
    raised = [line for line in trace.splitlines() if _PYTHON_ERROR.match(line)]
    lines = raised[-1:] or [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else repr(error)


def is_passing(error: Exception) -> bool:
    """True for what a busy machine does to Spark's Python processes.

    Spark gives a process ten seconds to start, and does not try again itself; a query can be
    started again from its checkpoint.
    """
    return any(text in str(error) for text in _PASSING)


def is_gone(error: Exception) -> bool:
    """True when the process that Spark runs in has ended, or is about to."""
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return True
    return any(text in str(error) for text in _GONE)
