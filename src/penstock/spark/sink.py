"""`format("penstock")` as a sink: rows become records of topics.

The driver makes a writer, which Spark carries to the executors; each task turns its rows into
record batches and sends them. In the mode `at_least_once` that is all: what a task has sent is
published, and a task that Spark repeats publishes again.
"""

from collections.abc import Iterator, Mapping
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

from penstock.clock import SystemClock
from penstock.errors import InvalidRequest
from penstock.spark.brokers import brokers_of
from penstock.spark.building import BatchBuilder, BuiltBatch, TopicShape
from penstock.spark.producing import BatchProducer
from penstock.spark.retries import retrying
from penstock.spark.rows import check_sink_schema
from penstock.spark.sink_options import SinkOptions, parse_sink_options

# An address that is wrong is not put right by waiting.
_FIRST_CONTACT_WAIT_MS = 10_000


def batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceWriter:
    """Return a writer for a batch, or raise what keeps it from being written."""
    return PublishingWriter(_checked(options, schema, overwrite=overwrite))


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceStreamWriter:
    """Return a writer for one micro-batch of a stream."""
    return PublishingStreamWriter(_checked(options, schema, overwrite=overwrite))


def _checked(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> SinkOptions:
    if overwrite:
        raise InvalidRequest(
            'a topic cannot be overwritten: write with mode("append"), streams with'
            ' outputMode("append") or outputMode("update")'
        )
    parsed = parse_sink_options(options)
    check_sink_schema(schema, parsed.topic)
    if parsed.is_exactly_once:
        raise InvalidRequest("mode is exactly_once, only at_least_once can be written")
    if parsed.topic is not None:
        first = replace(parsed, patience_ms=min(parsed.patience_ms, _FIRST_CONTACT_WAIT_MS))
        topic_shape(first, parsed.topic)
    return parsed


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
