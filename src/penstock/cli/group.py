"""`penstock group`: list, describe, reset, delete."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection import open_admin, open_groups
from penstock.cli.moves import (
    Move,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    plan_moves,
)
from penstock.cli.options import Bootstrap, GroupName, GroupNames, Json, read_names
from penstock.cli.output import Grid, Output
from penstock.cli.times import read_time_ms
from penstock.errors import GroupNotEmpty, GroupNotFound, TopicNotFound
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client import Admin, GroupDescription

app = typer.Typer(help="Inspect consumer groups and move their offsets.", no_args_is_help=True)


@app.command("list")
def list_groups(bootstrap: Bootstrap = "", as_json: Json = False) -> None:
    """List all consumer groups and share groups."""
    groups = open_groups(open_admin(bootstrap)).list_with_share_groups()
    rows = [(each.name, each.kind, each.state, each.protocol) for each in groups]
    shown = Grid(("group", "kind", "state", "protocol"), rows) if rows else "There are no groups."
    Output(as_json=as_json).show(groups, shown)


@app.command()
def describe(name: GroupName, *, bootstrap: Bootstrap = "", as_json: Json = False) -> None:
    """Show the members of a group, what they read, and how far they lag behind."""
    group = open_groups(open_admin(bootstrap)).describe(name)
    head = f"Group {name}: {group.state}, {group.protocol} protocol, assignor {group.assignor}"
    lags = [each.lag for each in group.progress if each.lag is not None]
    behind = (
        f"{sum(lags)} records and {group.lag_s:.1f} s" if group.lag_s else f"{sum(lags)} records"
    )
    parts: list[str | Grid] = [f"{head}, {behind} behind."]
    parts.append(_members(group) if group.members else "It has no members.")
    parts.append(_progress(group) if group.progress else "It has no offsets.")
    Output(as_json=as_json).show(_as_json(group), *parts)


def _members(group: "GroupDescription") -> Grid:
    rows = [
        (each.member_id, each.client_id, each.host, ", ".join(map(str, each.partitions)))
        for each in group.members
    ]
    return Grid(("member", "client", "host", "partitions"), rows)


def _progress(group: "GroupDescription") -> Grid:
    rows = [
        (each.topic, each.partition, each.committed, each.end, each.lag, each.lag_s, each.member_id)
        for each in group.progress
    ]
    return Grid(("topic", "partition", "committed", "end", "lag", "lag s", "member"), rows)


def _as_json(group: "GroupDescription") -> dict[str, object]:
    return {
        "name": group.name,
        "state": group.state,
        "protocol": group.protocol,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "lag_s": group.lag_s,
        "members": [
            {
                "member_id": each.member_id,
                "client_id": each.client_id,
                "host": each.host,
                "instance_id": each.instance_id,
                "partitions": [partition._asdict() for partition in each.partitions],
            }
            for each in group.members
        ],
        "progress": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": each.committed,
                "end": each.end,
                "lag": each.lag,
                "lag_s": each.lag_s,
                "member_id": each.member_id,
            }
            for each in group.progress
        ],
    }


@app.command()
def reset(
    name: GroupName,
    *,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first record that is held.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="After the last record.")] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, show_default=False, help="To one offset.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", show_default=False, help="ISO 8601, epoch ms, or -1h."),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", show_default=False, help="Records forward, or back: -10."),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC|TOPIC:PARTITION",
            callback=read_names,
            show_default="all that the group has offsets in",
            help="May be repeated.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    bootstrap: Bootstrap = "",
    as_json: Json = False,
) -> None:
    """Move a group that has no members to other offsets."""
    target = _target(
        ToEarliest() if to_earliest else None,
        ToLatest() if to_latest else None,
        None if to_offset is None else ToOffset(to_offset),
        _to_time(to_time),
        None if shift_by is None else ShiftBy(shift_by),
    )
    wanted = [_read_topic(each) for each in topics or []]
    admin = open_admin(bootstrap)
    groups = open_groups(admin)
    members = groups.members(name)
    if members and not dry_run:
        raise GroupNotEmpty(f"reset group {name}: it has {len(members)} members")
    committed = groups.committed(name)
    if not committed:
        groups.check_no_share_group(name, f"reset group {name}")
    if not committed and not wanted:
        raise GroupNotFound(f"reset group {name}: it has no offsets; --topic gives it some")
    partitions = _chosen(wanted, admin) if wanted else sorted(committed)
    moves = plan_moves(target, partitions, committed=committed, admin=admin)
    if not dry_run:
        offsets = {TopicPartition(each.topic, each.partition): each.after for each in moves}
        groups.commit(name, offsets)
    _show_moves(moves, name, dry_run=dry_run, output=Output(as_json=as_json))


def _to_time(text: str | None) -> ToTime | None:
    timestamp_ms = read_time_ms(text, option="--to-time")
    return None if timestamp_ms is None else ToTime(timestamp_ms)


def _target(*candidates: Target | None) -> Target:
    given = [each for each in candidates if each is not None]
    if len(given) != 1:
        raise typer.BadParameter(
            f"{len(given)} of them are given, not one.",
            param_hint="--to-earliest, --to-latest, --to-offset, --to-time, --shift-by",
        )
    return given[0]


def _read_topic(text: str) -> tuple[str, int | None]:
    topic, colon, partition = text.partition(":")
    if not topic or (colon and not partition.isdecimal()):
        raise typer.BadParameter(f"{text!r} is not TOPIC or TOPIC:PARTITION.", param_hint="--topic")
    return topic, int(partition) if colon else None


def _chosen(wanted: list[tuple[str, int | None]], admin: "Admin") -> list[TopicPartition]:
    chosen: set[TopicPartition] = set()
    for topic, partition in wanted:
        existing = admin.partitions(topic)
        if partition is None:
            chosen.update(existing)
        elif TopicPartition(topic, partition) in existing:
            chosen.add(TopicPartition(topic, partition))
        else:
            raise TopicNotFound(
                f"partition is {partition}, topic {topic} has 0..{len(existing) - 1}"
            )
    return sorted(chosen)


def _show_moves(moves: list[Move], name: str, *, dry_run: bool, output: Output) -> None:
    rows = [(each.topic, each.partition, each.before, each.after) for each in moves]
    if dry_run:
        head = f"Group {name} would move; nothing was changed."
    else:
        head = f"Moved group {name}."
    value = {"group": name, "dry_run": dry_run, "moves": moves}
    output.show(value, head, Grid(("topic", "partition", "before", "after"), rows))


@app.command()
def delete(
    names: GroupNames,
    *,
    bootstrap: Bootstrap = "",
    as_json: Json = False,
) -> None:
    """Delete groups that have no members, and their offsets."""
    groups = open_groups(open_admin(bootstrap))
    output = Output(as_json=as_json)
    for name in names:
        groups.delete(name)
        output.show({"group": name, "deleted": True}, f"Deleted group {name}.")
