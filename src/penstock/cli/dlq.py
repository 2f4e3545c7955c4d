"""`penstock dlq`: look at dead letters, edit them, send them back, be done with them."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.addresses import URL_DEFAULT
from penstock.cli.connection import open_client
from penstock.cli.exits import FAILED
from penstock.cli.formats import json_bytes, json_headers
from penstock.cli.options import Json, TopicName, Url, split_pair
from penstock.cli.output import Grid, Output, one_line
from penstock.cli.times import show_time

if TYPE_CHECKING:
    from penstock.client import DeadLetter, LetterEdit

app = typer.Typer(help="Look at dead letters and deal with them.", no_args_is_help=True)

Group = Annotated[
    str | None, typer.Option("--group", "-g", show_default=False, help="Only of this queue group.")
]
Reason = Annotated[
    str | None,
    typer.Option("--reason", show_default=False, help="Only with this in reason or last error."),
]
Key = Annotated[str | None, typer.Option("--key", "-k", show_default=False, help="Only this key.")]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", show_default=False, help="Only this one; may be repeated."),
]
LetterId = Annotated[str, typer.Argument(metavar="ID", show_default=False)]


@app.command("list")
def list_letters(
    topic: TopicName,
    *,
    group: Group = None,
    reason: Reason = None,
    key: Key = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=10_000)] = 100,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """List dead letters of a topic, the oldest first in each partition."""
    with open_client(url) as client:
        letters = client.dead_letters.search(
            topic, count_max=count, group=group, reason=reason, key=key
        )
    rows = [
        (each.id, show_time(each.timestamp_ms), each.group, each.attempts, each.reason, each.error)
        for each in letters
    ]
    columns = ("id", "died", "group", "attempts", "reason", "last error")
    shown = Grid(columns, rows) if rows else f"There are no dead letters of {topic}."
    Output(as_json=as_json).show([_as_json(each) for each in letters], shown)


@app.command()
def show(
    topic: TopicName,
    letter_id: LetterId,
    *,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show one dead letter with where it came from."""
    with open_client(url) as client:
        letter = client.dead_letters.get(topic, letter_id)
    source = f"{letter.source_topic} partition {letter.source_partition}"
    error = one_line(letter.error) or "-"
    Output(as_json=as_json).show(
        _as_json(letter),
        f"Dead letter {letter.id} of group {letter.group}, {show_time(letter.timestamp_ms)}",
        f"It came from {source} offset {letter.source_offset} (message {letter.source_id}).",
        f"{letter.reason} after {letter.attempts} attempts; last error: {error}",
        f"It was sent back {letter.redriven} times before.",
        f"key: {_shown(letter.key)}",
        f"value: {_shown(letter.value)}",
        *(f"header {name}: {_shown(value)}" for name, value in letter.headers),
    )


@app.command()
def edit(
    topic: TopicName,
    letter_id: LetterId,
    *,
    value: Annotated[
        str | None, typer.Option("--value", "-v", show_default=False, help="Another value.")
    ] = None,
    no_value: Annotated[bool, typer.Option("--no-value", help="No value: a tombstone.")] = False,
    key: Annotated[
        str | None, typer.Option("--key", "-k", show_default=False, help="Another key.")
    ] = None,
    no_key: Annotated[bool, typer.Option("--no-key", help="No key.")] = False,
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME=VALUE",
            show_default=False,
            help="In place of all headers; may be repeated.",
        ),
    ] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="No headers.")] = False,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Put a dead letter with other content in the place of one; it has another id.

    What is not named stays, as does its history.
    """
    changes: LetterEdit = {}
    if _is_changed("--value", value, "--no-value", is_removed=no_value):
        changes["value"] = value
    if _is_changed("--key", key, "--no-key", is_removed=no_key):
        changes["key"] = key
    if _is_changed("--header", headers or None, "--no-headers", is_removed=no_headers):
        changes["headers"] = dict(split_pair(each, option="--header") for each in headers or ())
    if not changes:
        raise typer.BadParameter(
            "nothing to change.", param_hint="--value, --key, --header, --no-..."
        )
    with open_client(url) as client:
        letter = client.dead_letters.edit(topic, letter_id, **changes)
    Output(as_json=as_json).show(
        _as_json(letter), f"Dead letter {letter.id} is in the place of {letter_id}."
    )


@app.command()
def redrive(
    topic: TopicName,
    *,
    group: Group = None,
    reason: Reason = None,
    key: Key = None,
    ids: Ids = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TOPIC", show_default="where they came from"),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", show_default="no limit", help="Messages a second.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Publish dead letters again. Those that keep coming back are held back.

    A topic hands them to all of its groups, and not only to the one that gave them up.
    """
    with open_client(url) as client:
        done = client.dead_letters.redrive(
            topic,
            to=to,
            rate_per_s=rate,
            dry_run=dry_run,
            group=group,
            reason=reason,
            key=key,
            ids=ids,
        )
    would = "would be" if dry_run else "were"
    Output(as_json=as_json).show(
        done,
        f"{done.moved} dead letters {would} sent back, {done.skipped} held back,"
        f" {done.failed} failed.",
        *done.errors,
        *_unknown(topic, done.unknown),
    )
    if done.failed or done.unknown:
        raise typer.Exit(FAILED)


@app.command()
def purge(
    topic: TopicName,
    *,
    group: Group = None,
    reason: Reason = None,
    key: Key = None,
    ids: Ids = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask a person first.")] = False,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Be done with dead letters. Asks first when a person types it."""
    if sys.stdin.isatty() and not yes:
        typer.confirm(f"Be done with these dead letters of {topic}?", abort=True, err=True)
    with open_client(url) as client:
        done = client.dead_letters.purge(topic, group=group, reason=reason, key=key, ids=ids)
    Output(as_json=as_json).show(
        {"topic": topic, "purged": done.purged, "unknown": done.unknown},
        f"Purged {done.purged}.",
        *_unknown(topic, done.unknown),
    )
    if done.unknown:
        raise typer.Exit(FAILED)


def _unknown(topic: str, ids: Sequence[str]) -> list[str]:
    return [f"None of the chosen dead letters of {topic} is {each}." for each in ids]


def _is_changed(option: str, given: object, removal: str, *, is_removed: bool) -> bool:
    if given is not None and is_removed:
        raise typer.BadParameter(f"cannot be used with {removal}.", param_hint=option)
    return given is not None or is_removed


def _as_json(letter: "DeadLetter") -> dict[str, Any]:
    shown = {field.name: getattr(letter, field.name) for field in dataclasses.fields(letter)}
    return {
        **shown,
        "key": json_bytes(letter.key),
        "value": json_bytes(letter.value),
        "headers": json_headers(letter.headers),
    }


def _shown(data: bytes | None) -> str:
    return "-" if data is None else one_line(data.decode(errors="backslashreplace"))
