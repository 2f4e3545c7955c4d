"""Prints results: JSON for programs, text, tables and trees for people.

Everything goes through one stream, so that a reader who went away shows as `BrokenPipeError` at
once and nothing is printed twice.
"""

import errno
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import msgspec

# A table that is not on a terminal is as wide as it needs to be; nothing is cut off.
PIPE_COLUMNS = 10_000
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: None is shown as a dash, numbers stand to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of a tree, and what hangs on it."""

    text: str
    branches: list["Branch"] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the tree, one line for each branch."""
        yield one_line(self.text)
        for number, branch in enumerate(self.branches, 1):
            is_last = number == len(self.branches)
            first, *rest = branch.lines()
            yield ("└─ " if is_last else "├─ ") + first
            yield from (("   " if is_last else "│  ") + line for line in rest)


class OutputError(OSError):
    """Results cannot be written: the disk behind a redirection is full, or the stream is closed."""


class Output:
    """Where one command writes its results."""

    def __init__(self, *, as_json: bool, stream: BinaryIO | None = None) -> None:
        self.as_json = as_json
        self._stream = stream or _standard_output()
        self._is_terminal = self._stream.isatty()

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at the results as they come."""
        return self._is_terminal

    def show(self, value: object, *parts: str | Grid | Branch) -> None:
        """Print `value` as one line of JSON, or `parts` for people."""
        if self.as_json:
            self.write(encode_json(value) + b"\n")
        else:
            for part in parts:
                self.write(self._text_of(part).encode(errors="backslashreplace"))
        self.flush()

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        try:
            self._stream.write(data)
        except OSError as error:
            raise _failed(error) from None

    def flush(self) -> None:
        """Hand everything written so far to the reader."""
        try:
            self._stream.flush()
        except OSError as error:
            raise _failed(error) from None

    def note(self, text: str) -> None:
        """Tell a person something beside the results; programs are spared."""
        if not self.as_json:
            sys.stderr.write(text + "\n")

    def _text_of(self, part: str | Grid | Branch) -> str:
        match part:
            case Grid():
                return self._render(part)
            case Branch():
                return "\n".join(part.lines()) + "\n"
            case _:
                return part + "\n"

    def _render(self, grid: Grid) -> str:
        # Loaded here because commands that print no table should not wait for it.
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, title=grid.title or None, title_justify="left")
        for index, column in enumerate(grid.columns):
            is_numeric = any(isinstance(row[index], int) for row in grid.rows)
            table.add_column(column, justify="right" if is_numeric else "left", overflow="fold")
        for row in grid.rows:
            table.add_row(*(Text(_cell(each)) for each in row))
        text = io.StringIO()
        console = Console(
            file=text,
            force_terminal=self._is_terminal,
            width=None if self._is_terminal else PIPE_COLUMNS,
        )
        console.print(table)
        lines = (line.rstrip() for line in text.getvalue().splitlines())
        return "\n".join(line for line in lines if line) + "\n"


def discard_output() -> None:
    """Let go of what cannot be written: the interpreter would try again at its end and complain."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _standard_output() -> BinaryIO:
    # None in a process that was started with a closed one.
    if sys.stdout is None:
        raise OutputError(errno.EBADF, os.strerror(errno.EBADF))
    return sys.stdout.buffer


def _failed(error: OSError) -> OSError:
    if isinstance(error, BrokenPipeError):
        return error
    return OutputError(error.errno, error.strerror)


def encode_json(value: Any) -> bytes:
    """Encode a value as JSON in one line."""
    return msgspec.json.encode(value)


def _cell(value: object) -> str:
    return "-" if value is None else one_line(str(value))


def one_line(text: str) -> str:
    """Escape what breaks a line or speaks to the terminal; a reason may be any program's text."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
