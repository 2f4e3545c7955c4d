"""What commands that run on Spark share: where it runs, and that it may not be installed."""

import logging
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.interruption import Interruption
from penstock.cli.spark_stderr import filtered_stderr
from penstock.cli.waiting import Progress
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_DEFAULT = "local[*]"
# Logged with traces by what connects Python to Java, when Ctrl-C comes while Java works.
_CUT_SHORT = (
    "KeyboardInterrupt while sending command.",
    "Exception while sending command.",
    "Exception occurred while shutting down connection",
)
_CUT_SHORT_LOGGERS = (logging.getLogger(), logging.getLogger("py4j.clientserver"))
# Rich reads square brackets as markup.
Master = Annotated[
    str,
    typer.Option(
        "--master", metavar="MASTER", help="Where Spark runs: local[*], spark://..., k8s://..."
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="sc://HOST:PORT",
        show_default=False,
        help="A Spark Connect server, in place of --master.",
    ),
]


@contextmanager
def needing_spark() -> Iterator[None]:
    """Say what to install where PySpark is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        text = f'this needs Spark: pip install "penstock[spark]" ({error})'
        raise PenstockError(text) from None


@contextmanager
def spark_session(
    name: str,
    *,
    master: str,
    remote: str | None,
    progress: Progress,
    settings: Mapping[str, str] | None = None,
) -> "Iterator[SparkSession]":
    """Start Spark for a job; however the job ends, Spark is stopped and failures are sentences."""
    with needing_spark():
        from pyspark.errors import PySparkException

        from penstock.spark import open_session, told_error
    progress.show(f"{name}: starting Spark")
    # Those of a Connect server are its own.
    common = _job_settings(master) if remote is None else {}
    with filtered_stderr():
        session = open_session(
            name, master=master, remote=remote, settings={**common, **(settings or {})}
        )
    with _interruptible():
        try:
            yield session
        except PySparkException as error:
            raise told_error(error) from None
        finally:
            session.stop()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a job, wherever it comes.

    Spark's own handler sends Java a command, perhaps in the middle of another one. Without that the
    connection is cut in the middle all the same, so whatever is raised after Ctrl-C is its doing.
    """
    is_interrupted = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    for each in _CUT_SHORT_LOGGERS:
        each.addFilter(_tells_something)
    try:
        yield
    except Exception:
        if is_interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        for each in _CUT_SHORT_LOGGERS:
            each.removeFilter(_tells_something)


def _tells_something(record: logging.LogRecord) -> bool:
    return record.msg not in _CUT_SHORT


@contextmanager
def ending_with(interruption: Interruption) -> Iterator[None]:
    """Let a service end well when Spark was told to end, too.

    Supervisors may send their signal to all processes of a service, Spark's among them. Then Spark
    is gone before the work has ended, which does no harm: what was cut short is repeated.
    """
    with needing_spark():
        from penstock.spark import SPARK_FAILURES, is_gone
    try:
        yield
    except SPARK_FAILURES as error:
        if not (interruption.is_requested and is_gone(error)):
            raise


def _job_settings(master: str) -> dict[str, str]:
    """Return settings for a job that somebody watches in a terminal.

    What ends a job is told by the command, in one sentence, so that Spark need not. On one machine
    Spark's two hundred parts of a shuffle are mostly empty, and each costs a task.
    """
    with needing_spark():
        from penstock.spark import QUIET_SETTINGS
    settings = dict(QUIET_SETTINGS)
    if master.startswith("local"):
        settings["spark.sql.shuffle.partitions"] = "4"
    return settings
