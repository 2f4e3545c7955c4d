"""Copies a topic into one with another number of partitions, and shows that the copy is whole.

The copy is a stream from the source into the sink, which publishes exactly once. A key lives in one
partition of the source, a partition is one task of a micro-batch, a task's rows are published in
their order, and micro-batches one after the other: so records of a key keep their order without
being shuffled. Each round copies what is there when it begins; writers go on meanwhile, and later
rounds are smaller. What one round has copied is compared by itself: a later part of the source is a
later part of each partition of the target. How the copy takes the place of the source is told in
`switching`.

What may be killed, and what is found afterwards:

- before the plan is on disk: at most the target, empty, which the next run takes as its own;
- in a round: Spark's checkpoint and the sink's commits say which micro-batches are published, and
  the next run goes on there;
- while groups are moved: positions follow from what both topics hold, so they are worked out anew.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.client import (
    Admin,
    Connection,
    Groups,
    NewTopic,
    OffsetRange,
    TopicDescription,
)
from penstock.errors import Conflict, InvalidRequest, PenstockError, TopicNotFound
from penstock.ids import TopicPartition
from penstock.spark.failures import is_passing, told_error
from penstock.spark.planning import offsets_from_json, offsets_to_json

ROUND_BYTES = 64 << 20
ROUNDS_MAX = 20
ATTEMPTS_MAX = 10
_PLAN_FILE = "plan.json"
_IDENTITY = ("digest", "check")
_COLUMNS = "key,value,partition,offset,timestamp,headers"

Show = Callable[[str], None]

Offsets = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReshardSettings:
    """What is copied where; `directory` keeps the plan and the checkpoint, for the next run too."""

    bootstrap: str
    url: str
    source: str
    target: str
    partitions: int
    directory: Path


@dataclass(frozen=True, slots=True)
class ReshardPlan:
    """What was decided by the first run: `start` is where the source began then."""

    source: str
    source_id: str
    target: str
    partitions: int
    start: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class ReshardVerdict:
    """What comparing both topics found."""

    records: int
    missing: int
    extra: int
    out_of_order: int

    def __add__(self, other: "ReshardVerdict") -> "ReshardVerdict":
        return ReshardVerdict(
            self.records + other.records,
            self.missing + other.missing,
            self.extra + other.extra,
            self.out_of_order + other.out_of_order,
        )

    @property
    def is_sound(self) -> bool:
        """Every record of the source is in the target once, each key's in order, and no others."""
        return not (self.missing or self.extra or self.out_of_order)


class Reshard:
    """One copy of one topic."""

    def __init__(
        self,
        spark: SparkSession,
        settings: ReshardSettings,
        *,
        begin: Callable[[], None] | None = None,
    ) -> None:
        """Find the plan of an earlier run, or make one.

        `begin` is called when both topics exist, and lets the cluster keep all of their records.
        """
        self._spark = spark
        self._settings = settings
        self._begin = begin
        self._admin = Admin(Connection(settings.bootstrap))
        self._parts: list[DataFrame] = []
        self._verdict = ReshardVerdict(0, 0, 0, 0)
        self.plan = self._make_plan()
        self._source_end = self.plan.start
        self._target_end = self._bounds_of(settings.target)[0]

    def copy_in_rounds(self, show: Show, *, enough: int = 0) -> int:
        """Copy until a round finds no more than `enough` records; return how many there were.

        Writers may be faster than rounds are for ever, so there is an end to it.
        """
        copied = 0
        for number in range(1, ROUNDS_MAX + 1):
            show(f"round {number}, {copied:,} records copied")
            found = self.copy()
            copied += found
            if found <= enough:
                break
        return copied

    def copy(self) -> int:
        """Copy what is there and was not copied yet; return how many records that were."""
        copied = 0
        for attempt in range(1, ATTEMPTS_MAX + 1):
            query = self._writer().start()
            try:
                query.awaitTermination()
            except PySparkException as error:
                if attempt == ATTEMPTS_MAX or not is_passing(error):
                    raise told_error(error) from None
            finally:
                copied += sum(each.numInputRows for each in query.recentProgress)
            if query.exception() is None:
                break
        return copied

    def _writer(self) -> DataStreamWriter:
        settings = self._settings
        records = (
            self._spark.readStream.format("penstock")
            .option("kafka.bootstrap.servers", settings.bootstrap)
            .option("subscribe", settings.source)
            .option("startingOffsets", json.dumps(self.plan.start))
            .option("maxBytesPerTrigger", str(ROUND_BYTES))
            .option("columns", "key,value,timestamp,headers")
            .load()
        )
        return (
            records.writeStream.format("penstock")
            .option("kafka.bootstrap.servers", settings.bootstrap)
            .option("url", settings.url)
            .option("topic", settings.target)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
        )

    def verify(self) -> ReshardVerdict:
        """Compare what was copied, record by record; what was compared before is not read again."""
        source_end, target_end = self.copied(), self._bounds_of(self._settings.target)[1]
        if not self._parts or (source_end, target_end) != (self._source_end, self._target_end):
            part = self._compare(source_end, target_end)
            self._verdict += self._judge(part)
            self._parts.append(part)
            self._source_end, self._target_end = source_end, target_end
        return self._verdict

    def _judge(self, compared: DataFrame) -> ReshardVerdict:
        order = Window.partitionBy("key", "source_partition", "target_partition")
        before = F.lag("source_offset").over(order.orderBy("target_offset"))
        is_back = F.col("key").isNotNull() & (before > F.col("source_offset"))
        found = (
            compared.withColumn("is_back", is_back)
            .agg(
                F.count("source_offset"),
                F.count_if(F.col("target_offset").isNull()),
                F.count_if(F.col("source_offset").isNull()),
                F.count_if("is_back"),
            )
            .first()
        )
        assert found is not None
        return ReshardVerdict(*found)

    def positions_of(self, group: str) -> dict[TopicPartition, int]:
        """Return where a group goes on in the target so that it misses nothing."""
        committed = Groups(self._admin).committed(group)
        read = {
            place.partition: offset
            for place, offset in committed.items()
            if place.topic == self._settings.source
        }
        if not read:
            raise InvalidRequest(f"group {group} has no offsets of topic {self._settings.source}")
        return {
            TopicPartition(self._settings.target, number): offset
            for number, offset in enumerate(self.positions_after(read))
        }

    def positions_after(self, read: Mapping[int, int]) -> list[int]:
        """Return where to go on in each partition of the target to miss nothing.

        `read` says where to go on in the source; partitions that are not named have not been read.
        It is the first record that has not been read in the source. As records of several
        partitions lie between each other in the target, some may be read again.
        """
        self.verify()
        is_unread = reduce(
            lambda condition, each: condition.when(
                F.col("source_partition") == each[0], F.col("source_offset") >= each[1]
            ),
            read.items(),
            F.when(F.lit(False), F.lit(True)),
        ).otherwise(F.lit(True))
        rows = (
            reduce(DataFrame.unionByName, self._parts)
            .where(F.col("target_offset").isNotNull())
            .groupBy("target_partition")
            .agg(
                F.min(F.when(is_unread, F.col("target_offset"))).alias("unread"),
                (F.max("target_offset") + 1).alias("end"),
            )
            .collect()
        )
        positions = [0] * self._settings.partitions
        for row in rows:
            positions[row["target_partition"]] = row["end" if row["unread"] is None else "unread"]
        return positions

    def move_group(self, group: str) -> dict[TopicPartition, int]:
        """Commit those positions for the group, which must have no members at that moment."""
        positions = self.positions_of(group)
        Groups(self._admin).commit(group, positions)
        return positions

    @property
    def _checkpoint(self) -> Path:
        return self._settings.directory / "checkpoint"

    def _compare(self, source_end: Offsets, target_end: Offsets) -> DataFrame:
        """Return one row for each record that was not compared yet, with its place in both."""
        source = self._placed(self._settings.source, "source", self._source_end, source_end)
        target = self._placed(self._settings.target, "target", self._target_end, target_end)
        target = target.drop("key")
        return source.join(target, [*_IDENTITY, "number"], "full_outer").persist()

    def _placed(self, topic: str, side: str, start: Offsets, end: Offsets) -> DataFrame:
        """Return the records of a topic by content; equal ones are numbered in their order."""
        reader = (
            self._spark.read.format("penstock")
            .option("kafka.bootstrap.servers", self._settings.bootstrap)
            .option("subscribe", topic)
            .option("columns", _COLUMNS)
            .option("startingOffsets", json.dumps(start))
            .option("endingOffsets", json.dumps(end))
        )
        place = [F.col("partition"), F.col("offset")]
        same = Window.partitionBy(*_IDENTITY).orderBy(*place)
        return (
            reader.load()
            .select("key", *_digests(), *place)
            .withColumn("number", F.row_number().over(same))
            .withColumnsRenamed({"partition": f"{side}_partition", "offset": f"{side}_offset"})
        )

    def _bounds_of(self, topic: str) -> tuple[Offsets, Offsets]:
        """Return where the partitions of a topic begin and end."""
        held = {
            TopicPartition(topic, each.partition): each.offsets or OffsetRange(start=0, end=0)
            for each in self._admin.topic(topic).partitions
        }
        starts = {place: each.start for place, each in held.items()}
        ends = {place: each.end for place, each in held.items()}
        return offsets_to_json(starts), offsets_to_json(ends)

    def copied(self) -> Offsets:
        """Return up to where the checkpoint says that the source is copied."""
        commits = [int(path.name) for path in (self._checkpoint / "commits").glob("[0-9]*")]
        if not commits:
            return self.plan.start
        text = (self._checkpoint / "offsets" / str(max(commits))).read_text()
        return offsets_to_json(offsets_from_json(json.loads(text.splitlines()[-1])))

    def _make_plan(self) -> ReshardPlan:
        settings = self._settings
        path = settings.directory / _PLAN_FILE
        described = self._admin.topic(settings.source)
        if self._begin is None:
            _check_uncompacted(described)
        if path.exists():
            plan = ReshardPlan(**json.loads(path.read_text()))
            _check_same(plan, settings, described.topic_id)
            self._enter()
            return plan
        self._create_target(len(described.partitions[0].replicas))
        try:
            self._enter()
        except PenstockError as error:
            if not error.retryable:
                # Nothing was copied, and nobody would look for a copy of what was refused.
                self._admin.delete_topic(settings.target)
            raise
        plan = ReshardPlan(
            settings.source,
            described.topic_id,
            settings.target,
            settings.partitions,
            self._bounds_of(settings.source)[0],
        )
        write_durably(path, json.dumps(asdict(plan)))
        return plan

    def _enter(self) -> None:
        if self._begin is not None:
            self._begin()

    def _create_target(self, replication_factor: int) -> None:
        settings = self._settings
        try:
            found = self._admin.topic(settings.target)
        except TopicNotFound:
            own = {
                each.name: each.value
                for each in self._admin.topic(settings.source).settings
                if not each.is_default and each.value is not None
            }
            new = NewTopic(
                name=settings.target,
                partitions=settings.partitions,
                replication_factor=replication_factor,
                settings=own,
            )
            self._admin.create_topic(new)
            return
        ends = [each.offsets.end for each in found.partitions if each.offsets is not None]
        if len(found.partitions) != settings.partitions or any(ends):
            raise Conflict(
                f"topic {settings.target} exists with {len(found.partitions)} partitions and"
                f" {sum(ends)} records; a copy begins with none, in {settings.partitions}"
            )


def _digests() -> list[Column]:
    """Two hashes of all that a record holds; 64 bits alone would meet in a large topic."""
    # A hash passes over nulls, so that these have to be told as well.
    held = ["key", "value", "timestamp", "headers"]
    nulls = [F.isnull(name) for name in held]
    return [F.xxhash64(*held, *nulls).alias("digest"), F.hash(*held, *nulls).alias("check")]


def _check_uncompacted(source: TopicDescription) -> None:
    """Refuse a topic that may lose records while it is copied, and its copy likewise."""
    policy = next(each.value for each in source.settings if each.name == "cleanup.policy")
    if policy is not None and "compact" in policy:
        raise InvalidRequest(
            f"topic {source.name} has cleanup.policy={policy}: compaction would change it and its"
            " copy while they are compared; without --into it waits until the switch"
        )


def _check_same(plan: ReshardPlan, settings: ReshardSettings, source_id: str) -> None:
    wanted = (settings.source, settings.target, settings.partitions)
    if (plan.source, plan.target, plan.partitions) != wanted:
        raise InvalidRequest(
            f"{settings.directory} holds a copy of {plan.source} into {plan.target} with"
            f" {plan.partitions} partitions, not of {wanted[0]} into {wanted[1]} with {wanted[2]}"
        )
    if plan.source_id != source_id:
        raise Conflict(
            f"topic {plan.source} was deleted and created again since its copy began;"
            f" delete {plan.target} and {settings.directory} to begin anew"
        )


def write_durably(path: Path, text: str) -> None:
    """Put a small file in place so that it is found whole, or not at all, whatever dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
