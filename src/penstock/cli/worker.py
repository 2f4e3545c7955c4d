"""`penstock worker`: run a program's functions over its tasks."""

import asyncio
import importlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.addresses import URL_DEFAULT
from penstock.cli.exits import FAILED, INTERRUPTED
from penstock.cli.options import Json, Url
from penstock.cli.output import Output
from penstock.cli.times import read_duration_s

if TYPE_CHECKING:
    from penstock.client import TaskApp, WorkerCounts, WorkerSettings


def worker(
    application: Annotated[
        str,
        typer.Argument(metavar="MODULE:APP", show_default=False, help="Where the TaskApp is."),
    ],
    *,
    concurrency: Annotated[
        int,
        typer.Option("--concurrency", "-c", min=1, max=10_000, help="Tasks done side by side."),
    ] = 10,
    lease: Annotated[
        str, typer.Option("--lease", help="Renewed while a task runs; the wait after a crash.")
    ] = "30s",
    grace: Annotated[
        str, typer.Option("--grace", help="How long tasks may go on after SIGTERM or Ctrl-C.")
    ] = "30s",
    name: Annotated[
        str, typer.Option("--name", show_default="host and process", help="Shown with its tasks.")
    ] = "",
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Stop when nothing is there to do.")
    ] = False,
    url: Url = URL_DEFAULT,
    as_json: Json = False,
) -> None:
    """Do tasks with the functions of a program, until SIGTERM or Ctrl-C.

    MODULE:APP names a `penstock.client.TaskApp`; the module is looked for from the current
    directory. What runs when the worker is told to stop is finished; a second signal ends it.
    """
    app = load_app(application)
    from penstock.client import WorkerSettings

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    settings = WorkerSettings(
        concurrency=concurrency,
        lease_s=read_duration_s(lease, option="--lease"),
        grace_s=read_duration_s(grace, option="--grace"),
        name=name or f"{socket.gethostname()}-{os.getpid()}",
        exits_at_end=exit_at_end,
    )
    output = Output(as_json=as_json)
    output.note(f"Doing tasks of {', '.join(app.types)}; stop with Ctrl-C.")
    with asyncio.Runner() as runner:
        counts = runner.run(_work(app, url, settings))
        output.show(
            counts,
            f"Stopped: {counts.done} done, {counts.failed} failed, {counts.returned} given back,"
            f" {counts.abandoned} abandoned.",
        )
        if counts.abandoned:
            # The loop would wait for a coroutine that has outlived the grace, and the interpreter
            # for a thread.
            sys.stdout.flush()
            os._exit(FAILED)


def load_app(text: str) -> "TaskApp":
    """Import the application that a user named."""
    from penstock.client import TaskApp

    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise typer.BadParameter(f"{text!r} is not MODULE:APP.", param_hint="MODULE:APP")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise typer.BadParameter(f"{error} (in {text}).", param_hint="MODULE:APP") from None
    # Whatever else goes wrong while it is imported is the program's, with a trace into it.
    try:
        app = getattr(module, name)
    except AttributeError as error:
        raise typer.BadParameter(f"{error}.", param_hint="MODULE:APP") from None
    if not isinstance(app, TaskApp):
        message = f"{text} is a {type(app).__name__}, not a penstock.client.TaskApp."
        raise typer.BadParameter(message, param_hint="MODULE:APP")
    return app


async def _work(app: "TaskApp", url: str, settings: "WorkerSettings") -> "WorkerCounts":
    from penstock.client import AsyncClient, Worker

    async with AsyncClient(url) as client:
        worker = Worker(app, client, settings)
        with _signals(worker.stop):
            await worker.run()
        return worker.counts


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM call `stop` on the loop, and a second one end the process.

    An exception would not end it: the interpreter waits for the threads of functions.
    """
    loop = asyncio.get_running_loop()
    previous = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

    def on_first(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, on_second)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        loop.call_soon_threadsafe(stop)

    def on_second(_number: int, _frame: FrameType | None) -> None:
        os._exit(INTERRUPTED)

    for each in previous:
        signal.signal(each, on_first)
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
