"""Runs a pipeline until it is asked to stop, has read what there is, or fails.

Everything that Spark can object to is found before the first query starts. A query that fails ends
the pipeline with one error, and the others are stopped. To stop is to let the micro-batches that
are under way end, for a while; what is cut short is repeated at the next start from the
checkpoint.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.client import Admin, Connection, NewTopic
from penstock.clock import SystemClock
from penstock.errors import InvalidRequest, PenstockError, TopicExists
from penstock.pipelines import DEAD_LETTERS, Pipeline, TopicSink, query_path, running
from penstock.spark.pipelines.dead_letters import dead_letters_of
from penstock.spark.pipelines.progress import PipelineProgress, QueryWatch, sum_up
from penstock.spark.pipelines.sinks import (
    QueryPlace,
    shape,
    stream_writer,
    to_topic,
    writer_of,
)
from penstock.spark.pipelines.views import Views

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

BOOTSTRAP_DEFAULT = "localhost:9092"
LOOK_AGAIN_S = 0.25
STOP_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """Where a pipeline finds the cluster; without a URL, at the usual port of its brokers."""

    bootstrap: str
    url: str | None = None


def check_pipeline(session: SparkSession, pipeline: Pipeline) -> dict[str, str]:
    """Return what Spark has against a pipeline, by paths in its file; no broker is asked."""
    with _views(session, pipeline, BOOTSTRAP_DEFAULT) as views:
        _shaped(views, pipeline)
        return views.problems


def run_pipeline(
    session: SparkSession,
    pipeline: Pipeline,
    *,
    cluster: ClusterAddress,
    is_stopping: Callable[[], bool] = lambda: False,
    show: Callable[[PipelineProgress], None] = lambda _progress: None,
) -> PipelineProgress:
    """Run a pipeline and return how far it has come."""
    with running(pipeline), _views(session, pipeline, cluster.bootstrap) as views:
        shaped = _shaped(views, pipeline)
        if views.problems:
            raise InvalidRequest(
                "\n".join(f"{path}: {text}" for path, text in views.problems.items())
            )
        _create_topics(pipeline, cluster.bootstrap)
        writers = _writers(pipeline, shaped, views.failures, cluster)
        with _started(writers) as queries:
            return _watch(queries, is_stopping, show)


@contextmanager
def _views(session: SparkSession, pipeline: Pipeline, bootstrap: str) -> Iterator[Views]:
    views = Views(session, pipeline, bootstrap)
    try:
        yield views
    finally:
        views.drop()


def _shaped(views: Views, pipeline: Pipeline) -> dict[str, DataFrame]:
    """Return the rows of each sink; what cannot be shaped is among the problems of the views."""
    shaped: dict[str, DataFrame] = {}
    for name, sink in pipeline.sinks.items():
        view = views.frames.get(sink.view)
        # A view that could not be built is a problem already.
        if view is None:
            continue
        rows = views.attempt(f"sinks.{name}", partial(shape, sink, view))
        if rows is not None:
            shaped[name] = rows
    return shaped


def _create_topics(pipeline: Pipeline, bootstrap: str) -> None:
    """Create the topics that are written to, with the broker's settings, where they are missing."""
    admin = Admin(Connection(bootstrap))
    held = {topic.name for topic in admin.topics()}
    written = {sink.topic for sink in pipeline.sinks.values() if isinstance(sink, TopicSink)}
    for topic in sorted((written | {pipeline.dead_letters}) - held):
        with suppress(TopicExists):
            admin.create_topic(NewTopic(name=topic))


def _writers(
    pipeline: Pipeline,
    shaped: dict[str, DataFrame],
    failures: list[DataFrame],
    cluster: ClusterAddress,
) -> dict[str, "DataStreamWriter"]:
    def place(sink: str) -> QueryPlace:
        return QueryPlace(
            name=f"{pipeline.name}/{sink}",
            checkpoint=query_path(pipeline, sink),
            bootstrap=cluster.bootstrap,
            url=cluster.url,
            trigger_ms=pipeline.trigger_ms,
        )

    writers = {
        name: writer_of(sink, shaped[name], place(name)) for name, sink in pipeline.sinks.items()
    }
    if failures:
        letters = stream_writer(dead_letters_of(failures, pipeline.name), place(DEAD_LETTERS))
        writers[DEAD_LETTERS] = to_topic(
            letters, pipeline.dead_letters, place(DEAD_LETTERS), guarantee="exactly_once"
        )
    return writers


@contextmanager
def _started(writers: dict[str, "DataStreamWriter"]) -> Iterator[dict[str, "StreamingQuery"]]:
    queries: dict[str, StreamingQuery] = {}
    try:
        for name, writer in writers.items():
            queries[name] = _start(name, writer)
        yield queries
    finally:
        for query in queries.values():
            query.stop()


def _start(name: str, writer: "DataStreamWriter") -> "StreamingQuery":
    try:
        return writer.start()
    except PySparkException as error:
        raise PenstockError(f"the query of {name} does not start: {_reason(error)}") from None


def _watch(
    queries: dict[str, "StreamingQuery"],
    is_stopping: Callable[[], bool],
    show: Callable[[PipelineProgress], None],
) -> PipelineProgress:
    watches = {name: QueryWatch() for name in queries}
    while True:
        is_asked = is_stopping()
        if is_asked:
            _settle(queries)
        is_over = is_asked or not any(query.isActive for query in queries.values())
        for name, query in queries.items():
            watches[name].look(query)
            _raise_failure(name, query)
        progress = sum_up(watches)
        show(progress)
        if is_over:
            return progress
        time.sleep(LOOK_AGAIN_S)


def _settle(queries: dict[str, "StreamingQuery"]) -> None:
    """Stop each query between two micro-batches, or where it is when that takes too long."""
    clock = SystemClock()
    deadline_s = clock.steady_s() + STOP_WAIT_S
    for query in queries.values():
        while query.isActive and query.status["isTriggerActive"]:
            if clock.steady_s() >= deadline_s:
                break
            time.sleep(LOOK_AGAIN_S / 10)
        query.stop()


def _raise_failure(name: str, query: "StreamingQuery") -> None:
    error = query.exception()
    if error is not None:
        raise PenstockError(f"the query of {name} failed: {_reason(error)}")


def _reason(error: Exception) -> str:
    """Return the line that says what happened: the innermost error, without Java's stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("penstock.errors.")]
    return own[-1].partition(": ")[2] if own else lines[0]
