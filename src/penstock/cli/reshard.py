"""`penstock reshard`: give a topic another number of partitions."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli.addresses import URL_DEFAULT
from penstock.cli.connection import open_client
from penstock.cli.exits import FAILED
from penstock.cli.options import Bootstrap, Json, TopicName, Url
from penstock.cli.output import Output
from penstock.cli.spark import MASTER_DEFAULT, Master, Remote, needing_spark, spark_session
from penstock.cli.waiting import Progress
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.client import ReshardStatus
    from penstock.spark import (
        ReshardSettings,
        ReshardVerdict,
        SwitchOutcome,
        SwitchSettings,
    )

RUN = "run"

Partitions = Annotated[
    int, typer.Option("--partitions", "-p", min=1, show_default=False, help="How many.")
]
Into = Annotated[
    str | None,
    typer.Option(
        "--into",
        metavar="TOPIC",
        show_default=False,
        help="Leave the topic alone, and let the copy be a topic of its own.",
    ),
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
        help="With --into: a consumer group that goes on in the copy; may be repeated.",
    ),
]
DeleteOld = Annotated[
    bool,
    typer.Option("--delete-old", help="Delete the topic as it was, once its copy has its name."),
]


class RunByDefault(TyperGroup):
    """Takes what is not one of its commands for the topic that `run` begins with."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command in front that nobody has to write."""
        helped = {"-h", "--help"}
        if args and args[0] not in self.commands and args[0] not in helped:
            args = [RUN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=RunByDefault,
    help="Give a topic another number of partitions, on Spark."
    " `penstock reshard TOPIC ...` is short for `penstock reshard run TOPIC ...`.",
    no_args_is_help=True,
)


@app.command(RUN)
def run(
    topic: TopicName,
    *,
    partitions: Partitions,
    checkpoint: Checkpoint,
    into: Into = None,
    groups: MovedGroups = None,
    delete_old: DeleteOld = False,
    master: Master = MASTER_DEFAULT,
    remote: Remote = None,
    bootstrap: Bootstrap = "",
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Copy a topic into another number of partitions and let the copy take its name.

    Records of a key keep their order. The topic is copied while it is written to, and compared with
    its copy record by record. In the end writers are turned away for some seconds, and try again by
    themselves; the copy takes the topic's name and the topic is kept under another one. Consumer
    groups and queue groups go on at the first record that they are not done with. It may be killed
    and started again at any time.
    """
    if into is None and groups:
        raise InvalidRequest("--group goes with --into; all groups go on when the name is kept")
    if into is not None and delete_old:
        raise InvalidRequest("--delete-old does not go with --into, which keeps the topic")
    with needing_spark():
        from penstock.spark import ReshardSettings, SwitchSettings
    directory = checkpoint.expanduser().absolute()
    outcome: _Copied | _Switched
    with (
        Progress(is_silent=as_json) as progress,
        spark_session("reshard", master=master, remote=remote, progress=progress) as session,
    ):
        if into is None:
            switching = SwitchSettings(
                bootstrap=bootstrap,
                url=url,
                topic=topic,
                partitions=partitions,
                directory=directory,
            )
            outcome = _switch(session, switching, progress, delete_old=delete_old)
        else:
            copying = ReshardSettings(
                bootstrap=bootstrap,
                url=url,
                source=topic,
                target=into,
                partitions=partitions,
                directory=directory,
            )
            outcome = _copy(session, copying, groups or [], progress)
    Output(as_json=as_json).show(outcome.as_json(), outcome.as_text())
    if not outcome.is_sound:
        raise typer.Exit(FAILED)


@app.command()
def status(topic: TopicName, *, url: Url = URL_DEFAULT, as_json: Json = False) -> None:
    """Show how far the reshard of a topic is, and whether writes are turned away."""
    with open_client(url) as client:
        found = client.reshards.get(topic)
    Output(as_json=as_json).show(asdict(found), _told(found))


@app.command()
def cancel(topic: TopicName, *, url: Url = URL_DEFAULT, as_json: Json = False) -> None:
    """Forget the reshard of a topic and delete its copy; writes go on.

    A job that is still running ends with an error. After the switch nothing can be cancelled.
    """
    with open_client(url) as client:
        client.reshards.cancel(topic)
    Output(as_json=as_json).show(
        {"topic": topic, "cancelled": True}, f"Topic {topic} stays as it is; its copy is deleted."
    )


def _told(found: "ReshardStatus") -> str:
    counts = f"{found.partitions} partitions with {found.records:,} records"
    copy = (
        f"{found.target} has {found.target_partitions} with {found.target_records:,}"
        if found.target
        else "its copy is deleted"
    )
    phases = {
        "copying": "It takes writes.",
        "fenced": f"It takes no writes, behind fence {found.fence}.",
        "switched": "It was switched, and takes no writes any more.",
    }
    return f"Topic {found.topic} has {counts}; {copy}. {phases[found.phase]}"


@dataclass(frozen=True, slots=True)
class _Switched:
    topic: str
    found: "SwitchOutcome"

    @property
    def is_sound(self) -> bool:
        return self.found.is_switched

    def as_json(self) -> dict[str, Any]:
        return {"topic": self.topic, **asdict(self.found)}

    def as_text(self) -> str:
        found = self.found
        if not found.is_switched:
            return _unsound(f"the copy of {self.topic}", self.topic, found.verdict)
        if not found.verdict.records:
            return f"Topic {self.topic} is switched; {found.former} is the one before."
        return (
            f"Topic {self.topic} has its {found.verdict.records:,} records in other partitions,"
            f" each key in order. Writes were turned away for {found.fenced_s:.1f} s."
            f" {found.former} is the topic as it was."
        )


@dataclass(frozen=True, slots=True)
class _Copied:
    topic: str
    into: str
    copied: int
    verdict: "ReshardVerdict"
    groups: dict[str, dict[int, int]]

    @property
    def is_sound(self) -> bool:
        return self.verdict.is_sound

    def as_json(self) -> dict[str, Any]:
        return {"copied": self.copied, **asdict(self.verdict), "groups": self.groups}

    def as_text(self) -> str:
        found = self.verdict
        if not found.is_sound:
            return _unsound(self.into, self.topic, found)
        moved = f" Groups that go on there: {', '.join(self.groups)}." if self.groups else ""
        return (
            f"{self.into} holds all {found.records:,} records of {self.topic}, each key in"
            f" order.{moved}"
        )


def _unsound(copy: str, topic: str, found: "ReshardVerdict") -> str:
    return (
        f"{copy} is not a copy of {topic}: of {found.records:,} records {found.missing:,} are"
        f" missing and {found.out_of_order:,} out of order; {found.extra:,} are of another origin."
    )


def _switch(
    session: "SparkSession", settings: "SwitchSettings", progress: Progress, *, delete_old: bool
) -> _Switched:
    from penstock.spark import Switch

    switch = Switch(session, settings, progress.show)
    try:
        found = switch.run()
        if delete_old and found.is_switched:
            switch.delete_former()
    finally:
        switch.close()
    return _Switched(settings.topic, found)


def _copy(
    session: "SparkSession", settings: "ReshardSettings", groups: list[str], progress: Progress
) -> _Copied:
    from penstock.spark import Reshard

    job = Reshard(session, settings)
    copied = job.copy_in_rounds(progress.show)
    progress.show("comparing")
    verdict = job.verify()
    moved = {
        group: {place.partition: offset for place, offset in job.move_group(group).items()}
        for group in (groups if verdict.is_sound else [])
    }
    return _Copied(job.plan.source, job.plan.target, copied, verdict, moved)
