"""What a command's end tells its caller: one sentence for a person, one code for a script."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from penstock import errors
from penstock.cli.output import OutputError, discard_output

FAILED = 1
USAGE = 2
TRY_AGAIN = 3
INTERRUPTED = 130

_JSON = "penstock.json"
# What the parser refuses to take; typer has it from another package in each of its versions.
_Refusal: Any = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

_UNAVAILABLE = (
    "Is it running? `penstock serve` starts a node; see --bootstrap, --url or --context."
    " If it is, `penstock cluster status` tells what is missing."
)
# What to try next; the first kind that an error belongs to decides.
_HINTS: tuple[tuple[type[errors.PenstockError], str], ...] = (
    (
        errors.TimedOut,
        "It may be busy, its disk full (see /ready), or it advertises an address out of reach.",
    ),
    (errors.DiskFull, "The node refuses new messages until its disk has room."),
    (errors.PreferredLeaderUnavailable, "`penstock cluster partitions` tells how replicas stand."),
    (errors.NotLeader, "The partition may be moving; try again in a moment."),
    (
        errors.ArchiveUnavailable,
        "--storage-option NAME=VALUE, or the store's usual variables, say how it is reached.",
    ),
    (errors.Unavailable, _UNAVAILABLE),
    (errors.TopicNotFound, "`penstock topic list` shows the topics."),
    (errors.TopicExists, "--if-not-exists accepts that."),
    (
        errors.InvalidTopicName,
        "Names of topics have up to 249 characters of A-Z, a-z, 0-9, dot, hyphen and underscore.",
    ),
    # librdkafka keeps to itself which of them the node has named.
    (
        errors.InvalidBatch,
        "A compacted topic wants keys; headers that begin with penstock- want certain values.",
    ),
    (errors.GroupNotFound, "`penstock group list` shows the groups."),
    (errors.GroupNotEmpty, "Stop its consumers first; `penstock group describe` lists them."),
    (errors.InvalidSetting, "`penstock topic describe TOPIC --all` shows the settings."),
    (errors.BatchTooLarge, "`penstock topic alter TOPIC --set max.message.bytes=...` raises it."),
    (errors.InvalidContext, "`penstock context --help` tells how contexts are made and chosen."),
    (errors.InvalidConfiguration, "`penstock serve --help` lists every option with its limits."),
    (errors.DataDirectoryInUse, "Stop the other node, or choose another --data-dir."),
)


class ReportingGroup(TyperGroup):
    """The root command: whatever its commands raise on purpose becomes a sentence and a code."""

    def make_context(self, info_name: Any, args: Any, *rest: Any, **extra: Any) -> Any:
        """Read what stands before the name of the command."""
        # Looked for in the words: those that come after a mistake are not read.
        as_json = _asks_for_json(args)
        with _refusals(as_json=as_json):
            context = super().make_context(info_name, args, *rest, **extra)
        context.meta[_JSON] = as_json
        return context

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a reader that went away and Ctrl-C end it without a word."""
        try:
            with _refusals(as_json=ctx.meta[_JSON]):
                result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except (errors.PenstockError, OutputError, UnicodeEncodeError) as failure:
            error = _as_error(failure)
            report(error, as_json=bool(ctx.params.get("as_json")))
            raise typer.Exit(exit_code(error)) from None
        except BrokenPipeError:
            discard_output()
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        return result


def _as_error(
    failure: errors.PenstockError | OutputError | UnicodeEncodeError,
) -> errors.PenstockError:
    """Return what to tell of a failure; the others come from the command line's surroundings."""
    if isinstance(failure, OutputError):
        discard_output()
        return errors.PenstockError(f"the results cannot be written: {failure.strerror}")
    if isinstance(failure, UnicodeEncodeError):
        # Bytes of an argument that are no text stand in it as lone surrogates.
        return errors.InvalidRequest(f"{failure.object!r} is not UTF-8")
    return failure


def _asks_for_json(args: Sequence[str]) -> bool:
    words = args[: args.index("--")] if "--" in args else args
    return "--json" in words


@contextmanager
def _refusals(*, as_json: bool) -> Iterator[None]:
    """Tell programs as JSON that a command is wrong or not confirmed; people are told by typer."""
    try:
        yield
    except _Refusal as refusal:
        if not as_json:
            raise
        # Where the name of a command is missing, people are shown the help.
        is_help = type(refusal).__name__ == "NoArgsIsHelpError"
        message = "Missing command." if is_help else refusal.format_message()
        _write_json("UsageError", message, retryable=False)
        raise typer.Exit(refusal.exit_code) from None
    except typer.Abort:
        if not as_json:
            raise
        _write_json("Aborted", "it was not confirmed", retryable=False)
        raise typer.Exit(FAILED) from None


def exit_code(error: errors.PenstockError) -> int:
    """Return the code that tells scripts what kind of failure this is."""
    if isinstance(error, errors.InvalidConfiguration):
        return USAGE
    return TRY_AGAIN if error.retryable else FAILED


def report(error: errors.PenstockError, *, as_json: bool) -> None:
    """Write an error to stderr."""
    hint = next((hint for kind, hint in _HINTS if isinstance(error, kind)), "")
    if as_json:
        # The client has kinds of its own beneath those that are documented.
        kind = next(each for each in type(error).__mro__ if each.__module__ == errors.__name__)
        _write_json(kind.__name__, str(error), retryable=error.retryable)
        return
    lines = str(error).splitlines()
    if len(lines) > 1:
        # A configuration is reported with all its mistakes, one in each line.
        lines = [f"there are {len(lines)} mistakes", *(f"  {line}" for line in lines)]
    typer.echo("penstock: " + "\n".join(lines), err=True)
    if hint:
        typer.echo(hint, err=True)


def _write_json(kind: str, message: str, *, retryable: bool) -> None:
    body = {"type": kind, "message": message, "retryable": retryable}
    typer.echo(json.dumps({"error": body}), err=True)
