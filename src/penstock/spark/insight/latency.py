"""How long messages take from their publish to their ack."""

import json
from collections import defaultdict

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from penstock.insight import Report, Table, TimePlot, show_duration, show_number, show_width
from penstock.spark.insight.journals import happenings
from penstock.spark.insight.scope import Scope
from penstock.spark.insight.timelines import Timeline, bounds_of

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_DRAWN = ("p50", "p95", "p99")
_ACCURACY = 1000


def latency_report(session: SparkSession, scope: Scope) -> Report:
    """Compare the time of each ack with that of its record."""
    acks = scope.within(happenings(session, scope).where("kind = 'acked'")).cache()
    try:
        bounds = bounds_of(acks)
        if bounds is None:
            return scope.empty_report(
                "latency",
                "Latency from publish to ack",
                note="No message was acknowledged by a queue group in this span of time.",
            )
        latencies = _latencies(session, scope, acks).cache()
        timeline = Timeline(*bounds)
        totals = _percentiles(latencies, "topic", "queue").orderBy("topic", "queue").collect()
        buckets = _percentiles(latencies, "topic", "queue", timeline.bucket).collect()
        latencies.unpersist()
        return _report(scope, timeline, totals=totals, buckets=buckets, bounds=bounds)
    finally:
        acks.unpersist()


def _latencies(session: SparkSession, scope: Scope, acks: DataFrame) -> DataFrame:
    """Return a row for each ack of a record that the log still holds."""
    ranges = acks.groupBy("topic", "partition").agg(
        F.min("start").alias("start"), F.max("stop").alias("stop")
    )
    offsets = acks.select(
        "topic", "partition", "queue", "at_ms",
        F.explode(F.sequence("start", F.col("stop") - 1)).alias("offset"),
    )  # fmt: skip
    records = _records(session, scope, ranges.collect())
    return offsets.join(records, ["topic", "partition", "offset"]).select(
        "topic",
        "queue",
        "at_ms",
        # Clocks of publishers may be ahead of the brokers'.
        F.greatest(F.col("at_ms") - F.col("published_ms"), F.lit(0)).alias("latency_ms"),
    )


def _records(session: SparkSession, scope: Scope, ranges: list[Row]) -> DataFrame:
    """Return the times of the records that were acked, and of those between them."""
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for row in ranges:
        starts[row["topic"]][str(row["partition"])] = row["start"]
        ends[row["topic"]][str(row["partition"])] = row["stop"]
    assigned = {topic: [int(each) for each in partitions] for topic, partitions in starts.items()}
    records = (
        session.read.format("penstock")
        .option("kafka.bootstrap.servers", scope.bootstrap)
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        # What retention has taken since is left out of the count.
        .option("failOnDataLoss", "false")
        .option("columns", "topic,partition,offset,timestamp")
        .load()
    )
    published_ms = F.unix_millis("timestamp").alias("published_ms")
    return records.select("topic", "partition", "offset", published_ms)


def _percentiles(latencies: DataFrame, *by: str | Column) -> DataFrame:
    wanted = F.array(*(F.lit(share) for share in PERCENTILES.values()))
    return latencies.groupBy(*by).agg(
        F.count("*").alias("acks"),
        F.percentile_approx("latency_ms", wanted, _ACCURACY).alias("percentiles"),
        F.max("latency_ms").alias("most"),
    )


def _report(
    scope: Scope,
    timeline: Timeline,
    *,
    totals: list[Row],
    buckets: list[Row],
    bounds: tuple[int, int],
) -> Report:
    names = list(PERCENTILES)
    slowest = max(totals, key=lambda row: row["percentiles"][names.index("p99")], default=None)
    figures = [("acks", show_number(sum(row["acks"] for row in totals)))]
    if slowest is not None:
        group = f"{slowest['topic']} / {slowest['queue']}" if len(totals) > 1 else ""
        for name in ("p50", "p99"):
            label = f"{name} of {group}" if group else name
            figures.append((label, show_duration(slowest["percentiles"][names.index(name)])))
    return Report(
        kind="latency",
        title="Latency from publish to ack",
        topics=scope.topics,
        start_ms=bounds[0],
        end_ms=bounds[1],
        figures=figures,
        plots=[_plot(timeline, row, number, buckets) for number, row in enumerate(totals)],
        tables=[
            Table(
                "groups",
                "Queue groups, in milliseconds",
                ["topic", "group", "acks", *names, "max"],
                [
                    [row["topic"], row["queue"], row["acks"], *row["percentiles"], row["most"]]
                    for row in totals
                ],
            )
        ],
    )


def _plot(timeline: Timeline, total: Row, number: int, buckets: list[Row]) -> TimePlot:
    names = list(PERCENTILES)
    values = {
        (name, row["bucket"]): float(row["percentiles"][names.index(name)])
        for row in buckets
        if (row["topic"], row["queue"]) == (total["topic"], total["queue"])
        for name in _DRAWN
    }
    return TimePlot(
        name=f"latency-{number}",
        title=f"Group {total['queue']} of {total['topic']}",
        summary="Time from publish to ack, by the time of the ack: percentiles per"
        f" {show_width(timeline.width_ms)}.",
        unit="ms",
        times_ms=timeline.times_ms,
        series=timeline.series(values, _DRAWN, None),
    )
