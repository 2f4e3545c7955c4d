"""What became of deliveries: acks, retries, dead letters and why, and how far groups are behind."""

from collections import Counter
from dataclasses import dataclass, replace

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from penstock.insight import Bar, BarPlot, Report, Series, Table, TimePlot, show_number, show_width
from penstock.spark.insight.consumer_groups import consumer_groups_table
from penstock.spark.insight.journals import happenings
from penstock.spark.insight.lags import GroupPlace, lags_over_time
from penstock.spark.insight.scope import Scope
from penstock.spark.insight.timelines import Timeline, bounds_of

_KINDS = (
    "delivered", "redelivered", "acked", "returned", "expired", "rejected", "dead_lettered",
    "dropped",
)  # fmt: skip
_DRAWN = ("delivered", "redelivered", "acked", "dead_lettered")
_FAILURES = ("returned", "expired", "rejected", "dead_lettered")
_REASONS_MAX = 100
_BARS_MAX = 12
_REASON_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    counts: list[Row]
    buckets: list[Row]
    reasons: list[Row]
    lags: dict[GroupPlace, Series]


def deliveries_report(session: SparkSession, scope: Scope) -> Report:
    """Count what happened to messages of each queue group, and follow its lag."""
    all_time = happenings(session, scope).cache()
    try:
        told = scope.within(all_time)
        bounds = bounds_of(told)
        if bounds is None:
            empty = scope.empty_report(
                "deliveries",
                "Deliveries",
                note="No queue group has received anything in this span of time.",
            )
            return replace(empty, tables=_consumer_groups(scope))
        timeline = Timeline(*bounds)
        messages = F.sum(F.col("stop") - F.col("start")).alias("messages")
        counts = told.groupBy("topic", "queue", "kind").agg(messages).collect()
        buckets = told.groupBy("topic", "queue", "kind", timeline.bucket).agg(messages).collect()
        reason = F.substring("reason", 1, _REASON_CHARACTERS_MAX).alias("reason")
        failures = told.where(F.col("kind").isin(*_FAILURES))
        reasons = (
            failures.groupBy("topic", "queue", "kind", reason)
            .agg(messages)
            .orderBy(F.desc("messages"), "topic", "queue", "kind", "reason")
            .limit(_REASONS_MAX)
            .collect()
        )
        lags = lags_over_time(session, scope, all_time, timeline)
        found = _Found(counts=counts, buckets=buckets, reasons=reasons, lags=lags)
        return _report(scope, timeline, bounds=bounds, found=found)
    finally:
        all_time.unpersist()


def _report(
    scope: Scope,
    timeline: Timeline,
    *,
    bounds: tuple[int, int],
    found: _Found,
) -> Report:
    by_kind = Counter[str]()
    for row in found.counts:
        by_kind[row["kind"]] += row["messages"]
    delivered = by_kind["delivered"] + by_kind["redelivered"]
    return Report(
        kind="deliveries",
        title="Deliveries",
        topics=scope.topics,
        start_ms=bounds[0],
        end_ms=bounds[1],
        figures=[
            ("deliveries", show_number(delivered)),
            ("of them again", f"{by_kind['redelivered'] / delivered:.1%}" if delivered else "0%"),
            ("acked", show_number(by_kind["acked"])),
            ("dead letters", show_number(by_kind["dead_lettered"])),
        ],
        plots=[
            _outcomes(timeline, found.buckets),
            TimePlot(
                name="lag",
                title="Lag",
                summary="Messages of each group that were published and not settled, at the end of"
                f" each {show_width(timeline.width_ms)}.",
                unit="messages",
                times_ms=timeline.times_ms,
                series=list(found.lags.values()),
            ),
            *_reason_bars(found.reasons),
        ],
        tables=[
            _groups_table(found.counts, found.lags),
            _reasons_table(found.reasons),
            *_consumer_groups(scope),
        ],
    )


def _outcomes(timeline: Timeline, buckets: list[Row]) -> TimePlot:
    values: dict[tuple[str, int], float] = {}
    for row in buckets:
        place = (row["kind"].replace("_", "-"), row["bucket"])
        values[place] = values.get(place, 0.0) + row["messages"]
    return TimePlot(
        name="outcomes",
        title="What happened",
        summary=f"Messages of all groups together, per {show_width(timeline.width_ms)}.",
        unit="messages",
        times_ms=timeline.times_ms,
        series=timeline.series(values, [kind.replace("_", "-") for kind in _DRAWN], 0.0),
    )


def _reason_bars(reasons: list[Row]) -> list[BarPlot]:
    dead = Counter[str]()
    for row in reasons:
        if row["kind"] == "dead_lettered":
            dead[row["reason"] or "no reason given"] += row["messages"]
    if not dead:
        return []
    return [
        BarPlot(
            name="reasons",
            title="Why messages became dead letters",
            summary="The last reason that a consumer gave, or that its lease ended.",
            unit="messages",
            bars=[Bar(reason, count) for reason, count in dead.most_common(_BARS_MAX)],
        )
    ]


def _consumer_groups(scope: Scope) -> list[Table]:
    table = consumer_groups_table(scope)
    return [table] if table.rows else []


def _groups_table(counts: list[Row], lags: dict[GroupPlace, Series]) -> Table:
    found = {(row["topic"], row["queue"], row["kind"]): row["messages"] for row in counts}
    groups = sorted({(topic, group) for topic, group, _ in found} | lags.keys())
    rows = []
    for topic, group in groups:
        numbers = [found.get((topic, group, kind), 0) for kind in _KINDS]
        lag = lags.get((topic, group))
        rows.append([topic, group, *numbers, int(lag.values[-1] or 0) if lag else None])
    columns = [kind.replace("_", "-") for kind in _KINDS]
    return Table("groups", "Queue groups", ["topic", "group", *columns, "lag"], rows)


def _reasons_table(reasons: list[Row]) -> Table:
    rows = [
        [
            row["topic"],
            row["queue"],
            row["kind"].replace("_", "-"),
            row["reason"] or None,
            row["messages"],
        ]
        for row in reasons
    ]
    columns = ("topic", "group", "kind", "reason", "messages")
    return Table("reasons", "Failures and their reasons", columns, rows)
