"""`penstock trace`: the life of one message."""

from typing import Annotated

import typer

from penstock.cli.addresses import URL_DEFAULT
from penstock.cli.connection import open_client
from penstock.cli.lives import tree_of
from penstock.cli.options import Json, Url
from penstock.cli.output import Output


def trace(
    topic: Annotated[str, typer.Argument(metavar="TOPIC/ID", show_default=False)],
    message_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", show_default=False, help="When only TOPIC stands before."),
    ] = None,
    *,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show what happened to a message: published, delivered to whom, settled by whom.

    The id is what a publish returns; it is unique within its topic. Each step has the time since
    the first one, and within a group the time since the step before.
    """
    if message_id is None:
        topic, message_id = _split(topic)
    with open_client(url) as client:
        steps = client.trace(topic, message_id)
    Output(as_json=as_json).show(steps, tree_of(f"{topic}/{message_id}", steps))


def _split(text: str) -> tuple[str, str]:
    topic, _, message_id = text.partition("/")
    if not topic or not message_id:
        raise typer.BadParameter(
            f"{text!r} is not a topic and an id, as orders/0-17.", param_hint="TOPIC/ID"
        )
    return topic, message_id
