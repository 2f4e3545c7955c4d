"""`make run`, as a newcomer types it, in a directory of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import ROOT
from tests.kafka_clients import wait_until


def test_make_run_starts_a_node_and_says_how_to_try_it(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    out = tmp_path / "out"
    ports = ("PENSTOCK_KAFKA_PORT", "PENSTOCK_HTTP_PORT", "PENSTOCK_PEER_PORT")
    environ = {**os.environ, **dict.fromkeys(ports, "0")}
    # The environment is there already; what is tested is what comes after the installation.
    command = ["make", "-f", str(ROOT / "Makefile"), "-o", ".venv/.installed", "run"]
    with out.open("w") as file:
        make = subprocess.Popen(
            command, cwd=tmp_path, env=environ, stdout=file, start_new_session=True
        )
    try:
        wait_until(lambda: "consume greetings" in out.read_text(), "the node tells how to try it")
        # Ctrl-C in a terminal reaches everything that it runs.
        os.killpg(make.pid, signal.SIGINT)
        make.wait(120)
    finally:
        if make.poll() is None:
            os.killpg(make.pid, signal.SIGKILL)

    assert "Penstock is running. Kafka clients: 127.0.0.1:" in out.read_text()
    assert "  .venv/bin/penstock -b 127.0.0.1:" in out.read_text()
    assert (tmp_path / "data" / "LOCK").exists()


def test_a_node_tells_the_commands_as_they_are_reached_where_it_was_started(tmp_path: Path) -> None:
    (tmp_path / "own").symlink_to(sys.prefix)
    on_path = {**os.environ, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}

    assert "| penstock -b 127.0.0.1:" in _greeting(["penstock"], tmp_path, on_path)
    assert "| own/bin/penstock -b 127.0.0.1:" in _greeting(
        ["own/bin/penstock"], tmp_path, dict(os.environ)
    )


def _greeting(command: list[str], directory: Path, environ: dict[str, str]) -> str:
    out = directory / "out"
    ports = ("--kafka-port", "0", "--http-port", "0", "--peer-port", "0")
    with out.open("w") as file:
        node = subprocess.Popen(
            [*command, "serve", *ports], cwd=directory, env=environ, stdout=file
        )
    try:
        wait_until(lambda: "consume greetings" in out.read_text(), "the node tells how to try it")
    finally:
        node.kill()
        node.wait(120)
    return out.read_text()
