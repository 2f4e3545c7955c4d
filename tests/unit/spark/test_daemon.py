"""What the processes of Spark load, each looked at in a process of its own."""

import subprocess
import sys


def outcome_of(program: str) -> str:
    """Run a program and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout.strip()


def test_the_daemon_forks_from_a_process_with_one_thread() -> None:
    threads = outcome_of(
        """
import os
from penstock.spark import daemon
os.environ.update(daemon.THREADLESS)
daemon.load(daemon.RECORD_WORKER)
print(len(os.listdir("/proc/self/task")))
"""
    )

    assert threads == "1"


def test_planning_loads_no_compiler() -> None:
    loaded = outcome_of(
        """
import sys
from penstock.spark import daemon
daemon.load("pyspark.sql.worker.plan_data_source_read")
print("penstock.spark.readers" in sys.modules, "numba" in sys.modules)
"""
    )

    assert loaded == "True False"
