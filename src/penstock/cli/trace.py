"""`penstock trace`: the life of one message."""

from typing import Annotated

import typer

from penstock.cli.connection import open_client
from penstock.cli.options import URL_DEFAULT, Json, TopicName, Url
from penstock.cli.output import Grid, Output
from penstock.cli.times import show_time


def trace(
    topic: TopicName,
    message_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    *,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show what happened to a message: published, delivered to whom, settled by whom.

    The id is what a publish returns; it is unique within its topic.
    """
    with open_client(url) as client:
        steps = client.trace(topic, message_id)
    rows = [
        (
            show_time(each.at),
            each.kind,
            each.group,
            each.consumer,
            each.attempt or None,
            each.detail,
        )
        for each in steps
    ]
    columns = ("at", "step", "group", "consumer", "attempt", "detail")
    Output(as_json=as_json).show(steps, Grid(columns, rows))
