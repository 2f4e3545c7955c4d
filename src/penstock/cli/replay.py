"""`penstock replay`: publish a window of a topic again, into another topic."""

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.addresses import URL_DEFAULT
from penstock.cli.options import Bootstrap, Json, TopicName, Url
from penstock.cli.output import Output
from penstock.cli.spark import MASTER_DEFAULT, Master, Remote, needing_spark, spark_session
from penstock.cli.storage import ArchivePath, StorageOptions, read_storage_options
from penstock.cli.times import read_time_ms
from penstock.cli.waiting import Progress


class Mode(StrEnum):
    """Whether messages are published together or as they are read."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


def replay(
    topic: TopicName,
    *,
    into: Annotated[
        str, typer.Option("--into", metavar="TOPIC", show_default=False, help="An existing topic.")
    ],
    from_time: Annotated[
        str | None,
        typer.Option("--from-time", show_default="the beginning", help="ISO 8601, epoch ms, -1h."),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", show_default="the end", help="Stop before this time."),
    ] = None,
    keep_partitions: Annotated[
        bool,
        typer.Option("--keep-partitions", help="Publish to the partitions of the originals."),
    ] = False,
    mode: Annotated[
        Mode, typer.Option("--mode", help="All together or none, or as they are read.")
    ] = Mode.EXACTLY_ONCE,
    archive: ArchivePath = None,
    storage: StorageOptions = None,
    master: Master = MASTER_DEFAULT,
    remote: Remote = None,
    bootstrap: Bootstrap = "",
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Publish messages of a topic again, with their keys, headers and timestamps, on Spark.

    What retention removed is read from the topic's archive. Messages of a key keep their order.
    """
    from_ms = read_time_ms(from_time, option="--from-time")
    to_ms = read_time_ms(to_time, option="--to-time")
    with needing_spark():
        from penstock.spark import Replay, run_replay
    wanted = Replay(
        bootstrap=bootstrap,
        url=url,
        topic=topic,
        into=into,
        from_ms=from_ms,
        to_ms=to_ms,
        archive_path=archive,
        storage=read_storage_options(storage),
        mode=mode.value,
        keeps_partitions=keep_partitions,
    )
    with (
        Progress(is_silent=as_json) as progress,
        spark_session("replay", master=master, remote=remote, progress=progress) as session,
    ):
        progress.show(f"replaying {topic} into {into}")
        messages = run_replay(session, wanted)
    Output(as_json=as_json).show(
        {"topic": topic, "into": into, "messages": messages},
        f"Published {messages} messages of {topic} into {into}.",
    )
