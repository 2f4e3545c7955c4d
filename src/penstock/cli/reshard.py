"""`penstock reshard`: copy a topic into another number of partitions."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exits import FAILED
from penstock.cli.options import URL_DEFAULT, Bootstrap, Json, TopicName, Url
from penstock.cli.output import Output
from penstock.cli.spark import MASTER_DEFAULT, Master, Remote, needing_spark
from penstock.cli.waiting import Progress

if TYPE_CHECKING:
    from penstock.spark import Reshard, ReshardVerdict

# Writers may be faster than rounds are for ever; what is left then is told.
ROUNDS_MAX = 20


def reshard(
    topic: TopicName,
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, show_default=False, help="How many.")
    ],
    into: Annotated[
        str, typer.Option("--into", metavar="TOPIC", show_default=False, help="The new topic.")
    ],
    checkpoint: Annotated[
        Path,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            show_default=False,
            help="Where progress is kept; the same command goes on there.",
        ),
    ],
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="GROUP",
            show_default=False,
            help="A consumer group that goes on in the new topic; may be repeated.",
        ),
    ] = None,
    master: Master = MASTER_DEFAULT,
    remote: Remote = None,
    bootstrap: Bootstrap = "",
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Copy a topic into one with another number of partitions, on Spark.

    Records of a key keep their order. The copy goes on in rounds until nothing is left, and is
    compared with the topic record by record. It may be killed and started again at any time. Run
    it while the topic is written to, stop the writers, run it again, and let clients use the copy.
    """
    with needing_spark():
        from penstock.spark import Reshard, ReshardSettings, open_session
    settings = ReshardSettings(
        bootstrap=bootstrap,
        url=url,
        source=topic,
        target=into,
        partitions=partitions,
        directory=checkpoint.expanduser().absolute(),
    )
    with Progress(is_silent=as_json) as progress:
        progress.show("starting Spark")
        session = open_session(
            "penstock reshard", master=master, remote=remote, settings={"spark.log.level": "ERROR"}
        )
        try:
            job = Reshard(session, settings)
            copied = _copy(job, progress)
            progress.show("comparing")
            verdict = job.verify()
            moved = groups or [] if verdict.is_sound else []
            positions = {group: job.move_group(group) for group in moved}
        finally:
            session.stop()
    outcome = {
        "copied": copied,
        **asdict(verdict),
        "groups": {
            group: {str(place.partition): offset for place, offset in offsets.items()}
            for group, offsets in positions.items()
        },
    }
    Output(as_json=as_json).show(outcome, _told(topic, into, verdict, list(positions)))
    if not verdict.is_sound:
        raise typer.Exit(FAILED)


def _copy(job: "Reshard", progress: Progress) -> int:
    copied = 0
    for number in range(1, ROUNDS_MAX + 1):
        progress.show(f"round {number}, {copied:,} records copied")
        found = job.copy()
        copied += found
        if not found:
            break
    return copied


def _told(topic: str, into: str, verdict: "ReshardVerdict", groups: list[str]) -> str:
    if not verdict.is_sound:
        return (
            f"{into} is not a copy of {topic}: of {verdict.records:,} records {verdict.missing:,}"
            f" are missing and {verdict.out_of_order:,} out of order; {verdict.extra:,} are of"
            " another origin."
        )
    moved = f" Groups that go on there: {', '.join(groups)}." if groups else ""
    return f"{into} holds all {verdict.records:,} records of {topic}, each key in order.{moved}"
