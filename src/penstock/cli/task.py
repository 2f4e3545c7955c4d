"""`penstock task`: enqueue tasks and see how they stand."""

from typing import Annotated

import msgspec
import typer

from penstock.cli.addresses import URL_DEFAULT
from penstock.cli.connection import open_client
from penstock.cli.options import Json, Url
from penstock.cli.output import Grid, Output, one_line
from penstock.cli.times import read_duration_s, show_time

app = typer.Typer(help="Enqueue tasks and see how they stand.", no_args_is_help=True)

Types = Annotated[
    list[str] | None,
    typer.Option("--type", "-t", show_default="all", help="Type of tasks; may be repeated."),
]


@app.command()
def enqueue(
    task_type: Annotated[str, typer.Argument(metavar="TYPE", show_default=False)],
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="JSON; what is not JSON is sent as text.")
    ] = "null",
    *,
    priority: Annotated[int, typer.Option("--priority", min=0, max=9)] = 4,
    max_retries: Annotated[int, typer.Option("--max-retries", min=0, max=1_000)] = 3,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", show_default=False)
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", show_default=False, help="As 10s, 5m or 2h.")
    ] = None,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Enqueue a task and print its id."""
    with open_client(url) as client:
        task = client.tasks.enqueue(
            task_type,
            _read_payload(payload),
            priority=priority,
            max_retries=max_retries,
            idempotency_key=idempotency_key,
            delay_s=None if delay is None else read_duration_s(delay, option="--delay"),
        )
    Output(as_json=as_json).show(task, task.id)


def _read_payload(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text


@app.command()
def status(
    task_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    *,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show how a task stands."""
    with open_client(url) as client:
        found = client.tasks.status(task_id)
    tries = "an unknown number" if found.attempts is None else str(found.attempts)
    most = found.max_retries + 1
    lines = [f"Task {found.id} is {found.state}: {tries} of {most} attempts."]
    if found.worker:
        lines.append(f"It is out with {found.worker}.")
    if found.last_error:
        lines.append(f"Last error: {one_line(found.last_error)}")
    Output(as_json=as_json).show(found, *lines)


@app.command("list")
def list_tasks(
    types: Types = None,
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1_000)] = 100,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """List tasks that are queued or leased."""
    with open_client(url) as client:
        tasks = client.tasks.pending(types or (), count_max=count)
    rows = [
        (each.id, each.state, each.attempts, show_time(each.enqueued_ms), each.last_error)
        for each in tasks
    ]
    columns = ("task", "state", "attempts", "enqueued", "last error")
    Output(as_json=as_json).show(tasks, Grid(columns, rows) if rows else "No task waits.")


@app.command()
def stats(*, url: Url = URL_DEFAULT, as_json: Json = False) -> None:
    """Count the tasks of each type by their state."""
    with open_client(url) as client:
        types = client.tasks.stats()
    rows = [
        (each.type or "-", each.queued, each.retrying, each.leased, each.scheduled, each.failed)
        for each in types
    ]
    columns = ("type", "queued", "retrying", "leased", "scheduled", "failed")
    Output(as_json=as_json).show(types, Grid(columns, rows) if rows else "There are no tasks.")
