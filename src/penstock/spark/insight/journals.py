"""The delivery journals of partitions as a data frame of what happened to messages.

Each partition's journal is read in an executor, page by page, because leases must be followed in
their order; several partitions are read side by side. For a span of time reading begins one longest
lease before it: a delivery that is older has been extended or has ended by then, so that all leases
of the span are known. Only a message that was given back before that, to be delivered in the span,
is not told from one that is delivered for the first time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.client import Client, JournalEntry
from penstock.insight import Follower, Happening
from penstock.spark.insight.scope import Scope

HAPPENINGS = (
    "topic string, partition int, queue string, kind string, start bigint, stop bigint,"
    " at_ms bigint, reason string, consumer string"
)
_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("queue", pa.string()),
        ("kind", pa.string()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("at_ms", pa.int64()),
        ("reason", pa.string()),
        ("consumer", pa.string()),
    ]
)
_ROWS_MAX = 50_000
LEASE_MS_MAX = 24 * 3_600_000


def happenings(session: SparkSession, scope: Scope) -> DataFrame:
    """Return what happened to runs of messages of all queue groups in a span of time, and more.

    Without a beginning it is all that the journals hold.
    """
    places = [(place.topic, place.partition) for place in scope.partitions()]
    frame = session.createDataFrame(places, "topic string, partition int")
    spread = frame.repartition(len(places), "topic", "partition")
    since_ms = None if scope.start_ms is None else max(scope.start_ms - LEASE_MS_MAX, 0)
    return spread.mapInArrow(JournalReading(scope.url, since_ms), HAPPENINGS)


@dataclass(frozen=True, slots=True)
class JournalReading:
    """Reads the journals of the partitions that it is given, in an executor."""

    url: str
    since_ms: int | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what happened, partition by partition."""
        for batch in batches:
            for row in batch.to_pylist():
                yield from self._partition(row["topic"], row["partition"])

    def _partition(self, topic: str, partition: int) -> Iterator[pa.RecordBatch]:
        follower = Follower()
        for entries in self._pages(topic, partition):
            found = [*follower.follow(entries)]
            for start in range(0, len(found), _ROWS_MAX):
                yield _batch(topic, partition, found[start : start + _ROWS_MAX])

    def _pages(self, topic: str, partition: int) -> Iterator[tuple[JournalEntry, ...]]:
        """Yield pages up to where the journal ended when reading began."""
        with Client(self.url) as client:
            page = client.journal(topic, partition, since_ms=self.since_ms)
            end = page.end
            yield page.entries
            while page.next_index < end:
                page = client.journal(topic, partition, index=page.next_index)
                yield tuple(entry for entry in page.entries if entry.index < end)


def _batch(topic: str, partition: int, found: list[Happening]) -> pa.RecordBatch:
    columns = {
        "topic": [topic] * len(found),
        "partition": [partition] * len(found),
        "queue": [each.group for each in found],
        "kind": [each.kind for each in found],
        "start": [each.start for each in found],
        "stop": [each.end for each in found],
        "at_ms": [each.at_ms for each in found],
        "reason": [each.reason for each in found],
        "consumer": [each.consumer for each in found],
    }
    return pa.RecordBatch.from_pydict(columns, schema=_SCHEMA)
