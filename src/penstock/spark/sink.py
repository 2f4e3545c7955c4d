"""`format("penstock")` as a sink: rows become records of topics.

The driver makes a writer, which Spark carries to the executors; each task turns its rows into
record batches and sends them. In the mode `at_least_once` that is all: what a task has sent is
published, and a task that Spark repeats publishes again.

In the mode `exactly_once` tasks stage their batches, and the driver's commit has them published.
The writer is the query and the epoch its micro-batch; a batch job is a writer with one epoch.

- A task fails and is repeated: it stages under another name, and the commit names the one that
  Spark has taken.
- The driver dies before it commits: nothing is published. What was staged expires.
- The driver dies while it commits, or after that and before Spark has written it down: Spark runs
  the micro-batch again, and its commit finds that the epoch was decided. Then the first run counts
  to the last row, and the second is dropped, whatever rows it has.
- A broker dies: requests are repeated, all of which may be.
- A query goes on from an old checkpoint: its epochs are older than the last one, and refused.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.client import Admin, Connection, NewTopic, StageName
from penstock.clock import SystemClock
from penstock.errors import InvalidRequest, PenstockError, TopicExists
from penstock.spark.brokers import brokers_of
from penstock.spark.building import BatchBuilder, BuiltBatch, TopicShape
from penstock.spark.producing import BatchProducer
from penstock.spark.retries import retrying
from penstock.spark.rows import check_sink_schema
from penstock.spark.sink_options import HOME_DEFAULT, SinkOptions, parse_sink_options
from penstock.spark.staging import (
    StagedTask,
    TaskStage,
    abort_tasks,
    commit_tasks,
    find_nodes,
    new_run,
    new_staged_writer,
)

# An address that is wrong is not put right by waiting.
_FIRST_CONTACT_WAIT_MS = 10_000
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


def batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceWriter:
    """Return a writer for a batch, or raise what keeps it from being written."""
    checked = _checked(options, schema, overwrite=overwrite)
    if not checked.is_exactly_once:
        return PublishingWriter(checked)
    return StagingWriter(checked, f"spark-{new_run()}", new_run())


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceStreamWriter:
    """Return a writer for one micro-batch of a stream."""
    checked = _checked(options, schema, overwrite=overwrite)
    if not checked.is_exactly_once:
        return PublishingStreamWriter(checked)
    return StagingStreamWriter(checked, new_run())


def _checked(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> SinkOptions:
    if overwrite:
        raise InvalidRequest(
            'a topic cannot be overwritten: write with mode("append"), streams with'
            ' outputMode("append")'
        )
    parsed = parse_sink_options(options)
    check_sink_schema(schema, parsed.topic)
    first = replace(parsed, patience_ms=min(parsed.patience_ms, _FIRST_CONTACT_WAIT_MS))
    if parsed.topic is not None:
        topic_shape(first, parsed.topic)
    if not parsed.is_exactly_once:
        return parsed
    _check_home(first)
    return replace(parsed, nodes=find_nodes(first))


def _check_home(options: SinkOptions) -> None:
    """Make sure that commits can be kept, and that there is a node to send them to."""
    if options.home == HOME_DEFAULT:
        with suppress(TopicExists):
            Admin(Connection(options.bootstrap)).create_topic(
                NewTopic(name=HOME_DEFAULT, partitions=1)
            )
    writer = new_staged_writer(options, options.urls)
    try:
        writer.status(options.home, "spark")
    finally:
        writer.close()


@dataclass
class Published(WriterCommitMessage):
    """A task has published so many records."""

    records: int


class PublishingWriter(DataSourceArrowWriter):
    """Publishes a batch at least once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of one task."""
        return publish_rows(self._options, iterator)


class PublishingStreamWriter(DataSourceStreamArrowWriter):
    """Publishes a micro-batch at least once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of one task."""
        return publish_rows(self._options, iterator)


class StagingWriter(DataSourceArrowWriter):
    """Publishes a batch exactly once."""

    def __init__(self, options: SinkOptions, writer: str, run: str) -> None:
        self._options = options
        self._writer = writer
        self._run = run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        name = stage_name(self._options, self._writer, 0, self._run)
        return stage_rows(self._options, name, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what was staged."""
        commit_tasks(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what was staged."""
        abort_tasks(self._options, messages)


class StagingStreamWriter(DataSourceStreamArrowWriter):
    """Publishes a micro-batch exactly once."""

    def __init__(self, options: SinkOptions, run: str) -> None:
        self._options = options
        self._run = run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        query, epoch = _stream_identity()
        name = stage_name(self._options, f"spark-{query}", epoch, f"{self._run}-{epoch}")
        return stage_rows(self._options, name, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Publish what was staged."""
        commit_tasks(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Drop what was staged."""
        abort_tasks(self._options, messages)


def _stream_identity() -> tuple[str, int]:
    """Return the query that this task belongs to, and its micro-batch."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY_ID)
    epoch = None if context is None else context.getLocalProperty(_BATCH_ID)
    if query is None or epoch is None:
        raise PenstockError(
            f"Spark does not tell {_QUERY_ID} and {_BATCH_ID}, which exactly_once needs;"
            " mode=at_least_once goes without"
        )
    return query, int(epoch)


def stage_name(options: SinkOptions, writer: str, epoch: int, run: str) -> StageName:
    """Return the name under which the task that runs here stages; each attempt has another."""
    context = TaskContext.get()
    attempt = "0-0" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}"
    return StageName(home=options.home, writer=writer, epoch=epoch, run=run, stage=attempt)


def stage_rows(
    options: SinkOptions, name: StageName, batches: Iterator[pa.RecordBatch]
) -> StagedTask:
    """Stage the rows of one task; returns when all of them are kept."""
    builder = new_builder(options)
    stage = TaskStage(options, name, builder.task)
    try:
        for batch in built_batches(builder, batches):
            stage.send(batch)
        return stage.finish()
    finally:
        stage.close()


def publish_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Published:
    """Publish the rows of one task; returns when all of them are stored."""
    builder = new_builder(options)
    producer = BatchProducer(
        options.bootstrap,
        request_wait_ms=options.request_wait_ms,
        patience_ms=options.patience_ms,
    )
    records = 0
    try:
        for batch in built_batches(builder, batches):
            producer.send(batch)
            records += batch.records
        producer.finish()
    finally:
        producer.close()
    return Published(records)


def new_builder(options: SinkOptions) -> BatchBuilder:
    """Return what makes the record batches of the task that runs here."""
    context = TaskContext.get()
    return BatchBuilder(
        partial(topic_shape, options),
        task=0 if context is None else context.partitionId(),
        topic=options.topic,
        codec=options.codec,
        bytes_max=options.batch_bytes,
    )


def built_batches(builder: BatchBuilder, batches: Iterator[pa.RecordBatch]) -> Iterator[BuiltBatch]:
    """Yield the record batches for all rows of a task."""
    clock = SystemClock()
    for batch in batches:
        yield from builder.add(batch, clock.now_ms())
    yield from builder.finish()


def topic_shape(options: SinkOptions, topic: str) -> TopicShape:
    """Ask the cluster about a topic; one that is not there raises."""
    brokers = brokers_of(options.bootstrap, options.request_wait_ms / 1000)

    def ask() -> TopicShape:
        partitions = len(brokers.partitions([topic])[topic])
        return TopicShape(partitions, brokers.batch_bytes_max(topic))

    return retrying(ask, brokers.forget_leaders, options.patience_ms / 1000)
