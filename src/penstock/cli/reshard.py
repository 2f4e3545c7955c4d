"""`penstock reshard`: copy a topic into another number of partitions."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.exits import FAILED
from penstock.cli.options import URL_DEFAULT, Bootstrap, Json, TopicName, Url
from penstock.cli.output import Output
from penstock.cli.spark import MASTER_DEFAULT, Master, Remote, needing_spark, spark_session
from penstock.cli.waiting import Progress

if TYPE_CHECKING:
    from penstock.spark import Reshard, ReshardVerdict

# Writers may be faster than rounds are for ever; what is left then is told.
ROUNDS_MAX = 20

Partitions = Annotated[
    int, typer.Option("--partitions", "-p", min=1, show_default=False, help="How many.")
]
Into = Annotated[
    str, typer.Option("--into", metavar="TOPIC", show_default=False, help="The new topic.")
]
Checkpoint = Annotated[
    Path,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        show_default=False,
        help="Where progress is kept; the same command goes on there.",
    ),
]
MovedGroups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="GROUP",
        show_default=False,
        help="A consumer group that goes on in the new topic; may be repeated.",
    ),
]


def reshard(
    topic: TopicName,
    *,
    partitions: Partitions,
    into: Into,
    checkpoint: Checkpoint,
    groups: MovedGroups = None,
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
        from penstock.spark import Reshard, ReshardSettings
    settings = ReshardSettings(
        bootstrap=bootstrap,
        url=url,
        source=topic,
        target=into,
        partitions=partitions,
        directory=checkpoint.expanduser().absolute(),
    )
    with (
        Progress(is_silent=as_json) as progress,
        spark_session("reshard", master=master, remote=remote, progress=progress) as session,
    ):
        outcome = _run(Reshard(session, settings), groups or [], progress)
    Output(as_json=as_json).show(outcome.as_json(), outcome.as_text(topic, into))
    if not outcome.verdict.is_sound:
        raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class _Outcome:
    copied: int
    verdict: "ReshardVerdict"
    groups: dict[str, dict[int, int]]

    def as_json(self) -> dict[str, Any]:
        return {"copied": self.copied, **asdict(self.verdict), "groups": self.groups}

    def as_text(self, topic: str, into: str) -> str:
        found = self.verdict
        if not found.is_sound:
            return (
                f"{into} is not a copy of {topic}: of {found.records:,} records {found.missing:,}"
                f" are missing and {found.out_of_order:,} out of order; {found.extra:,} are of"
                " another origin."
            )
        moved = f" Groups that go on there: {', '.join(self.groups)}." if self.groups else ""
        return f"{into} holds all {found.records:,} records of {topic}, each key in order.{moved}"


def _run(job: "Reshard", groups: list[str], progress: Progress) -> _Outcome:
    copied = _copy(job, progress)
    progress.show("comparing")
    verdict = job.verify()
    moved = {
        group: {place.partition: offset for place, offset in job.move_group(group).items()}
        for group in (groups if verdict.is_sound else [])
    }
    return _Outcome(copied, verdict, moved)


def _copy(job: "Reshard", progress: Progress) -> int:
    copied = 0
    for number in range(1, ROUNDS_MAX + 1):
        progress.show(f"round {number}, {copied:,} records copied")
        found = job.copy()
        copied += found
        if not found:
            break
    return copied
