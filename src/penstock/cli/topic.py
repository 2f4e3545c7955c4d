"""`penstock topic`: create, list, describe, alter, delete, add partitions."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection import open_admin
from penstock.cli.options import Bootstrap, Json, TopicName, TopicNames, read_topic_settings
from penstock.cli.output import Grid, Output
from penstock.errors import TopicExists, TopicNotFound

if TYPE_CHECKING:
    from penstock.client import TopicDescription

app = typer.Typer(help="Create, inspect and change topics.", no_args_is_help=True)

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        show_default=False,
        help="Setting of the topic, such as retention.ms=7d; may be repeated.",
    ),
]


@app.command()
def create(
    name: TopicName,
    *,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, show_default="the node's default"),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, show_default="the node's default"),
    ] = None,
    settings: Settings = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed when the topic exists already.")
    ] = False,
    bootstrap: Bootstrap = "",
    as_json: Json = False,
) -> None:
    """Create a topic."""
    wanted = read_topic_settings(settings or [])
    admin = open_admin(bootstrap)
    from penstock.client import NewTopic

    topic = NewTopic(
        name=name, partitions=partitions, replication_factor=replication_factor, settings=wanted
    )
    output = Output(as_json=as_json)
    try:
        admin.create_topic(topic)
    except TopicExists:
        if not if_not_exists:
            raise
        output.show({"topic": name, "created": False}, f"Topic {name} exists already.")
        return
    output.show({"topic": name, "created": True}, f"Created topic {name}.")


@app.command("list")
def list_topics(bootstrap: Bootstrap = "", as_json: Json = False) -> None:
    """List all topics."""
    topics = open_admin(bootstrap).topics()
    rows = [(each.name, each.partitions, each.replicas) for each in topics]
    shown = Grid(("topic", "partitions", "replicas"), rows) if rows else "There are no topics."
    Output(as_json=as_json).show(topics, shown)


@app.command()
def describe(
    name: TopicName,
    *,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show settings that stand at their defaults, too.")
    ] = False,
    bootstrap: Bootstrap = "",
    as_json: Json = False,
) -> None:
    """Show the partitions, offsets and settings of one topic."""
    topic = open_admin(bootstrap).topic(name)
    shown = [each for each in topic.settings if show_all or not each.is_default]
    parts: list[str | Grid] = [f"Topic {name} (id {topic.topic_id})", _partitions(topic)]
    if shown:
        rows = [(each.name, each.value, each.is_default) for each in shown]
        parts.append(Grid(("setting", "value", "default"), rows))
    else:
        parts.append("All settings stand at their defaults; --all shows them.")
    Output(as_json=as_json).show(topic, *parts)


def _partitions(topic: "TopicDescription") -> Grid:
    columns = ("partition", "leader", "replicas", "in sync", "start", "end", "records")
    rows = []
    for each in topic.partitions:
        held = each.offsets
        offsets = (held.start, held.end, held.end - held.start) if held else (None, None, None)
        replicas = ", ".join(map(str, each.replicas))
        in_sync = ", ".join(map(str, each.in_sync))
        rows.append((each.partition, each.leader, replicas, in_sync, *offsets))
    return Grid(columns, rows)


@app.command()
def alter(
    name: TopicName,
    *,
    settings: Settings = None,
    resets: Annotated[
        list[str] | None,
        typer.Option(
            "--reset",
            metavar="NAME",
            show_default=False,
            help="Return a setting to its default; may be repeated.",
        ),
    ] = None,
    bootstrap: Bootstrap = "",
    as_json: Json = False,
) -> None:
    """Change settings of a topic: all of them, or none when one is refused."""
    changes = read_topic_settings(settings or [])
    defaults = resets or []
    if not changes and not defaults:
        raise typer.BadParameter("nothing to change.", param_hint="--set or --reset")
    open_admin(bootstrap).alter_settings(name, changes=changes, resets=defaults)
    told = [f"{key}={value}" for key, value in changes.items()]
    told += [f"{key} back to its default" for key in defaults]
    Output(as_json=as_json).show(
        {"topic": name, "set": changes, "reset": defaults},
        f"Altered topic {name}: {', '.join(told)}.",
    )


@app.command()
def delete(
    names: TopicNames,
    *,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed when a topic does not exist.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask a person first.")] = False,
    bootstrap: Bootstrap = "",
    as_json: Json = False,
) -> None:
    """Delete topics with all their records. Asks first when a person types it."""
    if sys.stdin.isatty() and not yes:
        typer.confirm(f"Delete {', '.join(names)} with all records?", abort=True, err=True)
    admin = open_admin(bootstrap)
    output = Output(as_json=as_json)
    for name in names:
        try:
            admin.delete_topic(name)
        except TopicNotFound:
            if not if_exists:
                raise
            output.show({"topic": name, "deleted": False}, f"There is no topic {name}.")
            continue
        output.show({"topic": name, "deleted": True}, f"Deleted topic {name}.")


@app.command("add-partitions")
def add_partitions(
    name: TopicName,
    total: Annotated[
        int,
        typer.Argument(metavar="TOTAL", min=1, show_default=False, help="Number after the change."),
    ],
    *,
    bootstrap: Bootstrap = "",
    as_json: Json = False,
) -> None:
    """Grow a topic to TOTAL partitions.

    Existing records stay where they are; new records of a key may go to another partition.
    """
    open_admin(bootstrap).add_partitions(name, total)
    Output(as_json=as_json).show(
        {"topic": name, "partitions": total}, f"Topic {name} has {total} partitions."
    )
