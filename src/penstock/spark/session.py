"""Spark sessions for jobs of Penstock."""

import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.errors import InvalidRequest, PenstockError, Unavailable

MASTER_DEFAULT = "local[*]"
PARALLELISM_REMOTE = 8
CONNECT_PORT = 15002
CONNECT_WAIT_S = 10.0
JAVA_ADVICE = (
    "Spark needs Java 17 or newer and found none: install it, on Debian with"
    " `apt install openjdk-17-jre-headless`, or set JAVA_HOME"
)
_STANDALONE = "spark://"
_MASTER = re.compile(r"local(\[(\*|\d+)(,\d+)?\])?|local-cluster\[.+\]|spark://.+|k8s://.+|yarn")
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.daemon.module": "penstock.spark.daemon",
}
# By itself Spark starts four programs, such as chmod, to write one file of a local checkpoint, and
# writes a checksum of Hadoop's beside its own. These take a micro-batch to less than half the time.
LOCAL_SETTINGS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.driver.defaultJavaOptions": "-Djdk.lang.Process.launchMechanism=VFORK",
}
# For commands that tell by themselves what ends a job; `spark.log.level` goes before it.
QUIET_SETTINGS = {
    "spark.driver.extraJavaOptions": (
        f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties").as_uri()}"'
    ),
    "spark.ui.showConsoleProgress": "false",
}


def open_session(
    name: str,
    *,
    master: str = MASTER_DEFAULT,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session; without Java the error says what to install.

    `remote` is the address of a Connect server, `sc://host:port`, which then does what a master
    does otherwise; settings of the process that it runs in are its own.
    """
    if remote is not None:
        return _remote_session(name, remote, settings or {})
    _check_master(master)
    # Spark's Java side takes the Python of its workers from here; the first one on the path may
    # have no Penstock.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    local = LOCAL_SETTINGS if master.startswith("local") else {}
    for key, value in {**SETTINGS, **local, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise PenstockError(_why_java_ended()) from None
        raise
    except Py4JError as error:
        raise PenstockError(f"Spark does not start on {master}: {_told_by_java(error)}") from None


def _check_master(master: str) -> None:
    """Raise at once what Spark would tell in a trace, or after a minute."""
    if not _MASTER.fullmatch(master):
        raise InvalidRequest(
            f"{master!r} is not where Spark can run: local[N], spark://HOST:PORT, k8s://... or yarn"
        )
    if master.startswith(_STANDALONE):
        _look_for_masters(master)


def _look_for_masters(master: str) -> None:
    listed = master.removeprefix(_STANDALONE).split(",")
    addresses = [_address(f"{_STANDALONE}{each}") for each in listed]
    refusals = []
    for address in addresses:
        if address is None or not address[1]:
            raise InvalidRequest(f"{master!r} is not the address of a master: spark://HOST:PORT")
    for host, port in filter(None, addresses):
        refusal = _refusal(host, port)
        if refusal is None:
            return
        refusals.append(f"{host}:{port}: {refusal}")
    raise Unavailable(f"no Spark master answers at {'; '.join(refusals)}")


def _why_java_ended() -> str:
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").exists():
        return f"JAVA_HOME is {home!r}, which has no bin/java; Spark needs Java 17 or newer"
    if shutil.which("java") is None:
        return JAVA_ADVICE
    return "Spark's Java process ended before it was ready; what it said stands above"


def _told_by_java(error: Exception) -> str:
    # The first line is about the call; the second has the exception after a colon.
    lines = [line for line in str(error).splitlines() if line.startswith(": ")]
    return lines[0].removeprefix(": ") if lines else str(error).partition("\n")[0]


def _remote_session(name: str, remote: str, settings: Mapping[str, str]) -> SparkSession:
    _look_for_server(remote)
    builder = SparkSession.builder.appName(name).remote(remote)
    for key, value in {"spark.sql.session.timeZone": "UTC", **settings}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except ImportError as error:
        raise PenstockError(f'--remote needs `pip install "pyspark[connect]"`: {error}') from None


def _look_for_server(remote: str) -> None:
    """Raise at once when nobody listens: Spark's client would try again for many minutes."""
    address = _address(remote)
    if not remote.startswith("sc://") or address is None:
        raise InvalidRequest(f"{remote!r} is not the address of a Connect server: sc://HOST:PORT")
    host, port = address[0], address[1] or CONNECT_PORT
    refusal = _refusal(host, port)
    if refusal is not None:
        raise Unavailable(f"no Spark Connect server answers at {host}:{port}: {refusal}")


def _address(url: str) -> tuple[str, int] | None:
    """Return host and port, 0 where there is none; None when the address is no address."""
    try:
        parts = urlsplit(url)
        return (parts.hostname, parts.port or 0) if parts.hostname else None
    except ValueError:
        return None


def _refusal(host: str, port: int) -> str | None:
    """Return why nobody listens at an address; None when somebody does."""
    try:
        socket.create_connection((host, port), CONNECT_WAIT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at once; a Connect server does not tell, unless it was set."""
    told = spark.conf.get("spark.default.parallelism", None)
    if told is not None:
        return int(told)
    is_remote = ".connect." in type(spark).__module__
    return PARALLELISM_REMOTE if is_remote else spark.sparkContext.defaultParallelism
