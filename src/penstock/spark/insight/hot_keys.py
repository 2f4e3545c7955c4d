"""Which keys most records have."""

from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from penstock.insight import Bar, BarPlot, Report, Table, show_number
from penstock.spark.insight.scope import Scope
from penstock.spark.insight.traffic import HOT_RATIO

KEYS_MAX = 50
_BARS_MAX = 20
_SHOWN_BYTES_MAX = 60


def hot_keys_report(session: SparkSession, scope: Scope) -> Report:
    """Count records and bytes of each key and return the largest."""
    records = scope.records(session, "topic,partition,key,value")
    size = F.coalesce(F.length("value"), F.lit(0))
    keys = (
        records.groupBy("topic", "key")
        .agg(
            F.count("*").alias("records"),
            F.sum(size).alias("bytes"),
            F.min("at_ms").alias("first"),
            F.max("at_ms").alias("last"),
            F.min("partition").alias("partition"),
            F.count_distinct("partition").alias("partitions"),
        )
        .cache()
    )
    try:
        with_key = keys.where(F.col("key").isNotNull())
        totals = keys.groupBy("topic").agg(
            F.sum("records").alias("records"),
            F.sum(F.when(F.col("key").isNull(), F.col("records"))).alias("keyless"),
            F.count("key").alias("keys"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
        )
        top = with_key.orderBy(F.desc("records"), "key").limit(KEYS_MAX).collect()
        return _report(scope, {row["topic"]: row for row in totals.collect()}, top)
    finally:
        keys.unpersist()


def _report(scope: Scope, totals: dict[str, Row], top: list[Row]) -> Report:
    means = {
        topic: (row["records"] - (row["keyless"] or 0)) / row["keys"]
        for topic, row in totals.items()
        if row["keys"]
    }
    hot = frozenset(
        number
        for number, row in enumerate(top)
        if totals[row["topic"]]["keys"] > 1 and row["records"] > HOT_RATIO * means[row["topic"]]
    )
    keyless = sum(row["keyless"] or 0 for row in totals.values())
    records = sum(row["records"] for row in totals.values())
    return Report(
        kind="hot-keys",
        title="Hot keys",
        topics=scope.topics,
        start_ms=min((row["first"] for row in totals.values()), default=scope.start_ms),
        end_ms=max((row["last"] for row in totals.values()), default=scope.end_ms),
        figures=[
            ("records", show_number(records)),
            ("keys", show_number(sum(row["keys"] for row in totals.values()))),
            ("without a key", show_number(keyless)),
            ("hot keys", show_number(len(hot)) + ("+" if len(hot) == KEYS_MAX else "")),
        ],
        notes=_notes(top, records - keyless),
        plots=_plots(scope, top, hot),
        tables=[
            Table(
                "keys",
                f"The {len(top)} largest keys",
                ["topic", "key", "records", "share %", "bytes", "partition", "times the mean"],
                [_line(row, totals[row["topic"]], means[row["topic"]]) for row in top],
                hot,
            )
        ],
    )


def _notes(top: list[Row], with_key: int) -> list[str]:
    if not top:
        return ["No record of this span of time has a key."]
    notes = []
    split = [row for row in top if row["partitions"] > 1]
    if split:
        notes.append(
            f"{len(split)} of the largest keys are in more than one partition, so that their"
            " records are not in one order: the number of partitions has changed, or producers"
            " choose partitions in different ways."
        )
    share = sum(row["records"] for row in top[:10]) / with_key
    notes.insert(0, f"The ten largest keys have {share:.0%} of all records with a key.")
    return notes


def _plots(scope: Scope, top: list[Row], hot: frozenset[int]) -> list[BarPlot]:
    if not top:
        return []
    has_several = len(scope.topics) > 1
    return [
        BarPlot(
            name="keys",
            title="Records per key",
            summary=f"The largest first. Hot is more than {HOT_RATIO:g} times the topic's mean.",
            unit="",
            bars=[
                Bar(
                    (f"{row['topic']} " if has_several else "") + shown_key(row["key"]),
                    row["records"],
                    number in hot,
                )
                for number, row in enumerate(top[:_BARS_MAX])
            ],
        )
    ]


def _line(row: Row, total: Row, mean: float) -> list[Any]:
    return [
        row["topic"],
        shown_key(row["key"]),
        row["records"],
        round(100 * row["records"] / total["records"], 1),
        row["bytes"],
        row["partition"] if row["partitions"] == 1 else "several",
        round(row["records"] / mean, 2),
    ]


def shown_key(key: bytes) -> str:
    """Write a key for people: as text, with escapes for what is none."""
    text = bytes(key[:_SHOWN_BYTES_MAX]).decode(errors="backslashreplace")
    return text + ("…" if len(key) > _SHOWN_BYTES_MAX else "")
