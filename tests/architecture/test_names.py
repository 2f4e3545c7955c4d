"""Modules are named after what they hold, tests after what they show."""

import ast
import re

from tests.architecture.sources import ROOT, modules, shown, tree

EMPTY_NAMES = {"base", "common", "core", "handler", "helpers", "manager", "misc", "shared", "utils"}
EMPTY_TEST_NAMES = re.compile(r"test_(additional|coverage|extra|fixes|misc|more|.*_\d+)\.py")
WORDS_MIN = 3


def test_no_module_or_package_has_a_name_that_says_nothing() -> None:
    names = {shown(path): {path.stem, path.parent.name} for path in modules()}

    assert [path for path, words in names.items() if words & EMPTY_NAMES] == []


def test_no_name_tells_of_an_older_one() -> None:
    aged = re.compile(r"(^|_)(v\d+|new|old|legacy|deprecated)$")

    assert [shown(path) for path in modules() if aged.search(path.stem)] == []


def test_test_files_are_named_after_their_subject() -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))

    assert [shown(path) for path in files if EMPTY_TEST_NAMES.fullmatch(path.name)] == []


def test_a_test_name_is_a_sentence() -> None:
    short = [
        f"{shown(path)}: {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and len(node.name.split("_")[1:]) < WORDS_MIN
    ]

    assert short == []
