"""`penstock context`: clusters under names of the user's own."""

from typing import Annotated

import typer

from penstock.cli.contexts import (
    Context,
    Contexts,
    check_context_name,
    contexts_path,
    load_contexts,
    save_contexts,
)
from penstock.cli.options import Json
from penstock.cli.output import Grid, Output
from penstock.errors import InvalidContext

app = typer.Typer(
    no_args_is_help=True,
    help="Keep clusters under names, and choose the one that commands ask.\n\n"
    "The first of these that is given decides: the flags --bootstrap and --url, the context that"
    " --context names, the variables PENSTOCK_BOOTSTRAP and PENSTOCK_URL, the context that"
    " PENSTOCK_CONTEXT names, the current context. Where none is, a node on this machine is"
    " asked. A context is followed as a whole: what it lacks is taken from nowhere else.\n\n"
    "Contexts are kept in penstock/contexts.json below XDG_CONFIG_HOME or ~/.config, which only"
    " you can read.",
)

ContextName = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


def _or_asked(context: typer.Context, name: str | None) -> str | None:
    return name or context.find_root().params["context"]


@app.command("list")
def list_contexts(*, as_json: Json = False) -> None:
    """List all contexts; a star marks the current one."""
    kept = load_contexts()
    names = sorted(kept.contexts)
    rows = [
        ("*" if name == kept.current else "", name, each.bootstrap, each.url)
        for name, each in ((name, kept.contexts[name]) for name in names)
    ]
    columns = ("current", "name", "bootstrap", "url")
    shown = Grid(columns, rows) if rows else f"There are no contexts in {contexts_path()}."
    Output(as_json=as_json).show([_as_json(kept, name) for name in names], shown)


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            show_default=False,
            callback=_or_asked,
            help="Left out: the one of --context or PENSTOCK_CONTEXT, or else the current one.",
        ),
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """Show one context."""
    kept = load_contexts()
    if name is None:
        name = kept.current
    if name is None:
        raise InvalidContext("no context is current")
    found = kept.find(name)
    Output(as_json=as_json).show(
        _as_json(kept, name),
        f"{name}{', the current context' if name == kept.current else ''}",
        f"  bootstrap  {found.bootstrap or '-'}",
        f"  url        {found.url or '-'}",
    )


@app.command()
def use(name: ContextName, *, as_json: Json = False) -> None:
    """Make a context the current one."""
    kept = load_contexts().using(name)
    save_contexts(kept)
    Output(as_json=as_json).show(_as_json(kept, name), f"The current context is {name}.")


@app.command("set")
def set_context(
    name: ContextName,
    *,
    new_bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT,...",
            show_default=False,
            help="Nodes to contact first, for commands that speak the Kafka protocol.",
        ),
    ] = None,
    new_url: Annotated[
        str | None,
        typer.Option(
            "--url",
            "-u",
            metavar="URL,...",
            show_default=False,
            help="HTTP addresses of nodes, for commands that speak HTTP.",
        ),
    ] = None,
    is_used: Annotated[bool, typer.Option("--use", help="Make it the current one, too.")] = False,
    as_json: Json = False,
) -> None:
    """Make a context, or change what is given of one that exists."""
    check_context_name(name)
    if new_bootstrap is None and new_url is None:
        raise typer.BadParameter("give --bootstrap, --url or both.", param_hint="--bootstrap")
    _check_addresses(new_bootstrap, new_url)
    kept = load_contexts()
    old = kept.contexts.get(name, Context())
    kept = kept.with_context(name, Context(new_bootstrap or old.bootstrap, new_url or old.url))
    if is_used:
        kept = kept.using(name)
    save_contexts(kept)
    lines = [f"Saved context {name}."]
    if is_used:
        lines.append(f"The current context is {name}.")
    Output(as_json=as_json).show(_as_json(kept, name), *lines)


@app.command()
def delete(name: ContextName, *, as_json: Json = False) -> None:
    """Forget a context."""
    old = load_contexts()
    kept = old.without(name)
    save_contexts(kept)
    lines = [f"Deleted context {name}."]
    if old.current == name:
        lines.append("No context is current any more.")
    Output(as_json=as_json).show({"name": name, "deleted": True}, *lines)


def _check_addresses(bootstrap: str | None, url: str | None) -> None:
    # Loaded here because the other commands on contexts should not wait for it.
    from penstock.client import check_bootstrap, check_url

    if bootstrap is not None:
        check_bootstrap(bootstrap)
    if url is not None:
        for each in url.split(","):
            check_url(each)


def _as_json(kept: Contexts, name: str) -> dict[str, object]:
    found = kept.contexts[name]
    return {
        "name": name,
        "bootstrap": found.bootstrap,
        "url": found.url,
        "current": name == kept.current,
    }
