"""`penstock serve`: run a node until it is told to stop."""

import os
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.config import OPTIONS, Option, load_options

CONFIG = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="PENSTOCK_CONFIG",
        metavar="FILE",
        show_default=False,
        help="YAML file with the same options, as `kafka_port: 9092`.",
    ),
]


def _serve_command() -> Callable[..., None]:
    """Build the command with a flag for every option of a node, read off their one list."""

    def serve(config: Path | None, **flags: str | None) -> None:
        """Run a node until SIGTERM or Ctrl-C.

        Every option is also read from the environment, as PENSTOCK_KAFKA_PORT,
        and from the file, as kafka_port. A flag beats the environment, the
        environment beats the file. Durations may be written as 500ms, 5s or 7d,
        sizes as 512MiB or 1GB.
        """
        options = load_options(flags, os.environ, config)
        # The server's rooms load here and not above: no other command needs them, and loading them
        # would triple the time that each of those takes.
        from penstock.node import run

        run(options)

    annotations: dict[str, Any] = {"config": CONFIG}
    annotations |= {name: _flag(option) for name, option in OPTIONS.items()}
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in annotations.items()
    ]
    serve.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    serve.__annotations__ = annotations
    return serve


def _flag(option: Option) -> Any:
    return Annotated[
        str | None,
        typer.Option(
            option.flag,
            metavar="VALUE",
            show_default=option.default or False,
            rich_help_panel=option.section,
            help=f"{option.meaning} ({option.limits})",
        ),
    ]


serve = _serve_command()
