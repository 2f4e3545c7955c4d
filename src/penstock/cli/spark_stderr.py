"""What Spark's processes write on the terminal of a command, without what helps nobody.

Prints and traces of a user's own functions come through. Workers whose connection Spark closed,
because a task or a query failed, write a trace about that; it would stand in front of the one error
that matters, so it is left out.
"""

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_USELESS = ("WARNING: Using incubator modules:",)
_TRACE = "Traceback (most recent call last):"
_HUNG_UP = ("BrokenPipeError:", "ConnectionResetError:")
_SPARKS_OWN = "pyspark/daemon.py"


@contextmanager
def filtered_stderr() -> Iterator[None]:
    """Let processes that are started in the block write to stderr through the filter."""
    reader, writer = os.pipe()
    sys.stderr.flush()
    terminal = os.dup(2)
    os.dup2(writer, 2)
    os.close(writer)
    threading.Thread(target=_forward, args=(reader, os.dup(terminal)), daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)


def _forward(reader: int, terminal: int) -> None:
    with os.fdopen(reader, errors="replace") as lines, os.fdopen(terminal, "w") as out:
        for line in without_noise(lines):
            out.write(line)
            out.flush()


def without_noise(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines but for those that Spark writes about itself."""
    held: list[str] = []
    for line in lines:
        if held or line.startswith(_TRACE):
            held.append(line)
            if _is_whole(held):
                yield from [] if _is_noise(held) else held
                held = []
        elif not line.startswith(_USELESS):
            yield line
    yield from held


def _is_whole(traces: list[str]) -> bool:
    """Traces of several processes may lie in each other; each ends with a line that sticks out."""
    begun = sum(line.startswith(_TRACE) for line in traces)
    ended = sum(not line.startswith((_TRACE, " ")) for line in traces)
    return ended >= begun


def _is_noise(traces: list[str]) -> bool:
    frames = [line for line in traces if line.startswith("  File ")]
    ends = [line for line in traces if not line.startswith((_TRACE, " "))]
    return all(_SPARKS_OWN in line for line in frames) and all(
        line.startswith(_HUNG_UP) for line in ends
    )
