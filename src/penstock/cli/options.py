"""Options that many commands share.

`--bootstrap` and `--json` may stand before or after the name of a command. After it they win.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from penstock.config import parse_duration_ms, parse_size_bytes

# Spelled out here because importing `penstock.client` loads librdkafka, too slow for `--help`.
BOOTSTRAP_DEFAULT = "localhost:9092"
URL_DEFAULT = "http://127.0.0.1:8080"


def _or_root_bootstrap(context: typer.Context, value: str | None) -> str:
    return value or str(context.find_root().params["bootstrap"])


def _or_root_json(context: typer.Context, value: bool) -> bool:
    # The root remembers the flag, because errors are reported there.
    root: dict[str, Any] = context.find_root().params
    root["as_json"] = value or bool(root.get("as_json"))
    return bool(root["as_json"])


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
Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT,...",
        callback=_or_root_bootstrap,
        show_default=BOOTSTRAP_DEFAULT,
        help="Nodes to contact first (or PENSTOCK_BOOTSTRAP).",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", callback=_or_root_json, help="Print JSON for programs.")
]
Url = Annotated[
    str,
    typer.Option(
        "--url",
        "-u",
        envvar="PENSTOCK_URL",
        metavar="URL",
        show_envvar=False,
        help="HTTP address of any node of the cluster (or PENSTOCK_URL).",
    ),
]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]


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
