"""Rules about imports that the contracts in pyproject.toml cannot state."""

import ast
import tomllib
from pathlib import Path

import pytest

from tests.architecture.sources import (
    PACKAGE,
    ROOT,
    imports_of,
    modules,
    name_of,
    rooms,
    shown,
    tree,
)

# Entered by a side door: the log asks for parts of the batch format that the room keeps inside.
SIDE_DOORS = {"penstock.record.batch": "penstock.log"}
PURE_ROOMS = ("groups", "raft", "record")
IMPURE = {"asyncio", "logging", "os", "pathlib", "random", "secrets", "socket", "threading", "time"}


def room_of(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:3] if parts[1:2] == ["protocols"] else parts[:2])


def is_pure(module: str) -> bool:
    return module.split(".")[1:2] in [[room] for room in PURE_ROOMS] or module.endswith(".codec")


def test_every_room_has_its_place_in_the_contracts() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    text = str(settings["contracts"])

    for room in rooms():
        name = name_of(room / "__init__.py")
        assert name == "penstock.protocols" or f"{name}" in text, f"{name} is in no contract"


def test_a_room_is_entered_by_its_front_door() -> None:
    side_doors = [
        f"{name_of(path)} imports {module}"
        for path in modules()
        for module in imports_of(path)
        if module.startswith("penstock.")
        and room_of(module) not in (module, room_of(name_of(path)))
        and SIDE_DOORS.get(module) != room_of(name_of(path))
    ]

    assert side_doors == []


@pytest.mark.parametrize(
    "path", [path for path in modules() if is_pure(name_of(path))], ids=name_of
)
def test_plain_code_waits_for_nothing_and_touches_no_machine(path: Path) -> None:
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)

    assert IMPURE.isdisjoint(module.split(".")[0] for module in imports_of(path))
    assert not [node.lineno for node in ast.walk(tree(path)) if isinstance(node, waiting)]


def test_one_module_reads_the_time_and_one_the_environment() -> None:
    time_readers = {"time", "time_ns", "monotonic", "monotonic_ns", "now", "utcnow", "today"}
    time_sources = {"time", "datetime", "dt"}
    found: dict[str, set[str]] = {"time": set(), "environment": set()}
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id in time_sources and node.attr in time_readers:
                    found["time"].add(shown(path))
                if node.value.id == "os" and node.attr in ("environ", "getenv"):
                    found["environment"].add(shown(path))

    assert found["time"] == {shown(PACKAGE / "clock.py")}
    # Contexts of commands are read by the first and options by the second; by the others, libraries
    # are told to start no threads before a fork, and Spark which Python to start.
    assert found["environment"] == {
        shown(PACKAGE / "cli" / "contexts.py"),
        shown(PACKAGE / "cli" / "serve.py"),
        shown(PACKAGE / "spark" / "daemon.py"),
        shown(PACKAGE / "spark" / "session.py"),
    }
