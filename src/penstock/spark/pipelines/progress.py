"""How far a running pipeline is, from what Spark tells of its queries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.ids import TopicPartition
from penstock.pipelines import DEAD_LETTERS
from penstock.spark.lag import lag_of
from penstock.spark.pipelines.dead_letters import COUNT

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineProgress:
    """What has been done since the start: rows that the queries of all sinks have read together.

    `lag` counts offsets that were still to be read.
    """

    rows: int = 0
    rows_per_s: float = 0.0
    lag: int = 0
    dead_letters: int = 0
    epochs: Mapping[str, int] = field(default_factory=dict)
    """The last micro-batch of each query, by the name of its sink."""

    def __str__(self) -> str:
        epochs = ", ".join(f"{sink} {epoch}" for sink, epoch in self.epochs.items())
        return (
            f"{self.rows:,} rows, {self.rows_per_s:,.0f} rows/s, lag {self.lag:,},"
            f" {self.dead_letters:,} dead letters; epochs: {epochs or 'none yet'}"
        )


@dataclass(slots=True)
class QueryWatch:
    """Follows one query. Spark keeps the last hundred micro-batches; each is counted once."""

    rows: int = 0
    rows_per_s: float = 0.0
    dead_letters: int = 0
    epoch: int | None = None
    lags: dict[TopicPartition, int] = field(default_factory=dict)

    def look(self, query: "StreamingQuery") -> bool:
        """Take note of what has been done since the last look; tell whether that is anything."""
        last: Any = query.lastProgress
        if last is None:
            return False
        is_further = self.epoch is None or last["batchId"] > self.epoch
        if is_further:
            for progress in query.recentProgress:
                self._take(progress)
        # A query that waits tells of its last epoch again and again, without rows.
        self.rows_per_s = float(last.processedRowsPerSecond or 0.0)
        self.lags |= lag_of(last)
        return is_further

    def _take(self, progress: Any) -> None:
        epoch = int(progress["batchId"])
        if self.epoch is not None and epoch <= self.epoch:
            return
        self.epoch = epoch
        self.rows += int(progress.numInputRows)
        observed = progress["observedMetrics"] or {}
        if COUNT in observed:
            # A Connect server leaves out what an empty micro-batch would have counted.
            self.dead_letters += int(observed[COUNT].asDict().get("rows") or 0)


def sum_up(watches: Mapping[str, QueryWatch]) -> PipelineProgress:
    """Return the progress of all queries as one; a topic's lag is that of its slowest query."""
    sinks = [watch for name, watch in watches.items() if name != DEAD_LETTERS]
    lags: dict[TopicPartition, int] = {}
    for watch in sinks:
        for place, lag in watch.lags.items():
            lags[place] = max(lag, lags.get(place, 0))
    return PipelineProgress(
        rows=sum(watch.rows for watch in sinks),
        rows_per_s=sum(watch.rows_per_s for watch in sinks),
        lag=sum(lags.values()),
        dead_letters=sum(watch.dead_letters for watch in watches.values()),
        epochs={name: each.epoch for name, each in watches.items() if each.epoch is not None},
    )
