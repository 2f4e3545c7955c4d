"""`penstock schedule`: messages that wait for their time."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.addresses import URL_DEFAULT
from penstock.cli.connection import open_client
from penstock.cli.exits import FAILED
from penstock.cli.formats import json_bytes, json_headers
from penstock.cli.options import Json, TopicName, Url
from penstock.cli.output import Grid, Output
from penstock.cli.times import read_time_ms, show_time

if TYPE_CHECKING:
    from penstock.client import ScheduledMessage
    from penstock.errors import PenstockError

app = typer.Typer(help="See and change messages that wait for their time.", no_args_is_help=True)

MessageIds = Annotated[list[str], typer.Argument(metavar="ID...", show_default=False)]


@app.command("list")
def list_scheduled(
    topic: TopicName,
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1_000)] = 100,
    after: Annotated[
        str | None,
        typer.Option("--after", show_default=False, help="Where an earlier list ended."),
    ] = None,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """List messages of a topic that wait, the next one first."""
    with open_client(url) as client:
        page = client.schedule.page(topic, count_max=count, after=after)
    rows = [
        (each.id, show_time(each.deliver_at_ms), _start_of(each.key), _start_of(each.value))
        for each in page.messages
    ]
    parts: list[str | Grid] = [f"{page.waiting} messages of {topic} wait for their time."]
    if rows:
        parts.append(Grid(("id", "deliver at", "key", "value"), rows))
    if page.after:
        parts.append(f"There are more: --after {page.after}")
    messages = [_as_json(each) for each in page.messages]
    body = {"messages": messages, "after": page.after, "waiting": page.waiting}
    Output(as_json=as_json).show(body, *parts)


@app.command()
def cancel(
    topic: TopicName, ids: MessageIds, *, url: Url = URL_DEFAULT, as_json: Json = False
) -> None:
    """Let messages never be delivered."""
    with open_client(url) as client:
        failed = client.schedule.cancel(topic, ids)
    _report("Cancelled", ids, failed, as_json=as_json)


@app.command()
def move(
    topic: TopicName,
    ids: MessageIds,
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="TIME", help="ISO 8601, epoch ms, or +1h from now.")
    ],
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Give messages another time."""
    time_ms = read_time_ms(to, option="--to")
    assert time_ms is not None, "it is required"
    with open_client(url) as client:
        failed = client.schedule.move(topic, ids, datetime.fromtimestamp(time_ms / 1000, UTC))
    _report("Moved", ids, failed, as_json=as_json)


@app.command()
def release(
    topic: TopicName, ids: MessageIds, *, url: Url = URL_DEFAULT, as_json: Json = False
) -> None:
    """Let messages be delivered at once."""
    with open_client(url) as client:
        failed = client.schedule.release(topic, ids)
    _report("Released", ids, failed, as_json=as_json)


def _report(
    done: str, ids: Sequence[str], failed: Mapping[str, "PenstockError"], *, as_json: bool
) -> None:
    accepted = [each for each in ids if each not in failed]
    body = {"accepted": accepted, "failed": {each: str(error) for each, error in failed.items()}}
    reasons = [f"{each}: {error}" for each, error in failed.items()]
    Output(as_json=as_json).show(body, f"{done} {len(accepted)} of {len(ids)} messages.", *reasons)
    if failed:
        raise typer.Exit(FAILED)


def _as_json(message: "ScheduledMessage") -> dict[str, object]:
    return {
        "id": message.id,
        "partition": message.partition,
        "deliver_at_ms": message.deliver_at_ms,
        "timestamp_ms": message.timestamp_ms,
        "key": json_bytes(message.key),
        "value": json_bytes(message.value),
        "headers": json_headers(message.headers),
    }


def _start_of(data: bytes | None, *, length: int = 40) -> str | None:
    if data is None:
        return None
    text = data.decode(errors="backslashreplace")
    return text if len(text) <= length else text[: length - 3] + "..."
