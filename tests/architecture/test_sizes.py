"""Files and functions stay small enough to be read."""

import ast
import warnings
from pathlib import Path

from tests.architecture.sources import ROOT, modules, shown, tree

FILE_LINES_MAX = 800
FILE_LINES_NOTED = 400
FUNCTION_LINES_MAX = 70
# A command's signature is the list of its options, one below the other.
LONG_FUNCTIONS = {"src/penstock/cli/consume.py:consume"}


def python_files() -> list[Path]:
    below = ("tests", "benchmarks", "docs", "examples")
    return [*modules(), *(path for name in below for path in sorted((ROOT / name).rglob("*.py")))]


def test_no_file_has_a_second_room_inside() -> None:
    lines = {shown(path): len(path.read_text().splitlines()) for path in python_files()}

    noted = {name: count for name, count in lines.items() if count > FILE_LINES_NOTED}
    if noted:
        warnings.warn(f"longer than {FILE_LINES_NOTED} lines: {noted}", stacklevel=1)
    assert {name: count for name, count in lines.items() if count > FILE_LINES_MAX} == {}


def test_no_function_is_longer_than_a_screen_or_two() -> None:
    long = {
        f"{shown(path)}:{node.name}": node.end_lineno - node.lineno + 1
        for path in modules()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    }

    assert long.keys() <= LONG_FUNCTIONS, long
