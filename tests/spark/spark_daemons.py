"""Processes of Spark that tests start: masters, workers, servers."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEADLINE_S = 400.0
# Java that starts fast: several of them run at once here.
ENVIRON = {
    **os.environ,
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "SPARK_LOCAL_IP": "127.0.0.1",
    # A Connect server looks for data sources with this Python.
    "PYSPARK_PYTHON": sys.executable,
}


@contextmanager
def started(log: Path, wanted: str, *arguments: str) -> Iterator[re.Match[str]]:
    """Run one daemon of Spark until the block ends; give what its log says."""
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(SPARK_CLASS), *arguments], stdout=out, stderr=out, env=ENVIRON
        )
    try:
        yield _wait_for(log, wanted)
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def _wait_for(log: Path, wanted: str) -> re.Match[str]:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if (match := re.search(wanted, log.read_text())) is not None:
            return match
        time.sleep(0.1)
    raise AssertionError(f"{wanted} is not in {log.read_text()[-2000:]}")
