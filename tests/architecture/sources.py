"""The files of the repository, for tests that read them."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
PACKAGE = SRC / "penstock"
_WRITTEN_IN = ("src", "tests", "benchmarks", "docs", "examples")
_TEXT = {".py", ".md", ".toml", ".txt", ".json", ".yml", ".yaml", ""}


def modules() -> list[Path]:
    """All modules of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def rooms() -> list[Path]:
    """All packages below `penstock`: the rooms, and the doors inside `protocols`."""
    return sorted(path.parent for path in PACKAGE.glob("*/**/__init__.py"))


def texts() -> Iterator[Path]:
    """Everything that people write in the repository."""
    for name in _WRITTEN_IN:
        for path in sorted((ROOT / name).rglob("*")):
            if path.is_file() and path.suffix in _TEXT and "__pycache__" not in path.parts:
                yield path
    for path in sorted(ROOT.iterdir()):
        # In a second worktree `.git` is a file that names the first one.
        if path.is_file() and path.suffix in _TEXT and path.name != ".git":
            yield path


@cache
def tree(path: Path) -> ast.Module:
    """Return a parsed module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    """Return the dotted name of a module."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[str]:
    """Yield the dotted names of the modules that a module imports, wherever it does so."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def shown(path: Path) -> str:
    """Return a path as people write it."""
    return path.relative_to(ROOT).as_posix()
