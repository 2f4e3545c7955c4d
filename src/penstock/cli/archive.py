"""`penstock archive`: keep what retention removes, in a Delta table."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.addresses import URL_DEFAULT
from penstock.cli.connection import open_client
from penstock.cli.exits import FAILED
from penstock.cli.interruption import Interruption
from penstock.cli.options import Bootstrap, Json, TopicName, Url
from penstock.cli.output import Grid, Output
from penstock.cli.spark import (
    MASTER_DEFAULT,
    Master,
    Remote,
    ending_with,
    needing_spark,
    spark_session,
)
from penstock.cli.storage import StorageOptions, read_storage_options
from penstock.cli.times import read_duration_s, show_time
from penstock.cli.waiting import Progress
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.client import ArchiveState
    from penstock.spark import ArchiveStatus, Verdict

SETTING = "archive.path"

app = typer.Typer(
    help="Keep what retention removes, in a Delta table on any disk or object store.",
    no_args_is_help=True,
)


@app.command()
def enable(
    topic: TopicName,
    *,
    to: Annotated[
        str,
        typer.Option("--to", metavar="PATH", show_default=False, help="Directory or s3://..."),
    ],
    storage: StorageOptions = None,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Archive a topic: from now on, retention waits for `penstock archive run`.

    Several topics may share one archive, which is created where there is none.
    """
    path = to if "://" in to else str(Path(to).expanduser().absolute())
    with needing_spark():
        from penstock.spark import ArchiveLocation, ArchiveTable
    with open_client(url) as client:
        client.topic(topic)
        ArchiveTable.create(ArchiveLocation(path, read_storage_options(storage)))
        client.alter_topic(topic, settings={SETTING: path})
    Output(as_json=as_json).show(
        {"topic": topic, "path": path},
        f"Topic {topic} is archived to {path}; `penstock archive run` does it.",
    )


@app.command()
def disable(topic: TopicName, *, url: Url = URL_DEFAULT, as_json: Json = False) -> None:
    """Archive a topic no longer: retention does not wait. What is archived stays."""
    with open_client(url) as client:
        path = _enabled(client.archives.get(topic)).path
        client.alter_topic(topic, settings={SETTING: None})
    Output(as_json=as_json).show(
        {"topic": topic, "path": path},
        f"Topic {topic} is not archived any more; {path} keeps what it holds.",
    )


@app.command()
def run(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]...", show_default="all that have an archive"),
    ] = None,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="End when all that is there now is archived.")
    ] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="How often files are written.")
    ] = "60s",
    storage: StorageOptions = None,
    master: Master = MASTER_DEFAULT,
    remote: Remote = None,
    bootstrap: Bootstrap = "",
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Archive topics until Ctrl-C or SIGTERM, on Spark.

    It may be killed and started again at any time: each record is archived once. Small files are
    put together on the way. With --json, the state at the end is printed.
    """
    every_s = read_duration_s(every, option="--every")
    with needing_spark():
        from penstock.spark import ArchiveService, ArchiveServiceSettings, ArchiveStatus
    settings = ArchiveServiceSettings(
        bootstrap=bootstrap,
        url=url,
        topics=tuple(topics or ()),
        storage=tuple(read_storage_options(storage).items()),
        every_s=every_s,
    )
    done: list[ArchiveStatus] = []
    with (
        Interruption() as interruption,
        Progress(is_silent=as_json) as progress,
        ending_with(interruption),
        spark_session("archive", master=master, remote=remote, progress=progress) as session,
    ):
        interruption.hold()
        service = ArchiveService(session, settings, progress.show)
        archive = service.run_once if once else service.run
        done = archive(lambda: interruption.is_requested)
    if interruption.is_requested and not done:
        Output(as_json=as_json).show([], "stopped")
    else:
        _show(done, Output(as_json=as_json))


@app.command()
def status(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", show_default="all that have an archive")
    ] = None,
    *,
    storage: StorageOptions = None,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show up to which offset and time topics are archived, and what that takes."""
    with needing_spark():
        from penstock.spark import archive_statuses
    topics = [] if topic is None else [topic]
    _show(archive_statuses(url, topics, read_storage_options(storage)), Output(as_json=as_json))


@app.command()
def verify(
    topic: TopicName,
    *,
    storage: StorageOptions = None,
    bootstrap: Bootstrap = "",
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Compare the archive of a topic with the log, record by record, where both have it.

    Of the archive alone, offsets are checked and a checksum is made. Ends with 1 when something is
    missing, doubled or different.
    """
    with needing_spark():
        from penstock.spark import verify_archive
    with open_client(url) as client:
        state = _enabled(client.archives.get(topic))
        compacts = "compact" in client.topic(topic).settings["cleanup.policy"].value
    with Progress(is_silent=as_json) as progress:
        verdicts = verify_archive(
            bootstrap, state, read_storage_options(storage), show=progress.show
        )
    is_sound = all(each.is_sound(compacts=compacts) for each in verdicts)
    Output(as_json=as_json).show(
        {"topic": topic, "sound": is_sound, "partitions": verdicts},
        _verdicts(verdicts),
        f"The archive of {topic} is {'sound' if is_sound else 'NOT sound'}.",
    )
    if not is_sound:
        raise typer.Exit(FAILED)


@app.command()
def compact(
    topic: TopicName,
    *,
    storage: StorageOptions = None,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Put small files of an archive together now, and remove what no version names for a week."""
    with needing_spark():
        from penstock.spark import (
            ArchivedTopicId,
            ArchiveLocation,
            ArchiveTable,
            compact_archive,
        )
    with open_client(url) as client:
        state = _enabled(client.archives.get(topic))
    table = ArchiveTable.open(ArchiveLocation(state.path, read_storage_options(storage)))
    done = compact_archive(table, ArchivedTopicId(topic, state.topic_id), files_min=2)
    removed = table.vacuum()
    Output(as_json=as_json).show(
        {"topic": topic, **asdict(done), "files_removed": removed},
        f"{done.files_before} files became {done.files_after}; {removed} old ones were removed.",
    )


def _enabled(state: "ArchiveState") -> "ArchiveState":
    if not state.path:
        raise InvalidRequest(
            f"topic {state.topic} has no archive; `penstock archive enable {state.topic} --to PATH`"
            " makes one"
        )
    return state


def _show(statuses: "list[ArchiveStatus]", output: Output) -> None:
    if not statuses:
        output.show([], "No topic has an archive; `penstock archive enable` makes one.")
        return
    parts: list[str | Grid] = []
    for each in statuses:
        title = f"{each.topic}: {each.records} records, {each.files} files,"
        parts.append(f"{title} {each.size_bytes} bytes in {each.path}")
        parts.append(_partitions(each))
    output.show([_as_json(each) for each in statuses], *parts)


def _partitions(status: "ArchiveStatus") -> Grid:
    columns = ("partition", "archived to", "until", "log start", "log end", "lag", "reported")
    rows = [
        (
            each.partition,
            each.archived,
            show_time(each.archived_until_ms),
            each.log_start,
            each.log_end,
            each.lag,
            each.reported,
        )
        for each in status.partitions
    ]
    return Grid(columns, rows)


def _as_json(status: "ArchiveStatus") -> dict[str, Any]:
    partitions = [{**asdict(each), "lag": each.lag} for each in status.partitions]
    return {**asdict(status), "lag": status.lag, "partitions": partitions}


def _verdicts(verdicts: "list[Verdict]") -> Grid:
    columns = (
        "partition", "archived", "gaps", "repeated", "compared", "only in log", "only in archive",
        "different", "checksum",
    )  # fmt: skip
    rows = [
        (
            each.partition,
            each.records,
            each.missing_offsets,
            each.repeated,
            each.compared,
            each.only_in_log,
            each.only_in_archive,
            each.different,
            each.checksum,
        )
        for each in verdicts
    ]
    return Grid(columns, rows)
