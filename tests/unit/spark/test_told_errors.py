"""What Spark wraps into traces is told as the error that was raised."""

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from penstock.errors import Conflict, PenstockError, TopicNotFound
from penstock.spark.failures import is_gone, told_error

TRACE = """[STREAM_FAILED] Query terminated with exception: Task failed
Traceback (most recent call last):
  File "worker.py", line 1, in main
penstock.errors.TopicNotFound: there is no topic orders (tried for 3.0 s)
\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_the_error_inside_a_trace_keeps_its_kind_and_its_sentence() -> None:
    error = told_error(RuntimeError(TRACE))

    assert type(error) is TopicNotFound
    assert str(error) == "there is no topic orders (tried for 3.0 s)"


def test_what_is_no_error_of_ours_is_told_by_its_first_line() -> None:
    error = told_error(RuntimeError("\nPython worker failed to connect back.\n\tat org.apache"))

    assert type(error) is PenstockError
    assert str(error) == "Spark failed: Python worker failed to connect back."


def test_an_exception_of_python_is_told_without_its_trace() -> None:
    trace = TRACE.replace("penstock.errors.TopicNotFound", "KeyError")

    assert str(told_error(RuntimeError(trace))).startswith("Spark failed: KeyError: there is no")


def test_an_error_that_was_not_wrapped_stays_as_it_is() -> None:
    error = Conflict("another job")

    assert told_error(error) is error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(104, "Connection reset by peer"),
        Py4JNetworkError("Error while sending or receiving"),
        Py4JError("org.apache.spark.sql.classic.SparkSession does not exist in the JVM"),
        Py4JError("Job 3 cancelled because SparkContext was shut down"),
    ],
)
def test_the_end_of_spark_s_own_process_is_recognised(error: Exception) -> None:
    assert is_gone(error)


def test_an_error_of_a_job_is_not_taken_for_the_end_of_spark() -> None:
    assert not is_gone(Py4JError("a task failed: ValueError"))
