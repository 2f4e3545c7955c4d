"""Which cluster a command asks.

The first of these that is given decides:

1. the flags `--bootstrap` and `--url`
2. the context that `--context` names
3. the variables `PENSTOCK_BOOTSTRAP` and `PENSTOCK_URL`
4. the context that `PENSTOCK_CONTEXT` names
5. the current context
6. nothing: a node on this machine

A command never asks two clusters. A context is followed as a whole, and what it lacks is taken from
nowhere else. Where a flag or a variable names an address, no context is looked at, and a command
that speaks HTTP does not fall back to the default of `--url` when a bootstrap is given.
"""

from typing import Any

import typer

from penstock.cli.contexts import Context, is_address_in_environment, load_contexts
from penstock.errors import InvalidContext

# Spelled out here because importing `penstock.client` loads librdkafka, too slow for `--help`.
BOOTSTRAP_DEFAULT = "localhost:9092"
URL_DEFAULT = "http://127.0.0.1:8080"

_FLAGGED = "penstock.context"


def flag_context(context: typer.Context, name: str | None) -> None:
    """Note that `--context` stands behind a command."""
    if name is not None:
        context.meta[_FLAGGED] = name


def typed_bootstrap(context: typer.Context) -> str | None:
    """Return what was given here, before the command or by the environment; the default is not."""
    for each in (context, context.find_root()):
        bootstrap = each.params.get("bootstrap")
        if bootstrap and _source_of(each, "bootstrap") in ("COMMANDLINE", "ENVIRONMENT"):
            return str(bootstrap)
    return None


def find_bootstrap(context: typer.Context, value: str | None) -> str:
    """Return the nodes to contact first."""
    found = _find_context(context)
    if found is None:
        return value or str(context.find_root().params["bootstrap"])
    name, chosen = found
    if chosen.bootstrap is None:
        raise InvalidContext(
            f"context {name!r} has no bootstrap; `penstock context set {name} --bootstrap"
            " HOST:PORT` gives it one"
        )
    return chosen.bootstrap


def find_url(context: typer.Context, url: str) -> str:
    """Return the HTTP address of a node."""
    found = _find_context(context)
    if found is not None:
        name, chosen = found
        if chosen.url is None:
            raise InvalidContext(
                f"context {name!r} has no url, and this command speaks HTTP;"
                f" `penstock context set {name} --url http://HOST:PORT` gives it one"
            )
        return chosen.url
    # Options that were typed are read first, so a bootstrap beside a missing URL is known by now.
    bootstrap = typed_bootstrap(context)
    if _source_of(context, "url") == "DEFAULT" and bootstrap is not None:
        raise typer.BadParameter(
            f"bootstrap is {bootstrap!r}, but this command speaks HTTP and would ask {url};"
            " name a node of that cluster by --url or PENSTOCK_URL.",
            param_hint="--url",
        )
    return url


def asked_context(context: typer.Context) -> tuple[str, Context] | None:
    """Return the context that a flag or a variable names, where no address goes before it."""
    name = _flagged(context)
    if name is not None:
        _check_alone(context, name)
    elif not _is_address_given(context):
        name = context.find_root().params["context"]
    return None if name is None else (name, load_contexts().find(name))


def current_context() -> tuple[str, Context] | None:
    """Return the current context, or None where there is none."""
    contexts = load_contexts()
    name = contexts.current
    return None if name is None else (name, contexts.find(name))


def _find_context(context: typer.Context) -> tuple[str, Context] | None:
    asked = asked_context(context)
    if asked is not None or _is_address_given(context):
        return asked
    return current_context()


def _flagged(context: typer.Context) -> str | None:
    """Return the name that `--context` gives, behind the command or before it."""
    root = context.find_root()
    if _FLAGGED in context.meta:
        return str(context.meta[_FLAGGED])
    is_flag = _source_of(root, "context") == "COMMANDLINE"
    return str(root.params["context"]) if is_flag else None


def _is_address_given(context: typer.Context) -> bool:
    return is_address_in_environment() or bool(_address_flags(context))


def _check_alone(context: typer.Context, name: str) -> None:
    for flag in _address_flags(context):
        raise typer.BadParameter(
            f"{flag} names a cluster, and so does --context {name}; give one of them.",
            param_hint=flag,
        )


def _address_flags(context: typer.Context) -> list[str]:
    """Return the flags that name addresses; those that were typed are read before all others."""
    places = (
        ("--bootstrap", context, "bootstrap"),
        ("--bootstrap", context.find_root(), "bootstrap"),
        ("--url", context, "url"),
    )
    return [flag for flag, each, name in places if _source_of(each, name) == "COMMANDLINE"]


def _source_of(context: Any, name: str) -> str:
    source = context.get_parameter_source(name)
    return "DEFAULT" if source is None else source.name
