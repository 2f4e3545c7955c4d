"""Programs and commands of Penstock that end by themselves, in processes of their own."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.processes import NodeProcess
from tests.spark.spark_daemons import ENVIRON

DEADLINE_S = 800.0


def run_python(
    *arguments: str, environ: Mapping[str, str] = ENVIRON, directory: Path | None = None
) -> str:
    """Run Python to a good end; return what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=DEADLINE_S,
        env=environ, cwd=directory,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def consumed(node: NodeProcess, topic: str, *arguments: str) -> list[dict[str, Any]]:
    """Run `penstock consume` and return the messages that it writes."""
    command = ("-m", "penstock.cli", "consume", topic, "--json", *arguments)
    written = run_python(*command, "--bootstrap", node.bootstrap)
    return [json.loads(line) for line in written.splitlines()]
