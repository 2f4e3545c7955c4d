"""What commands make of their arguments before they contact anyone."""

import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from penstock import __version__
from penstock.cli.exits import exit_code
from penstock.cli.main import app
from penstock.config import OPTIONS, NodeOptions
from penstock.errors import (
    DataDirectoryInUse,
    InvalidConfiguration,
    PenstockError,
    TimedOut,
    TopicExists,
)

# Nothing listens on port 1 of this machine, and the commands below must fail before they notice.
NOWHERE = {"PENSTOCK_BOOTSTRAP": "127.0.0.1:1", "COLUMNS": "200", "NO_COLOR": "1"}
ANYWHERE = ("--url", "http://127.0.0.1:1")


def run(*args: str, environ: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, args, env={**NOWHERE, **(environ or {})})


def test_the_version_is_printed_for_people_and_for_programs() -> None:
    assert run("version").stdout == f"penstock {__version__}\n"
    assert json.loads(run("version", "--json").stdout) == {"version": __version__}


@pytest.mark.parametrize("module", ["penstock", "penstock.cli"])
def test_the_package_is_run_like_the_command(module: str) -> None:
    right, wrong = (
        subprocess.run([sys.executable, "-m", module, *args], capture_output=True, text=True)
        for args in (["version"], ["nonsense"])
    )

    assert (right.returncode, right.stdout) == (0, f"penstock {__version__}\n")
    assert (wrong.returncode, wrong.stderr[:15]) == (2, "Usage: penstock")


def test_results_that_find_no_room_end_a_command_with_a_sentence() -> None:
    command = [sys.executable, "-m", "penstock", "--json", "version"]
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE)

    error = json.loads(result.stderr)["error"]
    assert (result.returncode, error["type"]) == (1, "PenstockError")
    assert "No space left on device" in error["message"]


def test_results_that_nobody_wants_end_a_command_with_a_sentence() -> None:
    command = f"{sys.executable} -m penstock version >&-"
    result = subprocess.run(command, shell=True, capture_output=True, text=True)

    assert result.returncode == 1
    assert result.stderr == "penstock: the results cannot be written: Bad file descriptor\n"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("topic", "create"), 2),
        (("topic", "describe"), 2),
        (("topic", "delete", "--yes"), 2),
        (("group", "describe"), 2),
        (("group", "delete"), 2),
        (("consume", "orders", "--group"), 2),
        (("group", "reset", "g", "--to-latest", "--topic"), 2),
        (("task", "enqueue", *ANYWHERE, "mail"), 1),
        (("schedule", "list", *ANYWHERE), 2),
    ],
)
def test_an_argument_that_is_no_text_is_refused(args: tuple[str, ...], code: int) -> None:
    command = [sys.executable, "-m", "penstock", *args, b"a\xff"]
    result = subprocess.run(command, capture_output=True, env={**os.environ, **NOWHERE})

    assert (result.returncode, b"Traceback" in result.stderr) == (code, False)
    assert b"is not UTF-8" in result.stderr


def test_json_may_be_asked_for_before_the_command_too() -> None:
    assert json.loads(run("--json", "version").stdout) == {"version": __version__}


def test_the_help_is_wrapped_at_the_width_of_the_terminal_alone() -> None:
    def words(*args: str) -> str:
        return run(*args, "--help", environ={"COLUMNS": "80"}).stdout

    lines = [line.strip() for line in words("consume").splitlines()]
    assert "With a queue group, which is asked for at --url, a message is acked only after" in lines
    assert " --url, else by --context, else by PENSTOCK_BOOTSTRAP" in words()


def test_the_help_tells_the_exit_codes() -> None:
    text = run("--help").stdout

    for words in ("0 done", "1 the operation failed", "3 no broker could be reached"):
        assert words in text


def test_the_help_of_serve_has_a_flag_for_every_option() -> None:
    text = run("serve", "--help").stdout

    for option in OPTIONS.values():
        assert option.flag in text


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("topic", "create", "x", "--set", "retention.ms"), "is not NAME=VALUE"),
        (("topic", "create", "x", "--set", "retention.ms=5q"), "retention.ms is '5q'"),
        (("topic", "create", "x", "--partitions", "0"), "--partitions"),
        (("topic", "alter", "x"), "nothing to change"),
        (("produce", "x", "--header", "novalue"), "is not NAME=VALUE"),
        (("produce", "x", "--key", "a", "--key-separator", ":"), "cannot be used with --key"),
        (("produce", "x", "--acks", "2"), "--acks"),
        (("produce", "x", "--compression", "rar"), "--compression"),
        (("produce", "x", "--timestamp", "soon"), "'soon' is not a time like"),
        (("consume", "x", "--from-time", "soon"), "'soon' is not a time like"),
        (("consume", "x", "--from-time", "9", "--to-time", "9"), "it is not after --from-time"),
        (("consume", "x", "--offset", "x"), "is not a number, beginning, end or -N"),
        (("consume", "x", "--from-beginning", "--offset", "3"), "choose one start"),
        (("consume", "x", "--group", "g", "--offset", "3"), "a group decides"),
        (("consume", "x", "--group", "g", "--partition", "3"), "a group decides"),
        (("consume", "x", "--format", "%z"), "%z is not one of"),
        (("consume", "x", "-n", "0"), "-n"),
        (("group", "reset", "g"), "0 of them are given, not one"),
        (("group", "reset", "g", "--to-latest", "--to-earliest"), "2 of them are given, not one"),
        (
            ("group", "reset", "g", "--to-latest", "--topic", "t:x"),
            "is not TOPIC or TOPIC:PARTITION",
        ),
        (("trace", "orders", *ANYWHERE), "'orders' is not a topic and an id"),
        (("trace", "/0-1", *ANYWHERE), "'/0-1' is not a topic and an id"),
        (("dlq", "edit", "x", "0-1", *ANYWHERE), "nothing to change"),
        (("dlq", "edit", "x", "0-1", "-H", "by", *ANYWHERE), "'by' is not NAME=VALUE"),
        (
            ("dlq", "edit", "x", "0-1", "-k", "a", "--no-key", *ANYWHERE),
            "cannot be used with --no-key",
        ),
        (("no-such-command",), "no-such-command"),
    ],
)
def test_a_mistyped_command_exits_with_2_and_says_what_is_wrong(
    args: tuple[str, ...], told: str
) -> None:
    result = run(*args)

    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "args",
    [
        ("topic", "list"),
        ("group", "list"),
        ("produce", "t", "--value", "x"),
        ("consume", "t"),
    ],
)
def test_an_unreachable_broker_exits_with_3_and_says_what_to_try(args: tuple[str, ...]) -> None:
    result = run(*args)

    assert result.exit_code == 3
    assert "no broker can be reached at 127.0.0.1:1 (Connection refused)" in result.stderr
    assert "`penstock serve` starts a node" in result.stderr


def test_an_error_is_json_where_json_is_asked_for() -> None:
    result = run("topic", "list", "--json")

    assert json.loads(result.stderr) == {
        "error": {
            "type": "Unavailable",
            "message": "no broker can be reached at 127.0.0.1:1 (Connection refused)",
            "retryable": True,
        }
    }


def test_a_bootstrap_after_the_command_wins_over_the_environment() -> None:
    result = run("topic", "list", "-b", "127.0.0.1:2")

    assert "127.0.0.1:2" in result.stderr


def test_a_bootstrap_that_is_no_address_fails_with_its_value() -> None:
    result = run("topic", "list", "-b", "here:there")

    assert result.exit_code == 1
    assert "bootstrap is 'here:there', not HOST or HOST:PORT" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("dlq", "purge", "t"),
        ("schedule", "list", "t"),
        ("trace", "t", "0-0"),
        ("task", "stats"),
        ("cluster", "remove-node", "1"),
        ("archive", "disable", "t"),
        ("reshard", "cancel", "t"),
        ("consume", "t", "--queue", "billing"),
        ("replay", "t", "--into", "u"),
        ("insight", "latency", "t"),
    ],
)
def test_a_command_that_speaks_http_does_not_leave_the_given_cluster_for_the_default(
    args: tuple[str, ...],
) -> None:
    told = "bootstrap is {!r}, but this command speaks HTTP and would ask http://127.0.0.1:8080"
    by_environment = run(*args)
    before = run("-b", "prod:9092", *args, environ={"PENSTOCK_BOOTSTRAP": ""})

    assert (by_environment.exit_code, before.exit_code) == (2, 2)
    assert told.format("127.0.0.1:1") in by_environment.stderr
    assert told.format("prod:9092") in before.stderr
    assert "--url or PENSTOCK_URL" in before.stderr


@pytest.mark.parametrize("command", ["consume", "replay"])
def test_a_bootstrap_after_a_command_that_speaks_http_wants_a_url_too(command: str) -> None:
    rest = {"consume": ("--queue", "billing"), "replay": ("--into", "u")}[command]
    result = run(command, "t", *rest, "-b", "prod:9092", environ={"PENSTOCK_BOOTSTRAP": ""})

    assert result.exit_code == 2
    assert "bootstrap is 'prod:9092', but this command speaks HTTP" in result.stderr


@pytest.mark.parametrize(
    ("args", "environ"),
    [
        (("--url", "http://127.0.0.1:1"), {}),
        ((), {"PENSTOCK_URL": "http://127.0.0.1:1"}),
    ],
)
def test_a_url_beside_a_bootstrap_is_followed(
    args: tuple[str, ...], environ: dict[str, str]
) -> None:
    result = run("-b", "prod:9092", "dlq", "list", "t", *args, environ=environ)

    assert result.exit_code == 3
    assert "127.0.0.1:1" in result.stderr


def test_consume_without_a_queue_needs_no_url() -> None:
    result = run("consume", "t", "-b", "127.0.0.1:2")

    assert result.exit_code == 3
    assert "127.0.0.1:2" in result.stderr


def test_serve_reports_every_mistake_at_once_and_starts_nothing() -> None:
    result = run("serve", "--kafka-port", "x", environ={"PENSTOCK_HTTP_PORT": "y"})

    assert result.exit_code == 2
    assert "flag --kafka-port: kafka_port is 'x', not a whole number" in result.stderr
    assert "variable PENSTOCK_HTTP_PORT: http_port is 'y', not a whole number" in result.stderr


def put_node_in_place(monkeypatch: pytest.MonkeyPatch, run: Callable[[NodeOptions], None]) -> None:
    node = types.ModuleType("penstock.node")
    node.__dict__["run"] = run
    monkeypatch.setitem(sys.modules, "penstock.node", node)


def test_serve_hands_all_options_to_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[NodeOptions] = []
    put_node_in_place(monkeypatch, started.append)

    result = run("serve", "--kafka-port", "0", environ={"PENSTOCK_SEGMENT_BYTES": "1MiB"})

    assert result.exit_code == 0
    assert started == [NodeOptions(kafka_port=0, segment_bytes=2**20)]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--json", "--no-such"), "--no-such"),
        (("--json",), "Missing command"),
        (("--json", "topic"), "Missing command"),
        (("no-such-command", "--json"), "no-such-command"),
        (("topic", "create", "--json"), "TOPIC"),
        (("topic", "create", "t", "--partitions", "many", "--json"), "--partitions"),
        (("produce", "t", "--header", "novalue", "--json"), "is not NAME=VALUE"),
        (("--json", "consume", "t", "--no-such"), "--no-such"),
    ],
)
def test_a_mistyped_command_is_told_as_json_where_json_is_asked_for(
    args: tuple[str, ...], told: str
) -> None:
    result = run(*args)

    assert result.exit_code == 2
    error = json.loads(result.stderr)["error"]
    assert error.keys() == {"type", "message", "retryable"}
    assert error["type"] == "UsageError"
    assert told in error["message"]
    assert error["retryable"] is False


def test_json_that_is_no_option_is_not_asked_for() -> None:
    result = run("topic", "create", "--no-such", "--", "--json")

    assert result.exit_code == 2
    assert "Usage:" in result.stderr


def test_what_a_person_does_not_confirm_is_told_as_json_where_json_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("typer.confirm", lambda *_, **__: (_ for _ in ()).throw(typer.Abort))
    monkeypatch.setattr("penstock.cli.topic.sys", types.SimpleNamespace(stdin=Terminal()))

    told, as_json = run("topic", "delete", "t"), run("topic", "delete", "t", "--json")

    assert (told.exit_code, as_json.exit_code) == (1, 1)
    assert "Aborted" in told.stderr
    assert json.loads(as_json.stderr)["error"]["type"] == "Aborted"


class Terminal:
    """Where a person types."""

    def isatty(self) -> bool:
        return True


def test_a_node_that_cannot_start_tells_why_like_any_other_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_options: NodeOptions) -> None:
        raise DataDirectoryInUse("data is in use")

    put_node_in_place(monkeypatch, refuse)

    told, as_json = run("serve"), run("--json", "serve")

    assert (told.exit_code, as_json.exit_code) == (1, 1)
    assert told.stderr.startswith("penstock: data is in use\nStop the other node")
    assert json.loads(as_json.stderr)["error"]["type"] == "DataDirectoryInUse"


@pytest.mark.parametrize(
    ("error", "code"),
    [(TimedOut("x"), 3), (TopicExists("x"), 1), (InvalidConfiguration("x"), 2)],
)
def test_an_exit_code_tells_the_kind_of_failure(error: PenstockError, code: int) -> None:
    assert exit_code(error) == code


def test_help_does_not_load_what_only_other_commands_need() -> None:
    check = (
        "import sys; import penstock.cli; "
        "heavy = {'confluent_kafka', 'rich', 'yaml', 'starlette', 'penstock.log'}; "
        "print(*sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)

    assert (result.stdout.strip(), result.stderr) == ("", "")
