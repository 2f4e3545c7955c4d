"""Finds the functions that a file names, without running a line of their modules.

A module lies beside the file, or is one that Python finds. What it defines is read from its
source: a function with a `def` is checked for the number of arguments that it takes; a name that is
assigned or imported is believed.
"""

import ast
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path

from penstock.pipelines.model import FunctionName


def parse_function_name(text: str) -> FunctionName:
    """Read `module:function`; anything else is a `ValueError`."""
    module, colon, function = text.strip().partition(":")
    parts = [*module.split("."), function]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError("not module:function")
    return FunctionName(module, function)


def check_function(name: FunctionName, directory: Path, *, arguments: int) -> None:
    """Raise `ValueError` when a function is not there or cannot take so many arguments."""
    source = _source_of(name.module, directory)
    if source is None:
        return
    try:
        tree = ast.parse(source.read_bytes(), str(source))
    except SyntaxError as error:
        raise ValueError(f"but {source} line {error.lineno}: {error.msg}") from None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name.function:
            _check_arguments(node, arguments)
            return
    if not _binds(tree, name.function):
        raise ValueError(f"but {source} has no function {name.function}")


def _source_of(module: str, directory: Path) -> Path | None:
    """Return the file of a module; None when it is there and not written in Python."""
    path: list[str] | None = [str(directory), *sys.path]
    spec: ModuleSpec | None = None
    for part in module.split("."):
        spec = PathFinder.find_spec(part, path)
        if spec is None:
            raise ValueError(f"but there is no module {module} in {directory} or on Python's path")
        path = spec.submodule_search_locations
    assert spec is not None, "a name has at least one part"
    if spec.origin is None:
        raise ValueError(f"but {module} is a directory without __init__.py")
    return Path(spec.origin) if isinstance(spec.loader, SourceFileLoader) else None


def _check_arguments(node: ast.FunctionDef, arguments: int) -> None:
    given = node.args
    most = len(given.posonlyargs) + len(given.args)
    least = most - len(given.defaults)
    required_names = sum(default is None for default in given.kw_defaults)
    if required_names or arguments < least or (arguments > most and given.vararg is None):
        takes = f"{least}" if least == most else f"{least} to {most}"
        raise ValueError(f"but {node.name} takes {takes} arguments, it would get {arguments}")


def _binds(tree: ast.Module, name: str) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name:
            return True
        if isinstance(node, ast.ImportFrom | ast.Import) and any(
            (alias.asname or alias.name) in (name, "*") for alias in node.names
        ):
            return True
    return False
