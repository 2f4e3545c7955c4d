"""What Spark's processes write comes through, but for what helps nobody."""

import pytest

from penstock.cli.spark_stderr import without_noise

BEGIN = "Traceback (most recent call last):\n"
HUNG_UP = [
    '  File "pyspark.zip/pyspark/daemon.py", line 264, in manager\n',
    "    code = worker(sock, authenticated)\n",
    "BrokenPipeError: [Errno 32] Broken pipe\n",
]
RAISED = [
    '  File "totals.py", line 3, in parse\n',
    "BrokenPipeError: [Errno 32] Broken pipe\n",
]


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (["WARNING: Using incubator modules: jdk.incubator.vector\n", "mine\n"], ["mine\n"]),
        (["one\n", BEGIN, *HUNG_UP, "two\n"], ["one\n", "two\n"]),
        ([BEGIN, BEGIN, *HUNG_UP, *HUNG_UP, "two\n"], ["two\n"]),
        ([BEGIN, *RAISED, "two\n"], [BEGIN, *RAISED, "two\n"]),
        ([BEGIN, HUNG_UP[0]], [BEGIN, HUNG_UP[0]]),
    ],
    ids=["advice", "hung up", "two at once", "of a function", "cut off"],
)
def test_only_what_spark_says_of_itself_is_left_out(lines: list[str], left: list[str]) -> None:
    assert list(without_noise(lines)) == left
