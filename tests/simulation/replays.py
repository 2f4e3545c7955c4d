"""Histories that are played again by a command."""

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.architecture.sources import ROOT
from tests.simulation.world import Outcome


def broken(outcomes: Sequence[Outcome], *options: str) -> dict[str, str]:
    """Return what did not hold, by the command that plays it again."""
    command = " ".join(("python -m tests.simulation", *options))
    return {
        f"{command} --seed {outcome.seed}": outcome.violation
        for outcome in outcomes
        if outcome.violation
    }


def traces(*options: str) -> set[str]:
    """Play one history in two processes, each with its own order of sets of strings."""
    command = [sys.executable, "-m", "tests.simulation", *options]
    return {
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
