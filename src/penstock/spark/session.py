"""Spark sessions for jobs of Penstock."""

import os
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

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
        if error.getCondition() == "JAVA_GATEWAY_EXITED" and shutil.which("java") is None:
            raise PenstockError(JAVA_ADVICE) from None
        raise


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
    try:
        address = urlsplit(remote)
        host, port = address.hostname, address.port or CONNECT_PORT
    except ValueError:
        host, port = None, 0
    if not remote.startswith("sc://") or not host:
        raise InvalidRequest(f"{remote!r} is not the address of a Connect server: sc://HOST:PORT")
    try:
        socket.create_connection((host, port), CONNECT_WAIT_S).close()
    except OSError as error:
        raise Unavailable(
            f"no Spark Connect server answers at {host}:{port}: {error.strerror or error}"
        ) from None


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at once; a Connect server does not tell, unless it was set."""
    told = spark.conf.get("spark.default.parallelism", None)
    if told is not None:
        return int(told)
    is_remote = ".connect." in type(spark).__module__
    return PARALLELISM_REMOTE if is_remote else spark.sparkContext.defaultParallelism
