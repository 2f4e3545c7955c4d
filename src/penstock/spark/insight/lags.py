"""How many messages of queue groups were there and not settled, over time.

How many it is now is told by the groups; from there the line is followed back, by what came and by
what was settled. So nothing that lies before the span has to be read, and a journal whose beginning
is gone does no harm. While groups are at work, a line may be off by what they do in the seconds
that the job takes; before a group was reset it is that of the group that it has become.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.client import Client
from penstock.insight import Series
from penstock.spark.insight.scope import Scope
from penstock.spark.insight.timelines import Timeline

SETTLED = ("acked", "dead_lettered", "dropped")

GroupPlace = tuple[str, str]
"""A topic and one of its queue groups."""


def lags_over_time(
    session: SparkSession, scope: Scope, happened: DataFrame, timeline: Timeline
) -> dict[GroupPlace, Series]:
    """Return a line for each group that there is now, with the value at the end of each bucket."""
    unsettled = lags_now(scope)
    if not unsettled:
        return {}
    since = replace(scope, start_ms=timeline.times_ms[0], end_ms=None)
    groups = session.createDataFrame(list(unsettled), "topic string, queue string")
    settled = since.within(happened.where(F.col("kind").isin(*SETTLED)))
    changes = (
        _come(since.records(session, "topic,partition,offset"), groups, happened)
        .unionByName(settled.selectExpr("topic", "queue", "at_ms", "start - stop AS change"))
        .groupBy("topic", "queue", timeline.bucket)
        .agg(F.sum("change").alias("change"))
    )
    found: dict[GroupPlace, dict[int, int]] = {place: {} for place in unsettled}
    for row in changes.collect():
        found.setdefault((row["topic"], row["queue"]), {})[row["bucket"]] = row["change"]
    return {
        place: Series(" / ".join(place), levels(timeline.times_ms, found[place], last))
        for place, last in unsettled.items()
    }


def lags_now(scope: Scope) -> dict[GroupPlace, int]:
    """Return how many messages each group has not settled."""
    with Client(scope.url) as client:
        return {
            (topic, group.name): group.totals.unsettled
            for topic in scope.topics
            for group in client.groups.list(topic)
        }


def levels(times_ms: Sequence[int], changes: Mapping[int, int], last: int) -> list[float]:
    """Return the level at the end of each bucket, from what it is after all of the changes."""
    level = last - sum(change for bucket, change in changes.items() if bucket > times_ms[-1])
    found: list[float] = []
    for bucket in reversed(times_ms):
        found.append(float(max(level, 0)))
        level -= changes.get(bucket, 0)
    return found[::-1]


def _come(records: DataFrame, groups: DataFrame, happened: DataFrame) -> DataFrame:
    """Return one row for each record and group that it is for; a group begins at its floor."""
    floors = (
        happened.where("kind = 'created'")
        .groupBy("topic", "partition", "queue")
        .agg(F.max_by("start", "at_ms").alias("floor"))
    )
    concerned = (
        records.join(F.broadcast(groups), ["topic"])
        .join(F.broadcast(floors), ["topic", "partition", "queue"], "left")
        .where("offset >= coalesce(floor, 0)")
    )
    return concerned.selectExpr("topic", "queue", "at_ms", "1L AS change")
