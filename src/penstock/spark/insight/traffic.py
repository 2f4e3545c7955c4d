"""How much goes through which partition, and which ones are hot."""

from dataclasses import dataclass
from statistics import mean

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from penstock.insight import (
    Bar,
    BarPlot,
    Cell,
    Report,
    Table,
    TimePlot,
    show_bytes,
    show_number,
    show_width,
)
from penstock.spark.insight.scope import Scope
from penstock.spark.insight.timelines import Timeline, bounds_of

HOT_RATIO = 3.0
_BARS_MAX = 30


def traffic_report(session: SparkSession, scope: Scope) -> Report:
    """Count records and bytes of each partition, over time and in all."""
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    records = scope.records(session, "topic,partition,key,value")
    # One pass over the records; seconds are fine enough for any plot and few enough to keep.
    seconds = (
        records.groupBy("topic", "partition", F.expr("at_ms - at_ms % 1000").alias("at_ms"))
        .agg(F.count("*").alias("records"), F.sum(size).alias("bytes"))
        .cache()
    )
    try:
        bounds = bounds_of(seconds)
        if bounds is None:
            return scope.empty_report(
                "traffic", "Traffic", note="There are no records in this span of time."
            )
        timeline = Timeline(*bounds)
        totals = seconds.groupBy("topic", "partition").agg(
            F.sum("records").alias("records"),
            F.sum("bytes").alias("bytes"),
            F.max("records").alias("peak"),
        )
        rows = {(row["topic"], row["partition"]): row for row in totals.collect()}
        # A partition without a record counts for the mean: it could have taken some.
        places = [(place.topic, place.partition) for place in scope.partitions()]
        shares = [_share(*place, rows.get(place)) for place in places]
        buckets = seconds.groupBy("topic", "partition", timeline.bucket)
        counts = buckets.agg(F.sum("records").alias("records")).collect()
        return _Traffic(scope, timeline, bounds, shares, counts).report()
    finally:
        seconds.unpersist()


@dataclass(frozen=True, slots=True)
class _Share:
    """What went through one partition."""

    topic: str
    partition: int
    records: int
    size_bytes: int
    peak: int
    """Records of its busiest second."""


def _share(topic: str, partition: int, row: Row | None) -> _Share:
    if row is None:
        return _Share(topic, partition, 0, 0, 0)
    return _Share(topic, partition, row["records"], row["bytes"], row["peak"])


class _Traffic:
    """All that was counted, and what it means."""

    def __init__(
        self,
        scope: Scope,
        timeline: Timeline,
        bounds: tuple[int, int],
        shares: list[_Share],
        counts: list[Row],
    ) -> None:
        self._scope = scope
        self._timeline = timeline
        self._bounds = bounds
        self._shares = shares
        self._counts = counts
        self._seconds = (bounds[1] - bounds[0]) / 1000 + 1
        self._means = {
            topic: mean([each.records for each in shares if each.topic == topic])
            for topic in scope.topics
        }

    def report(self) -> Report:
        """Return the report."""
        records = sum(each.records for each in self._shares)
        size_bytes = sum(each.size_bytes for each in self._shares)
        hot = [each for each in self._shares if self._is_hot(each)]
        return Report(
            kind="traffic",
            title="Traffic",
            topics=self._scope.topics,
            start_ms=self._bounds[0],
            end_ms=self._bounds[1] + 1000,
            figures=[
                ("records", show_number(records)),
                ("size of keys and values", show_bytes(size_bytes)),
                ("mean rate", f"{show_number(records / self._seconds)}/s"),
                ("hot partitions", f"{len(hot)} of {len(self._shares)}"),
            ],
            notes=self._notes(hot),
            plots=[self._rates(), *map(self._bars, self._scope.topics)],
            tables=[self._table()],
        )

    def _ratio(self, share: _Share) -> float:
        topic_mean = self._means[share.topic]
        return share.records / topic_mean if topic_mean else 0.0

    def _is_hot(self, share: _Share) -> bool:
        return self._ratio(share) > HOT_RATIO

    def _notes(self, hot: list[_Share]) -> list[str]:
        if not hot:
            return [f"No partition has more than {HOT_RATIO:g} times the mean rate of its topic."]
        return [
            f"{each.topic} partition {each.partition} has {self._ratio(each):.1f} times the mean"
            " rate of its topic."
            for each in hot
        ]

    def _rates(self) -> TimePlot:
        width_ms = self._timeline.width_ms
        values = {
            (f"{row['topic']}-{row['partition']}", row["bucket"]): row["records"]
            / self._covered_s(row["bucket"])
            for row in self._counts
        }
        names = [f"{each.topic}-{each.partition}" for each in self._shares]
        return TimePlot(
            name="rate",
            title="Records per second",
            summary="Rate of each partition, by the time of its records, per"
            f" {show_width(width_ms)}.",
            unit="/s",
            times_ms=self._timeline.times_ms,
            series=self._timeline.series(values, names, 0.0),
        )

    def _covered_s(self, bucket_ms: int) -> float:
        """Return how much of a bucket lies in the report; the first and the last are cut."""
        start = max(bucket_ms, self._bounds[0])
        end = min(bucket_ms + self._timeline.width_ms, self._bounds[1] + 1000)
        return (end - start) / 1000

    def _bars(self, topic: str) -> BarPlot:
        shares = [each for each in self._shares if each.topic == topic]
        shares.sort(key=lambda each: -each.records)
        return BarPlot(
            name=f"partitions-{self._scope.topics.index(topic)}",
            title=f"Records per partition of {topic}",
            summary=f"The busiest first. Hot is more than {HOT_RATIO:g} times the mean.",
            unit="",
            bars=[
                Bar(f"partition {each.partition}", each.records, self._is_hot(each))
                for each in shares[:_BARS_MAX]
            ],
            threshold=HOT_RATIO * self._means[topic] if len(shares) > 1 else None,
            threshold_label=f"{HOT_RATIO:g} times the mean",
        )

    def _table(self) -> Table:
        columns = (
            "topic", "partition", "records", "records/s", "bytes", "peak records/s",
            "times the mean",
        )  # fmt: skip
        rows: list[list[Cell]] = [
            [
                each.topic,
                each.partition,
                each.records,
                round(each.records / self._seconds, 2),
                each.size_bytes,
                each.peak,
                round(self._ratio(each), 2),
            ]
            for each in self._shares
        ]
        marked = (number for number, each in enumerate(self._shares) if self._is_hot(each))
        return Table("partitions", "Partitions", columns, rows, frozenset(marked))
