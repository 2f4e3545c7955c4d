"""Options that many commands share.

`--bootstrap`, `--context` and `--json` may stand before or after the name of a command. After it
they win.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli.addresses import (
    BOOTSTRAP_DEFAULT,
    find_bootstrap,
    find_url,
    flag_context,
)
from penstock.config import parse_duration_ms, parse_size_bytes


def _or_root_json(context: typer.Context, value: bool) -> bool:
    # The root remembers the flag, because errors are reported there.
    root: dict[str, Any] = context.find_root().params
    root["as_json"] = value or bool(root.get("as_json"))
    return bool(root["as_json"])


def read_name(name: str | None) -> str | None:
    """Refuse a name that is no text, before librdkafka, which takes the process with it."""
    try:
        # Bytes that are no text stand in an argument as lone surrogates.
        (name or "").encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{name!r} is not UTF-8.") from None
    return name


def read_names(names: list[str] | None) -> list[str] | None:
    """Do the same with several names."""
    for each in names or []:
        read_name(each)
    return names


def _url_for_a_queue(context: typer.Context, url: str) -> str:
    return url if context.params["queue"] is None else find_url(context, url)


def _bootstrap_unless_for_a_queue(context: typer.Context, value: str | None) -> str:
    is_needed = value or context.params["queue"] is None
    return find_bootstrap(context, value) if is_needed else BOOTSTRAP_DEFAULT


def _bootstrap_option(callback: Callable[[typer.Context, str | None], str]) -> Any:
    return typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT,...",
        callback=callback,
        show_default=BOOTSTRAP_DEFAULT,
        help="Nodes to contact first (or PENSTOCK_BOOTSTRAP).",
    )


def _url_option(callback: Callable[[typer.Context, str], str]) -> Any:
    return typer.Option(
        "--url",
        "-u",
        envvar="PENSTOCK_URL",
        metavar="URL",
        show_envvar=False,
        callback=callback,
        help="HTTP address of any node of the cluster (or PENSTOCK_URL).",
    )


RootBootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="PENSTOCK_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="Nodes to contact first.",
    ),
]
RootJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
RootContext = Annotated[
    str | None,
    typer.Option(
        "--context",
        envvar="PENSTOCK_CONTEXT",
        metavar="NAME",
        show_default="the current one",
        help="Cluster to ask, by its name; see `penstock context --help`.",
    ),
]
Bootstrap = Annotated[str, _bootstrap_option(find_bootstrap)]
LateContext = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        # The options that depend on it are read after it.
        is_eager=True,
        expose_value=False,
        callback=flag_context,
        show_default=False,
        help="Cluster to ask, by its name (or PENSTOCK_CONTEXT).",
    ),
]
QueueBootstrap = Annotated[str, _bootstrap_option(_bootstrap_unless_for_a_queue)]
Json = Annotated[
    bool, typer.Option("--json", callback=_or_root_json, help="Print JSON for programs.")
]
Url = Annotated[str, _url_option(find_url)]
QueueUrl = Annotated[str, _url_option(_url_for_a_queue)]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", callback=read_name, show_default=False)]
TopicNames = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", callback=read_names, show_default=False)
]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", callback=read_name, show_default=False)]
GroupNames = Annotated[
    list[str], typer.Argument(metavar="GROUP...", callback=read_names, show_default=False)
]


def offer_context(command: Any) -> None:
    """Let a command that asks a cluster, and those below it, take `--context`."""
    if isinstance(command, TyperGroup):
        for each in command.commands.values():
            offer_context(each)
        return
    names = {each.name for each in command.params}
    if "context" not in names and names & {"bootstrap", "url"}:
        command.params.append(_context_option())


def _context_option() -> Any:
    """Return the option as Typer makes it for a function; those of the commands do not take it."""

    def command(context: LateContext = None) -> None: ...

    maker = typer.Typer(add_completion=False)
    maker.command()(command)
    (option,) = typer.main.get_command(maker).params
    return option


def split_pair(text: str, *, option: str) -> tuple[str, str]:
    """Split `name=value`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint=option)
    return name, value


def read_topic_settings(pairs: Sequence[str]) -> Mapping[str, str]:
    """Read `NAME=VALUE` settings; durations and sizes may carry units, as in `retention.ms=7d`."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, value = split_pair(pair, option="--set")
        settings[name] = _plain(name, value)
    return settings


def _plain(name: str, value: str) -> str:
    try:
        if name.endswith(".ms"):
            return str(parse_duration_ms(value))
        if name.endswith(".bytes"):
            return str(parse_size_bytes(value))
    except ValueError as error:
        message = f"{name} is {value!r}, {error}."
        raise typer.BadParameter(message, param_hint="--set") from None
    return value
