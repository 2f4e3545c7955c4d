"""How far pipelines are, told by their checkpoints, and who may run them.

Spark keeps for every query the directory `offsets`, with a file for each micro-batch that was
begun, and `commits`, with one for each that is done. A pipeline that runs holds a lock on a file
beside them, so that a second one is refused; the lock ends with its process, however that ends.
Where a checkpoint is not on this machine, nothing is known of it here and nothing is locked.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from penstock.errors import Conflict
from penstock.pipelines.documents import Problem
from penstock.pipelines.model import Pipeline
from penstock.pipelines.reading import read_pipeline

State = Literal["invalid", "new", "stopped", "running", "remote"]
DEAD_LETTERS = "dead_letters"
_LOCK = "running.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryState:
    """One query of a pipeline: the last micro-batch that is done, and when that was."""

    sink: str
    last_epoch: int | None
    done_ms: int | None
    has_begun_next: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineState:
    """One file and its state."""

    file: Path
    name: str
    state: State
    checkpoint: str
    queries: tuple[QueryState, ...] = ()
    problems: tuple[Problem, ...] = ()


def query_path(pipeline: Pipeline, sink: str) -> str:
    """Return where the query of a sink keeps its checkpoint."""
    return f"{pipeline.checkpoint}/{sink}"


def pipeline_states(directory: Path) -> list[PipelineState]:
    """Return the state of every pipeline in a directory; other YAML files are left out."""
    files = sorted({*directory.glob("*.yml"), *directory.glob("*.yaml")})
    states = (_state(file) for file in files if file.is_file())
    return [state for state in states if state is not None]


@contextmanager
def running(pipeline: Pipeline) -> Iterator[None]:
    """Hold the lock of a pipeline; one that runs already is a `Conflict`."""
    if "://" in pipeline.checkpoint:
        yield
        return
    directory = Path(pipeline.checkpoint)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / _LOCK).open("a") as file:
        if not _lock(file):
            raise Conflict(f"{pipeline.name} is running already: {directory / _LOCK} is locked")
        yield


def _state(file: Path) -> PipelineState | None:
    pipeline, problems = read_pipeline(file)
    if pipeline is None or not (pipeline.sources or pipeline.sinks):
        return None
    state: State = "invalid"
    queries: tuple[QueryState, ...] = ()
    if not problems:
        queries = tuple(_query(pipeline, sink) for sink in (*pipeline.sinks, DEAD_LETTERS))
        state = _state_of(pipeline, queries)
    return PipelineState(
        file=file,
        name=pipeline.name,
        state=state,
        checkpoint=pipeline.checkpoint,
        queries=queries,
        problems=tuple(problems),
    )


def _state_of(pipeline: Pipeline, queries: tuple[QueryState, ...]) -> State:
    if "://" in pipeline.checkpoint:
        return "remote"
    lock = Path(pipeline.checkpoint) / _LOCK
    if lock.exists():
        with lock.open("a") as file:
            if not _lock(file):
                return "running"
    has_begun = any(each.last_epoch is not None or each.has_begun_next for each in queries)
    return "stopped" if has_begun else "new"


def _query(pipeline: Pipeline, sink: str) -> QueryState:
    directory = Path(query_path(pipeline, sink))
    done, begun = _epochs(directory / "commits"), _epochs(directory / "offsets")
    last = max(done, default=None)
    return QueryState(
        sink=sink,
        last_epoch=last,
        done_ms=None if last is None else int(done[last].stat().st_mtime * 1000),
        has_begun_next=max(begun, default=-1) > (-1 if last is None else last),
    )


def _epochs(directory: Path) -> dict[int, Path]:
    if not directory.is_dir():
        return {}
    return {int(path.name): path for path in directory.iterdir() if path.name.isdecimal()}


def _lock(file: IO[str]) -> bool:
    """Take the lock of an open file until it is closed; False when somebody has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
