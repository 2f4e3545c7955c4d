"""Runs a pipeline until it is asked to stop, has read what there is, or fails.

Everything that Spark can object to is found before the first query starts.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from penstock.client import Admin, Connection, NewTopic
from penstock.errors import InvalidRequest, TopicExists
from penstock.pipelines import DEAD_LETTERS, Pipeline, TopicSink, query_path, running
from penstock.spark.pipelines.dead_letters import dead_letters_of
from penstock.spark.pipelines.progress import PipelineProgress
from penstock.spark.pipelines.queries import Queries
from penstock.spark.pipelines.sinks import (
    QueryPlace,
    shape,
    stream_writer,
    to_topic,
    writer_of,
)
from penstock.spark.pipelines.views import Views

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

BOOTSTRAP_DEFAULT = "localhost:9092"


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
        with Queries(writers) as queries:
            return queries.watch(is_stopping, show)


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
