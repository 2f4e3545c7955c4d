"""Clusters under names: how they are kept, and which one a command asks."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.contexts import Contexts, contexts_path, load_contexts
from penstock.cli.main import app
from penstock.cli.pipeline import addresses_of
from penstock.errors import InvalidContext
from penstock.pipelines import load_pipeline

# Nothing listens on the first ports of this machine, so an error names the address that was asked.
ONE, TWO, THREE, FOUR = (f"127.0.0.1:{port}" for port in range(1, 5))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PENSTOCK_BOOTSTRAP", "PENSTOCK_URL", "PENSTOCK_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def run(*args: str, **environ: str) -> Result:
    return CliRunner().invoke(app, args, env={"COLUMNS": "300", "NO_COLOR": "1", **environ})


def run_json(*args: str) -> Any:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def both_contexts() -> None:
    """The current one is at the first port, the other one at the second."""
    run_json("context", "set", "near", "-b", ONE, "-u", f"http://{ONE}", "--use")
    run_json("context", "set", "far", "-b", TWO, "-u", f"http://{TWO}")


def test_contexts_are_made_changed_listed_and_deleted() -> None:
    made = run_json("context", "set", "prod", "--bootstrap", "a:9092,b:9092")
    changed = run_json("context", "set", "prod", "--url", "http://a:8080,http://b:8080")
    used = run_json("context", "use", "prod")
    listed = run_json("context", "list")
    shown = run_json("context", "show")
    deleted = run_json("context", "delete", "prod")

    assert made == {"name": "prod", "bootstrap": "a:9092,b:9092", "url": None, "current": False}
    assert changed == {**made, "url": "http://a:8080,http://b:8080"}
    assert used == shown == {**changed, "current": True}
    assert listed == [used]
    assert deleted == {"name": "prod", "deleted": True}
    assert load_contexts() == Contexts()


def test_people_see_which_context_is_current() -> None:
    both_contexts()

    lines = run("context", "list").stdout.splitlines()

    assert lines[0].split() == ["current", "name", "bootstrap", "url"]
    assert lines[2].split() == ["far", TWO, f"http://{TWO}"]
    assert lines[3].split() == ["*", "near", ONE, f"http://{ONE}"]
    assert run("context", "show").stdout.startswith("near, the current context\n")
    assert "No context is current any more" in run("context", "delete", "near").stdout


def test_only_the_owner_can_read_the_file_and_nothing_is_left_beside_it() -> None:
    both_contexts()

    assert stat.S_IMODE(contexts_path().stat().st_mode) == 0o600
    assert list(contexts_path().parent.iterdir()) == [contexts_path()]


def test_a_file_that_is_a_link_stays_one(home: Path) -> None:
    kept = home / "kept.json"
    kept.write_text("{}")
    contexts_path().parent.mkdir()
    contexts_path().symlink_to(kept)

    both_contexts()

    assert contexts_path().is_symlink()
    assert json.loads(kept.read_text())["current"] == "near"


@pytest.mark.parametrize(
    ("args", "environ", "asked"),
    [
        (("topic", "list"), {}, ONE),
        (("cluster", "status"), {}, f"http://{ONE}"),
        (("topic", "list"), {"PENSTOCK_CONTEXT": "far"}, TWO),
        (("cluster", "status"), {"PENSTOCK_CONTEXT": "far"}, f"http://{TWO}"),
        (("topic", "list"), {"PENSTOCK_CONTEXT": "far", "PENSTOCK_BOOTSTRAP": THREE}, THREE),
        (("cluster", "status"), {"PENSTOCK_URL": f"http://{THREE}"}, f"http://{THREE}"),
        (("topic", "list"), {"PENSTOCK_URL": f"http://{THREE}"}, "localhost:9092"),
        (("--context", "far", "topic", "list"), {"PENSTOCK_BOOTSTRAP": THREE}, TWO),
        (("topic", "list", "--context", "far"), {"PENSTOCK_CONTEXT": "near"}, TWO),
        (("--context", "near", "topic", "list", "--context", "far"), {}, TWO),
        (("cluster", "status", "--context", "far"), {"PENSTOCK_URL": f"http://{THREE}"}, TWO),
        (("topic", "list", "-b", FOUR), {"PENSTOCK_CONTEXT": "far"}, FOUR),
        (("cluster", "status", "-u", f"http://{FOUR}"), {"PENSTOCK_CONTEXT": "far"}, FOUR),
    ],
)
def test_a_flag_beats_a_variable_and_a_variable_the_current_context(
    args: tuple[str, ...], environ: dict[str, str], asked: str
) -> None:
    both_contexts()

    result = run(*args, **environ)

    assert result.exit_code == 3, result.stderr
    assert f"can be reached at {asked.removeprefix('http://')}" in result.stderr.replace(
        "http://", ""
    )


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("cluster", "status", "--context", "kafka"), "context 'kafka' has no url"),
        (("topic", "list", "--context", "http"), "context 'http' has no bootstrap"),
        (("--context", "nowhere", "topic", "list"), "there is no context 'nowhere'"),
        (("topic", "list", "--context", "http", "-b", ONE), "so does --context http"),
        (("-b", ONE, "cluster", "status", "--context", "http"), "so does --context http"),
        (("--context", "kafka", "cluster", "status", "-u", f"http://{ONE}"), "--url names"),
        (("context", "use", "nowhere"), "there is no context 'nowhere'"),
        (("context", "delete", "nowhere"), "(http, kafka)"),
        (("context", "show"), "no context is current"),
        (("context", "set", "x"), "give --bootstrap, --url or both"),
        (("context", "set", "x y", "-b", ONE), "'x y' is no name of a context"),
    ],
)
def test_a_command_that_would_have_to_guess_its_cluster_is_refused(
    args: tuple[str, ...], told: str
) -> None:
    run_json("context", "set", "kafka", "-b", ONE)
    run_json("context", "set", "http", "-u", f"http://{ONE}")

    result = run(*args)

    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--bootstrap", "here:there"), "not HOST or HOST:PORT"),
        (("--url", "http://a:1,ftp://b"), "url is 'ftp://b'"),
    ],
)
def test_an_address_that_is_none_is_not_kept(args: tuple[str, ...], told: str) -> None:
    result = run("context", "set", "x", *args)

    assert result.exit_code == 1
    assert told in result.stderr
    assert load_contexts() == Contexts()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"contexts": 5}', b'{"contexts": {"a": {"key": 1}}}', b"\xff"]
)
def test_a_broken_file_is_told_with_its_path_and_asked_by_no_command_that_needs_it_not(
    content: bytes,
) -> None:
    contexts_path().parent.mkdir()
    contexts_path().write_bytes(content)

    for command in (("topic", "list"), ("context", "list"), ("context", "set", "x", "-b", ONE)):
        result = run(*command, "--json")
        error = json.loads(result.stderr)["error"]
        assert (result.exit_code, error["type"]) == (2, "InvalidContext")
        assert str(contexts_path()) in error["message"]
    assert contexts_path().read_bytes() == content
    assert run("version").exit_code == run("topic", "--help").exit_code == 0
    assert f"reached at {ONE}" in run("topic", "list", "-b", ONE).stderr


def test_a_current_context_that_is_gone_is_told() -> None:
    contexts_path().parent.mkdir()
    contexts_path().write_text('{"current": "gone"}')

    result = run("topic", "list")

    assert result.exit_code == 2
    assert "there is no context 'gone'" in result.stderr


def test_a_file_that_cannot_be_written_is_told(home: Path) -> None:
    (home / "penstock").write_text("in the way")

    result = run("context", "set", "x", "-b", ONE)

    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_the_place_follows_the_specification_of_xdg(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))

    kept = home / ".config/penstock/contexts.json"
    assert contexts_path({}) == contexts_path({"XDG_CONFIG_HOME": ""}) == kept
    assert contexts_path({"XDG_CONFIG_HOME": "relative"}) == kept
    assert contexts_path({"XDG_CONFIG_HOME": "/etc/user"}) == Path(
        "/etc/user/penstock/contexts.json"
    )


def test_where_there_is_no_home_there_are_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "expanduser", nobody)

    assert load_contexts() == Contexts()
    with pytest.raises(InvalidContext, match="set HOME or XDG_CONFIG_HOME"):
        contexts_path()


def test_a_pipeline_without_addresses_runs_on_the_current_context(home: Path) -> None:
    file = home / "copy.yml"
    text = (
        "checkpoint: state\n"
        "sources: {orders: {topic: orders}}\n"
        "sinks: {files: {from: orders, parquet: out}}\n"
    )
    file.write_text(text)
    bare = load_pipeline(file)
    file.write_text(f"bootstrap: {THREE}\n{text}")
    placed = load_pipeline(file)

    assert addresses_of(bare, None, None) == ("localhost:9092", None)
    both_contexts()
    assert addresses_of(bare, None, None) == (ONE, f"http://{ONE}")
    assert addresses_of(bare, FOUR, None) == (FOUR, None)
    assert addresses_of(placed, None, None) == (THREE, None)
