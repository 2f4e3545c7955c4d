"""Options that many commands share.

`--bootstrap` and `--json` may stand before or after the name of a command. After it they win.
A command that speaks HTTP never falls back to the default of `--url` when a bootstrap was given:
that names a cluster, and the default may be another one.
"""

from collections.abc import Callable, Mapping, Sequence
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


def typed_bootstrap(context: typer.Context) -> str | None:
    """Return what was given here, before the command or by the environment; the default is not."""
    for each in (context, context.find_root()):
        source = each.get_parameter_source("bootstrap")
        bootstrap = each.params.get("bootstrap")
        if bootstrap and source is not None and source.name != "DEFAULT":
            return str(bootstrap)
    return None


def _of_the_same_cluster(context: typer.Context, url: str) -> str:
    source = context.get_parameter_source("url")
    assert source is not None, "it is told before callbacks are called"
    # Options that were typed are read first, so a bootstrap beside a missing URL is known by now.
    bootstrap = typed_bootstrap(context)
    if source.name == "DEFAULT" and bootstrap is not None:
        raise typer.BadParameter(
            f"bootstrap is {bootstrap!r}, but this command speaks HTTP and would ask {url};"
            " name a node of that cluster by --url or PENSTOCK_URL.",
            param_hint="--url",
        )
    return url


def _of_the_same_cluster_for_a_queue(context: typer.Context, url: str) -> str:
    return url if context.params["queue"] is None else _of_the_same_cluster(context, url)


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
Url = Annotated[str, _url_option(_of_the_same_cluster)]
QueueUrl = Annotated[str, _url_option(_of_the_same_cluster_for_a_queue)]
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
