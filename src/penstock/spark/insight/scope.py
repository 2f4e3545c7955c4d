"""What a report is about: topics, a span of time, and where the cluster is."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.readwriter import DataFrameReader

from penstock.client import Admin, Connection
from penstock.ids import TopicPartition
from penstock.insight import Report
from penstock.spark.history import ARCHIVE_SETTING


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which topics, and from when up to when; without a bound, from the first or to the last."""

    topics: tuple[str, ...]
    bootstrap: str
    url: str
    start_ms: int | None = None
    end_ms: int | None = None
    includes_deleted: bool = False
    """Whether what retention has removed is read from the archives of the topics that have one."""
    storage: Mapping[str, str] = field(default_factory=dict)
    """Options of the object stores that the archives are in."""

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions of all topics; one that does not exist raises."""
        admin = Admin(Connection(self.bootstrap))
        return [place for topic in self.topics for place in admin.partitions(topic)]

    def records(self, session: SparkSession, columns: str) -> DataFrame:
        """Return the records of the span of time, with the column `at_ms`."""
        archived = self._archived() if self.includes_deleted else []
        plain = [topic for topic in self.topics if topic not in archived]
        read = [
            self._reader(session, topics, f"timestamp,{columns}").options(**options).load()
            for topics, options in ((plain, {}), (archived, self._archive_options()))
            if topics
        ]
        records = reduce(DataFrame.unionByName, read).withColumn(
            "at_ms", F.unix_millis("timestamp")
        )
        return self.within(records.drop("timestamp"))

    def _archived(self) -> list[str]:
        admin = Admin(Connection(self.bootstrap))
        return [
            topic
            for topic in self.topics
            if any(
                each.name == ARCHIVE_SETTING and each.value for each in admin.topic(topic).settings
            )
        ]

    def _archive_options(self) -> dict[str, str]:
        return {"includeDeleted": "true", "archiveOptions": json.dumps(dict(self.storage))}

    def _reader(
        self, session: SparkSession, topics: Sequence[str], columns: str
    ) -> DataFrameReader:
        reader = (
            session.read.format("penstock")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", ",".join(topics))
            .option("columns", columns)
        )
        if self.start_ms is not None:
            # Where nothing is that new there is nothing to read, which is no error.
            reader = reader.option("startingTimestamp", str(self.start_ms))
            reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
        return reader

    def within(self, frame: DataFrame) -> DataFrame:
        """Return the rows whose `at_ms` lies in the span of time."""
        if self.start_ms is not None:
            frame = frame.where(F.col("at_ms") >= self.start_ms)
        if self.end_ms is not None:
            frame = frame.where(F.col("at_ms") < self.end_ms)
        return frame

    def empty_report(self, kind: str, title: str, *, note: str) -> Report:
        """Return a report that says why it has nothing to show."""
        return Report(
            kind=kind,
            title=title,
            topics=self.topics,
            start_ms=self.start_ms,
            end_ms=self.end_ms,
            notes=[note],
        )
