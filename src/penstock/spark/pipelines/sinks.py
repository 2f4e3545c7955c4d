"""Views into sinks: one streaming query for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from penstock.errors import InvalidRequest
from penstock.pipelines import RECORD_COLUMNS, Sink, TableSink, TopicSink
from penstock.spark.pipelines.delta import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# What an expression gives is cast to what the sink takes; keys and values that are bytes stay.
_TYPES = {
    "timestamp": "timestamp",
    "partition": "int",
    "priority": "int",
    "deliver_at": "timestamp",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlace:
    """What a query has besides its rows."""

    name: str
    checkpoint: str
    bootstrap: str
    url: str | None
    trigger_ms: int | None


def shape(sink: Sink, frame: DataFrame) -> DataFrame:
    """Return the rows as the sink writes them; raises what Spark has against it."""
    if not frame.isStreaming:
        raise InvalidRequest(
            f"nothing in {sink.view} streams: it needs a topic, or Parquet with stream: true"
        )
    if isinstance(sink, TableSink):
        return frame.drop(*RECORD_COLUMNS)
    return frame.select(*_record_columns(sink, frame))


def writer_of(sink: Sink, shaped: DataFrame, place: QueryPlace) -> "DataStreamWriter":
    """Return a query of a sink, ready to start."""
    writer = stream_writer(shaped, place).outputMode(sink.mode)
    if isinstance(sink, TopicSink):
        if sink.mode == "update":
            return writer.foreachBatch(TopicBatches(sink.topic, place))
        return to_topic(writer, sink.topic, place, guarantee=sink.guarantee)
    if sink.format == "delta":
        delta = DeltaSink(sink.path, sink.partition_by, sink.mode, place.checkpoint)
        return writer.foreachBatch(delta)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    return writer.format("parquet").option("path", sink.path)


def stream_writer(frame: DataFrame, place: QueryPlace) -> "DataStreamWriter":
    """Return a writer with name, checkpoint and trigger."""
    writer = frame.writeStream.queryName(place.name).option("checkpointLocation", place.checkpoint)
    if place.trigger_ms is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{place.trigger_ms} milliseconds")


def to_topic(
    writer: "DataStreamWriter", topic: str, place: QueryPlace, *, guarantee: str
) -> "DataStreamWriter":
    """Let a query write to a topic."""
    return writer.format("penstock").options(**_options(topic, place, guarantee))


@dataclass(frozen=True, slots=True)
class TopicBatches:
    """Publishes the results that a micro-batch has changed; for `foreachBatch`.

    Spark lets no sink that is written in Python take updates, so each micro-batch is a batch of its
    own, which is published again when Spark repeats it.
    """

    topic: str
    place: QueryPlace

    def __call__(self, rows: DataFrame, _epoch: int) -> None:
        """Publish one micro-batch."""
        options = _options(self.topic, self.place, "at_least_once")
        rows.write.format("penstock").mode("append").options(**options).save()


def _options(topic: str, place: QueryPlace, guarantee: str) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": place.bootstrap,
        "topic": topic,
        "mode": guarantee,
    }
    return options if place.url is None else {**options, "url": place.url}


def headers_of(expressions: Mapping[str, Column]) -> Column:
    """Return the column of headers."""
    return F.array(
        *(
            F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
            for name, value in expressions.items()
        )
    )


def _record_columns(sink: TopicSink, frame: DataFrame) -> list[Column]:
    columns = {name: F.expr(text) for name, text in sink.columns.items()}
    if "value" not in columns:
        own = [name for name in frame.columns if name not in RECORD_COLUMNS]
        columns["value"] = F.to_json(F.struct(*(F.col(f"`{name}`") for name in own)))
    types = frame.select(*(column.alias(name) for name, column in columns.items())).schema
    shaped = []
    for name, column in columns.items():
        if name in _TYPES:
            column = column.cast(_TYPES[name])
        elif not isinstance(types[name].dataType, BinaryType):
            column = column.cast("string")
        shaped.append(column.alias(name))
    if sink.headers:
        headers = {name: F.expr(text) for name, text in sink.headers.items()}
        shaped.append(headers_of(headers).alias("headers"))
    return shaped
