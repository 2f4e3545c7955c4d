"""`penstock insight`: what logs and delivery journals tell, counted by Spark."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.addresses import URL_DEFAULT
from penstock.cli.connection import open_admin
from penstock.cli.options import Bootstrap, Json, Url
from penstock.cli.output import Grid, Output
from penstock.cli.spark import MASTER_DEFAULT, Master, Remote, needing_spark, spark_session
from penstock.cli.storage import StorageOptions, read_storage_options
from penstock.cli.times import read_time_ms
from penstock.cli.waiting import Progress
from penstock.clock import SystemClock
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.insight import Report
    from penstock.spark import Scope

app = typer.Typer(help="Count traffic and deliveries on Spark.", no_args_is_help=True)

Topics = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]...", show_default="all topics", help="Topics to look at."),
]
FromTime = Annotated[
    str | None,
    typer.Option("--from-time", metavar="TIME", show_default=False, help="Not before this time."),
]
ToTime = Annotated[
    str | None,
    typer.Option("--to-time", metavar="TIME", show_default=False, help="Only before this time."),
]
IncludeDeleted = Annotated[
    bool,
    typer.Option("--include-deleted", help="Read what retention has removed from the archives."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        dir_okay=False,
        show_default=False,
        help="Write a page with plots, as HTML that needs nothing else.",
    ),
]


@app.command()
def traffic(
    topics: Topics = None,
    *,
    from_time: FromTime = None,
    to_time: ToTime = None,
    include_deleted: IncludeDeleted = False,
    storage: StorageOptions = None,
    out: Out = None,
    master: Master = MASTER_DEFAULT,
    remote: Remote = None,
    bootstrap: Bootstrap = "",
    as_json: Json = False,
) -> None:
    """Count records and bytes per partition; hot ones have over three times the mean rate."""
    with needing_spark():
        from penstock.spark import traffic_report
    scope = _scope(topics, from_time, to_time, bootstrap)
    scope = _with_archives(scope, storage) if include_deleted else scope
    _report(traffic_report, scope, master, remote, out, as_json=as_json)


@app.command("hot-keys")
def hot_keys(
    topics: Topics = None,
    *,
    from_time: FromTime = None,
    to_time: ToTime = None,
    include_deleted: IncludeDeleted = False,
    storage: StorageOptions = None,
    out: Out = None,
    master: Master = MASTER_DEFAULT,
    remote: Remote = None,
    bootstrap: Bootstrap = "",
    as_json: Json = False,
) -> None:
    """Find the keys that most records have."""
    with needing_spark():
        from penstock.spark import hot_keys_report
    scope = _scope(topics, from_time, to_time, bootstrap)
    scope = _with_archives(scope, storage) if include_deleted else scope
    _report(hot_keys_report, scope, master, remote, out, as_json=as_json)


@app.command()
def latency(
    topics: Topics = None,
    *,
    from_time: FromTime = None,
    to_time: ToTime = None,
    out: Out = None,
    master: Master = MASTER_DEFAULT,
    remote: Remote = None,
    bootstrap: Bootstrap = "",
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Measure the time from publish to ack for each queue group, by the time of the ack."""
    with needing_spark():
        from penstock.spark import latency_report
    scope = _scope(topics, from_time, to_time, bootstrap, url)
    _report(latency_report, scope, master, remote, out, as_json=as_json)


@app.command()
def deliveries(
    topics: Topics = None,
    *,
    from_time: FromTime = None,
    to_time: ToTime = None,
    out: Out = None,
    master: Master = MASTER_DEFAULT,
    remote: Remote = None,
    bootstrap: Bootstrap = "",
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Count acks, retries and dead letters with their reasons, and follow the lag of groups."""
    with needing_spark():
        from penstock.spark import deliveries_report
    scope = _scope(topics, from_time, to_time, bootstrap, url)
    _report(deliveries_report, scope, master, remote, out, as_json=as_json)


def _scope(
    topics: list[str] | None,
    from_time: str | None,
    to_time: str | None,
    bootstrap: str,
    url: str = URL_DEFAULT,
) -> "Scope":
    """Return what a report is about; without topics, all that there are."""
    from penstock.spark import Scope

    start_ms = read_time_ms(from_time, option="--from-time")
    end_ms = read_time_ms(to_time, option="--to-time")
    if start_ms is not None and end_ms is not None and start_ms >= end_ms:
        raise typer.BadParameter(f"{to_time!r} is not after --from-time.", param_hint="--to-time")
    if not topics:
        topics = [each.name for each in open_admin(bootstrap).topics()]
    if not topics:
        raise PenstockError("there are no topics")
    return Scope(
        topics=tuple(topics),
        bootstrap=bootstrap,
        url=url,
        start_ms=start_ms,
        end_ms=end_ms,
    )


def _with_archives(scope: "Scope", storage: list[str] | None) -> "Scope":
    return replace(scope, includes_deleted=True, storage=read_storage_options(storage))


def _report(
    count: "Callable[[SparkSession, Scope], Report]",
    scope: "Scope",
    master: str,
    remote: str | None,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    with (
        Progress(is_silent=as_json) as progress,
        spark_session("insight", master=master, remote=remote, progress=progress) as session,
    ):
        progress.begin("counting")
        report = count(session, scope)
    _show(report, out, as_json=as_json)


def _show(report: "Report", out: Path | None, *, as_json: bool) -> None:
    from penstock.insight import page_of

    parts: list[str | Grid] = [f"{report.title}: {', '.join(report.topics)}"]
    parts += [f"{name}: {value}" for name, value in report.figures]
    parts += report.notes
    parts += [
        Grid(table.columns, table.rows, title=table.title) for table in report.tables if table.rows
    ]
    if out is not None:
        out.write_text(page_of(report, made_ms=SystemClock().now_ms()), encoding="utf-8")
        parts.append(f"The page is {out}.")
    Output(as_json=as_json).show(report.as_json(), *parts)
