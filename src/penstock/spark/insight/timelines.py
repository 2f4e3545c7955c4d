"""Counts per span of time, as lines of a plot."""

from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.insight import Series, bucket_ms, bucket_starts


class Timeline:
    """The buckets between the first and the last time of a report."""

    def __init__(self, start_ms: int, end_ms: int) -> None:
        self.width_ms = bucket_ms(start_ms, end_ms)
        self.times_ms = bucket_starts(start_ms, end_ms, self.width_ms)

    @property
    def bucket(self) -> Column:
        """The bucket that `at_ms` falls into."""
        at_ms = F.col("at_ms")
        return (at_ms - F.pmod(at_ms, F.lit(self.width_ms))).alias("bucket")

    def series(
        self, values: Mapping[tuple[str, int], float], names: Iterable[str], empty: float | None
    ) -> list[Series]:
        """Return a line for each name, from values by name and bucket."""
        return [
            Series(name, [values.get((name, time_ms), empty) for time_ms in self.times_ms])
            for name in names
        ]


def bounds_of(frame: DataFrame) -> tuple[int, int] | None:
    """Return the first and the last `at_ms`, None when there are no rows."""
    row = frame.agg(F.min("at_ms").alias("first"), F.max("at_ms").alias("last")).first()
    assert row is not None, "a total has one row"
    return None if row["first"] is None else (int(row["first"]), int(row["last"]))
