"""Publishes a window of a topic's history again, into another topic, on Spark.

Keys, values, headers and timestamps are those of the originals; offsets are new. One task reads one
partition, so messages of a key keep their order. All of them are published together when everything
was read, or none is; in the mode `at_least_once` they are published as they are read.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import Column, Observation, SparkSession, functions

from penstock.client import Admin, Connection
from penstock.errors import InvalidRequest, TopicNotFound
from penstock.spark.failures import told_error
from penstock.spark.history import ARCHIVE_SETTING


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What is published again, and where."""

    bootstrap: str
    url: str
    topic: str
    into: str
    from_ms: int | None = None
    to_ms: int | None = None
    archive_path: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    mode: str = "exactly_once"
    keeps_partitions: bool = False

    def source_options(self) -> dict[str, str]:
        """Return what is read: archive and log where there is an archive, else the log."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "columns": "key,value,headers,timestamp,partition",
            "kafka.isolation.level": "read_committed",
            "startingOffsetsByTimestampStrategy": "latest",
            "archiveOptions": json.dumps(dict(self.storage)),
        }
        if self.archive_path is not None:
            options["archivePath"] = self.archive_path
        if self.from_ms is not None:
            options["startingTimestamp"] = str(self.from_ms)
        return options

    def window(self) -> Column:
        """Return what tells messages of the window: times may be in any order."""
        time = functions.col("timestamp")
        window = functions.lit(True)
        if self.from_ms is not None:
            window &= time >= functions.timestamp_millis(functions.lit(self.from_ms))
        if self.to_ms is not None:
            window &= time < functions.timestamp_millis(functions.lit(self.to_ms))
        return window


def run_replay(spark: SparkSession, replay: Replay) -> int:
    """Publish the window and return how many messages that were."""
    options = replay.source_options()
    options["includeDeleted"] = "true" if _check(replay) else "false"
    columns = ["key", "value", "headers", "timestamp"]
    if replay.keeps_partitions:
        columns.append("partition")
    counted = Observation("replay")
    rows = spark.read.format("penstock").options(**options).load().filter(replay.window())
    rows = rows.select(*columns)
    rows = rows.observe(counted, functions.count(functions.lit(1)).alias("messages"))
    writer = rows.write.format("penstock").mode("append").options(
        **{
            "kafka.bootstrap.servers": replay.bootstrap,
            "topic": replay.into,
            "url": replay.url,
            "mode": replay.mode,
        }
    )  # fmt: skip
    try:
        writer.save()
    except PySparkException as error:
        raise told_error(error) from None
    return int(counted.get["messages"])


def _check(replay: Replay) -> bool:
    """Raise what is wrong with a replay; return whether there is an archive to read."""
    if replay.into == replay.topic:
        raise InvalidRequest(f"topic {replay.topic} cannot be replayed into itself")
    admin = Admin(Connection(replay.bootstrap))
    target = len(admin.partitions(replay.into))
    try:
        described = admin.topic(replay.topic)
    except TopicNotFound:
        if replay.archive_path is None:
            raise
        return True
    if replay.keeps_partitions and len(described.partitions) > target:
        raise InvalidRequest(
            f"topic {replay.topic} has {len(described.partitions)} partitions,"
            f" {replay.into} has {target}: partitions cannot be kept"
        )
    settings = {each.name: each.value for each in described.settings}
    return bool(replay.archive_path or settings.get(ARCHIVE_SETTING))
