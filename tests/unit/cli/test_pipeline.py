"""`penstock pipeline` where no Spark is needed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app

RIGHT = """\
checkpoint: state
sources: {orders: {topic: orders}}
sinks: {files: {from: orders, parquet: out}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "copy.yml"
    path.write_text(RIGHT)
    return path


def test_a_right_file_ends_with_zero(file: Path) -> None:
    result = CliRunner().invoke(app, ["pipeline", "validate", str(file)])

    assert (result.exit_code, result.stdout) == (0, f"{file} is right.\n")


def test_all_problems_are_printed_and_the_end_tells_of_them(file: Path) -> None:
    file.write_text(RIGHT.replace("from: orders", "from: nothing").replace("check", "chek"))

    told = CliRunner().invoke(app, ["pipeline", "validate", str(file)])
    as_json = CliRunner().invoke(app, ["pipeline", "validate", "--json", str(file)])

    assert told.exit_code == as_json.exit_code == 1
    assert told.stdout.splitlines() == [
        f"{file}, line 1: checkpoint is missing",
        f"{file}, line 1: chekpoint: unknown key; did you mean checkpoint?",
        f"{file}, line 3: sinks.files.from: there is no view nothing; there are orders",
        "3 problems.",
    ]
    assert json.loads(as_json.stdout)["problems"][2] == {
        "line": 3,
        "path": "sinks.files.from",
        "problem": "there is no view nothing; there are orders",
    }


def test_a_file_with_problems_is_not_run(file: Path) -> None:
    file.write_text(RIGHT.replace("from: orders", "from: nothing"))

    result = CliRunner().invoke(app, ["pipeline", "run", str(file)])

    assert result.exit_code == 1
    assert "sinks.files.from: there is no view nothing" in result.stderr


def test_pipelines_of_a_directory_are_listed_with_their_states(file: Path) -> None:
    empty = CliRunner().invoke(app, ["pipeline", "list", str(file.parent / "empty")])
    listed = CliRunner().invoke(app, ["pipeline", "list", "--json", str(file.parent)])

    assert "There are no pipelines" in empty.stdout
    (state,) = json.loads(listed.stdout)
    assert (state["pipeline"], state["state"]) == ("copy", "new")
    assert state["sinks"][0] == {
        "sink": "files",
        "last_epoch": None,
        "done_ms": None,
        "has_begun_next": False,
    }
