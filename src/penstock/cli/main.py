"""Puts the commands together and gives every outcome its exit code."""

import re
from typing import Any

import typer

from penstock.cli import (
    archive,
    cluster,
    consume,
    context,
    dlq,
    group,
    insight,
    log,
    pipeline,
    produce,
    replay,
    reshard,
    schedule,
    serve,
    task,
    topic,
    trace,
    version,
    worker,
)
from penstock.cli.addresses import BOOTSTRAP_DEFAULT
from penstock.cli.exits import ReportingGroup
from penstock.cli.options import RootBootstrap, RootContext, RootJson, offer_context

EXIT_CODES = (
    "Exit codes: 0 done, 1 the operation failed, 2 the command or its configuration is wrong,"
    " 3 no broker could be reached or it asks to try again later, 130 ended by Ctrl-C."
)


class Root(ReportingGroup):
    """The root command; those below it that ask a cluster take `--context`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _join_lines(self)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            offer_context(command)
        return command


def _join_lines(command: Any) -> None:
    # Typer keeps the ends of lines that docstrings have in the code, and wraps at the terminal's
    # width on top of them.
    command.help = command.help and re.sub(r"(?<!\n)\n(?!\n)", " ", command.help)
    for each in getattr(command, "commands", {}).values():
        _join_lines(each)


app = typer.Typer(
    name="penstock",
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)


@app.callback()
def penstock(
    bootstrap: RootBootstrap = BOOTSTRAP_DEFAULT,
    context: RootContext = None,
    as_json: RootJson = False,
) -> None:
    """A durable message queue that speaks the Kafka protocol.

    Start a node with `penstock serve`, publish with `penstock produce`, read with
    `penstock consume`. Which cluster a command asks is decided by --bootstrap and --url, else by
    --context, else by PENSTOCK_BOOTSTRAP and PENSTOCK_URL, else by PENSTOCK_CONTEXT, else by the
    current context; else it is a node on this machine.
    """


app.command("serve")(serve.serve)
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(dlq.app, name="dlq")
app.add_typer(schedule.app, name="schedule")
app.command("trace")(trace.trace)
app.add_typer(task.app, name="task")
app.command("worker")(worker.worker)
app.add_typer(archive.app, name="archive")
app.command("replay")(replay.replay)
app.add_typer(reshard.app, name="reshard")
app.add_typer(cluster.app, name="cluster")
app.add_typer(context.app, name="context")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(insight.app, name="insight")
app.add_typer(log.app, name="log")
app.command("version")(version.version)


def main() -> int:
    """Run the command line of this process; usage errors and finished commands exit here."""
    app(prog_name="penstock")
    return 0
