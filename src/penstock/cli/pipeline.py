"""`penstock pipeline`: run, check and list pipelines that files describe."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.addresses import (
    BOOTSTRAP_DEFAULT,
    asked_context,
    current_context,
    typed_bootstrap,
)
from penstock.cli.exits import FAILED
from penstock.cli.interruption import Interruption
from penstock.cli.options import Json
from penstock.cli.output import Grid, Output
from penstock.cli.spark import (
    MASTER_DEFAULT,
    Master,
    Remote,
    ending_with,
    needing_spark,
    spark_session,
)
from penstock.cli.times import show_time
from penstock.cli.waiting import Progress

if TYPE_CHECKING:
    from penstock.pipelines import Pipeline, PipelineState, Problem

app = typer.Typer(help="Run pipelines on Spark.", no_args_is_help=True)

File = Annotated[
    Path, typer.Argument(metavar="FILE", show_default=False, exists=True, dir_okay=False)
]


def _or_typed_at_root(context: typer.Context, value: str | None) -> str | None:
    """Return what was given here or before the command; the default of the root is none."""
    asked = asked_context(context)
    return value or (typed_bootstrap(context) if asked is None else asked[1].bootstrap)


def _or_of_the_context(context: typer.Context, value: str | None) -> str | None:
    asked = asked_context(context)
    return value if asked is None else asked[1].url


TypedBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT,...",
        callback=_or_typed_at_root,
        show_default="that of the file",
        help="Nodes to contact first (or PENSTOCK_BOOTSTRAP).",
    ),
]
TypedUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        envvar="PENSTOCK_URL",
        metavar="URL,...",
        show_envvar=False,
        callback=_or_of_the_context,
        show_default="that of the file",
        help="HTTP addresses of nodes (or PENSTOCK_URL).",
    ),
]


@app.command()
def run(
    file: File,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="End when all that is there now has been read.")
    ] = False,
    master: Master = MASTER_DEFAULT,
    remote: Remote = None,
    bootstrap: TypedBootstrap = None,
    url: TypedUrl = None,
    as_json: Json = False,
) -> None:
    """Run a pipeline until Ctrl-C or SIGTERM; it goes on from its checkpoint at the next start.

    --bootstrap and --url, or the context that is asked for, go before the file's own addresses;
    the current context counts where the file has none. With --json, the last progress is printed.
    """
    from penstock.pipelines import load_pipeline

    pipeline = load_pipeline(file)
    if once:
        pipeline = replace(pipeline, trigger_ms=None)
    with needing_spark():
        from penstock.spark import ClusterAddress, PipelineProgress, run_pipeline
    cluster = ClusterAddress(*addresses_of(pipeline, bootstrap, url))
    done = PipelineProgress()
    with (
        Interruption() as interruption,
        Progress(is_silent=as_json) as progress,
        ending_with(interruption),
        spark_session(
            pipeline.name,
            master=master,
            remote=remote,
            progress=progress,
            settings=pipeline.spark,
        ) as session,
    ):
        interruption.hold()

        def show(seen: PipelineProgress) -> None:
            nonlocal done
            done = seen
            progress.show(f"{pipeline.name}: {seen}")

        run_pipeline(
            session,
            pipeline,
            cluster=cluster,
            is_stopping=lambda: interruption.is_requested,
            show=show,
        )
    Output(as_json=as_json).show(
        {"pipeline": pipeline.name, **_as_json(done)}, f"{pipeline.name} stopped: {done}"
    )


@app.command()
def validate(
    file: File,
    *,
    with_spark: Annotated[
        bool, typer.Option("--spark", help="Let Spark look at queries and columns as well.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Report everything that is wrong with a file, with lines. No broker is asked.

    Spark is started only with --spark: it knows SQL and columns, and takes some seconds.
    """
    from penstock.pipelines import read_pipeline

    pipeline, problems = read_pipeline(file)
    told = [_problem_as_json(each) for each in problems]
    lines = [f"{file}, {each}" for each in problems]
    if with_spark and pipeline is not None and not problems:
        for path, text in _ask_spark(pipeline, is_silent=as_json).items():
            told.append({"line": None, "path": path, "problem": text})
            lines.append(f"{file}, {path}: {text}")
    verdict = f"{file} is right." if not lines else f"{len(lines)} problems."
    Output(as_json=as_json).show({"file": str(file), "problems": told}, *lines, verdict)
    if lines:
        raise typer.Exit(FAILED)


@app.command("list")
def list_pipelines(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", file_okay=False)] = Path(),
    *,
    as_json: Json = False,
) -> None:
    """List the pipelines of a directory: whether they run, and the last epoch of each sink."""
    from penstock.pipelines import pipeline_states

    states = pipeline_states(directory)
    rows = [row for state in states for row in _rows(state)]
    columns = ("pipeline", "file", "state", "sink", "last epoch", "done")
    shown = Grid(columns, rows) if rows else f"There are no pipelines in {directory}."
    Output(as_json=as_json).show([_state_as_json(each) for each in states], shown)


def addresses_of(
    pipeline: "Pipeline", bootstrap: str | None, url: str | None
) -> tuple[str, str | None]:
    """Return the cluster that a pipeline runs on: given, that of its file, or the current one."""
    given = bootstrap or pipeline.bootstrap, url or pipeline.url
    current = None if any(given) else current_context()
    if current is not None:
        given = current[1].bootstrap, current[1].url
    return given[0] or BOOTSTRAP_DEFAULT, given[1]


def _ask_spark(pipeline: "Pipeline", *, is_silent: bool) -> dict[str, str]:
    with needing_spark():
        from penstock.spark import check_pipeline
    with (
        Progress(is_silent=is_silent) as progress,
        spark_session(
            pipeline.name,
            master=MASTER_DEFAULT,
            remote=None,
            progress=progress,
            settings=pipeline.spark,
        ) as session,
    ):
        return check_pipeline(session, pipeline)


def _rows(state: "PipelineState") -> list[tuple[object, ...]]:
    begun = [each for each in state.queries if each.last_epoch is not None]
    if not begun:
        text = f"{len(state.problems)} problems" if state.problems else None
        return [(state.name, state.file, state.state, None, None, text)]
    return [
        (state.name, state.file, state.state, each.sink, each.last_epoch, show_time(each.done_ms))
        for each in begun
    ]


def _as_json(value: Any) -> dict[str, Any]:
    return asdict(value)


def _problem_as_json(problem: "Problem") -> dict[str, Any]:
    return {"line": problem.line, "path": problem.path, "problem": problem.text}


def _state_as_json(state: "PipelineState") -> dict[str, Any]:
    return {
        "pipeline": state.name,
        "file": str(state.file),
        "state": state.state,
        "checkpoint": state.checkpoint,
        "sinks": [_as_json(each) for each in state.queries],
        "problems": [_problem_as_json(each) for each in state.problems],
    }
