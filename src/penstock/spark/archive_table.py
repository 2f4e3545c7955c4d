"""The archive: a Delta table of records, and how far it is.

A table holds any number of topics, partitioned by topic and by the day of the records (UTC). A
record is one row with everything that a replay needs: key, value, headers, topic, the topic's id,
partition, offset, timestamp and its type. The id tells a topic from an earlier one of its name.

How far a partition is archived is the version of an application transaction of the table, one for
each partition of a topic, under the topic's id. It is committed together with the files, in one
version of the table, so the two cannot differ. What may crash, and what is found then:

- An executor stops while it writes a file. No version names the file; another attempt writes one of
  another name; `vacuum` removes it after a week.
- The driver stops between the files and the commit. The same, and nothing else has happened: the
  next run begins where the table ends and reads the same records again.
- The driver stops between the commit and the report to the cluster. Retention waits for longer than
  it must; the next run begins with the report.
- Two drivers archive one topic. Both commits would move the same transaction, so one of them fails
  and begins anew behind the other.
- The power goes after retention has removed a segment. Files, the directories that name them and
  the version were synced before the report, on a local path; object stores keep what they took.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction

from penstock.clock import SystemClock
from penstock.errors import ArchiveUnavailable, Conflict, InvalidRequest, NotFound
from penstock.spark.schema import FIELDS

TABLE_SCHEMA = pa.schema(
    [
        *((name, FIELDS[name]) for name in ("key", "value", "headers", "topic")),
        ("topicId", pa.string()),
        *((name, FIELDS[name]) for name in ("partition", "offset", "timestamp", "timestampType")),
        ("date", pa.date32()),
    ]
)
PARTITIONED_BY = ["topic", "date"]
FILE_SCHEMA = pa.schema([each for each in TABLE_SCHEMA if each.name not in PARTITIONED_BY])
# Delta's own default; readers of older versions and files that are being written are left alone.
VACUUM_HOURS = 7 * 24
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_S3_ANSWER = re.compile(r"<\?xml.*?<Code>(.*?)</Code>\s*<Message>(.*?)</Message>.*", re.DOTALL)
_REFUSES_HTTP = "URL scheme is not allowed"


@dataclass(frozen=True, slots=True)
class ArchiveLocation:
    """Where an archive is: a path, or an address such as `s3://bucket/archive` with its options."""

    path: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def local_path(self) -> Path | None:
        """The directory, unless the archive is in an object store."""
        parts = urlsplit(self.path)
        if parts.scheme == "file":
            return Path(unquote(parts.path))
        return None if parts.scheme else Path(self.path)

    def filesystem(self) -> pafs.FileSystem:
        """Return the file system whose root is the archive."""
        local = self.local_path
        if local is not None:
            return pafs.SubTreeFileSystem(str(local), pafs.LocalFileSystem())
        handler = DeltaStorageHandler(self.path, dict(self.options) or None)
        return pafs.PyFileSystem(handler)

    def sync(self, path: str) -> None:
        """Make a file and the directories that lead to it durable, where that is up to us."""
        local = self.local_path
        if local is None:
            return
        each = local / path
        while each != local.parent:
            descriptor = os.open(each, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                # Nobody reads it soon; the memory is better used for the log beside it.
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
            each = each.parent


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One file of the archive. Partitions, offsets and times are the smallest and the largest.

    Times are microseconds since 1970, None where a day could not be told.
    """

    path: str
    size_bytes: int
    date: str | None
    records: int
    partitions: tuple[int, int]
    offsets: tuple[int, int]
    times_us: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class ArchivedTopicId:
    """A topic in an archive: its name, and the id that tells it from others of the name."""

    name: str
    topic_id: str

    def transaction(self, partition: int) -> str:
        """Return the application whose transactions say how far a partition is."""
        return f"penstock/{self.topic_id}/{partition}"


class ArchiveTable:
    """One state of an archive, newer after each `refresh`."""

    def __init__(self, location: ArchiveLocation, table: DeltaTable) -> None:
        self.location = location
        self._table = table

    @classmethod
    def open(cls, location: ArchiveLocation) -> "ArchiveTable":
        """Open an archive; where there is none, the error says so."""
        try:
            table = DeltaTable(location.path, storage_options=dict(location.options) or None)
        except TableNotFoundError as error:
            if _is_mistaken(error):
                raise _unreachable(location, error) from None
            raise NotFound(f"there is no archive at {location.path}") from None
        except (DeltaError, OSError, ValueError) as error:
            raise _unreachable(location, error) from None
        _check_schema(location, table)
        return cls(location, table)

    @classmethod
    def create(cls, location: ArchiveLocation) -> "ArchiveTable":
        """Open an archive, creating it where there is none."""
        local = location.local_path
        try:
            if local is not None:
                _check_directory(local)
                local.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                location.path,
                TABLE_SCHEMA,
                mode="ignore",
                partition_by=PARTITIONED_BY,
                name="penstock",
                description="Records of topics, archived by Penstock",
                storage_options=dict(location.options) or None,
            )
        except (DeltaError, OSError, ValueError) as error:
            raise _unreachable(location, error) from None
        _sync_versions(location, [0])
        return cls.open(location)

    @property
    def table_id(self) -> str:
        """The id that Delta gave the table."""
        return str(self._table.metadata().id)

    def refresh(self) -> None:
        """Look for newer versions."""
        try:
            self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise _unreachable(self.location, error) from None

    def position(self, topic: ArchivedTopicId, partition: int) -> int | None:
        """Return up to where a partition is archived; None when nothing is."""
        return self._table.transaction_version(topic.transaction(partition))

    def topics(self) -> list[ArchivedTopicId]:
        """Return the topics that have records here; of one name, the newest comes last."""
        newest: dict[ArchivedTopicId, int] = {}
        for each in self._actions().to_pylist():
            topic = ArchivedTopicId(each["partition.topic"], each["min.topicId"])
            newest[topic] = max(newest.get(topic, 0), each["modification_time"])
        return sorted(newest, key=lambda topic: (topic.name, newest[topic]))

    def files(self, topic: ArchivedTopicId) -> list[ArchiveFile]:
        """Return the files of a topic, by their first offset."""
        actions = self._actions()
        wanted = pc.and_(
            pc.equal(actions["partition.topic"], topic.name),
            pc.equal(actions["min.topicId"], topic.topic_id),
        )
        return sorted(map(_file, actions.filter(wanted).to_pylist()), key=lambda each: each.offsets)

    def add(
        self,
        topic: ArchivedTopicId,
        files: Iterable[ArchiveFile],
        positions: Mapping[int, int],
    ) -> None:
        """Commit files of an epoch together with the positions that they lead to, durably."""
        transactions = [
            Transaction(topic.transaction(partition), position)
            for partition, position in sorted(positions.items())
        ]
        actions = [_add_action(topic, each) for each in files]
        self._commit(topic, actions, transactions)

    def replace(
        self, topic: ArchivedTopicId, old: Sequence[ArchiveFile], new: Sequence[ArchiveFile]
    ) -> None:
        """Commit files that hold the records of others in their place."""
        now_ms = SystemClock().now_ms()
        removed = [
            RemoveAction(each.path, False, now_ms, each.size_bytes, _partition_values(topic, each))
            for each in old
        ]
        added = [_add_action(topic, each, is_new_data=False) for each in new]
        self._commit(topic, [*removed, *added], [])

    def vacuum(self) -> int:
        """Remove files that no version of the last week names; return how many."""
        try:
            return len(self._table.vacuum(VACUUM_HOURS, dry_run=False, full=True))
        except (DeltaError, OSError) as error:
            raise _unreachable(self.location, error) from None

    def _commit(self, topic: ArchivedTopicId, actions: Any, transactions: Any) -> None:
        before = self._table.version()
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                TABLE_SCHEMA,
                PARTITIONED_BY,
                commit_properties=CommitProperties(app_transactions=transactions),
            )
        except CommitFailedError:
            raise Conflict(
                f"topic {topic.name}: another job has changed the archive at"
                f" {self.location.path} meanwhile"
            ) from None
        except (DeltaError, OSError) as error:
            raise _unreachable(self.location, error) from None
        self._table.update_incremental()
        _sync_versions(self.location, range(before + 1, self._table.version() + 1))

    def _actions(self) -> pa.Table:
        return pa.table(self._table.get_add_actions(flatten=True))


def _sync_versions(location: ArchiveLocation, versions: Iterable[int]) -> None:
    """Make versions durable, and the checkpoints that came with them."""
    local = location.local_path
    if local is not None:
        for version in versions:
            for path in (local / "_delta_log").glob(f"{version:020}*"):
                location.sync(f"_delta_log/{path.name}")


def _add_action(
    topic: ArchivedTopicId, file: ArchiveFile, *, is_new_data: bool = True
) -> AddAction:
    stats: dict[str, Any] = {"numRecords": file.records, "nullCount": {}}
    for name, index in (("minValues", 0), ("maxValues", 1)):
        stats[name] = {
            "topicId": topic.topic_id,
            "partition": file.partitions[index],
            "offset": file.offsets[index],
        }
        if file.times_us is not None:
            stats[name]["timestamp"] = _stats_time(file.times_us[index])
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=_partition_values(topic, file),
        modification_time=SystemClock().now_ms(),
        data_change=is_new_data,
        stats=json.dumps(stats),
    )


def _partition_values(topic: ArchivedTopicId, file: ArchiveFile) -> dict[str, str | None]:
    return {"topic": topic.name, "date": file.date}


def _stats_time(time_us: int) -> str:
    moment = pa.scalar(time_us, pa.timestamp("us", tz="UTC")).as_py()
    text: str = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return text


def _file(action: Mapping[str, Any]) -> ArchiveFile:
    date = action["partition.date"]
    bounds = (action.get("min.timestamp"), action.get("max.timestamp"))
    times = [pa.scalar(each, FIELDS["timestamp"]).value for each in bounds if each is not None]
    return ArchiveFile(
        path=unquote(action["path"]),
        size_bytes=action["size_bytes"],
        date=None if date is None else date.isoformat(),
        records=action["num_records"],
        partitions=(action["min.partition"], action["max.partition"]),
        offsets=(action["min.offset"], action["max.offset"]),
        times_us=(times[0], times[1]) if len(times) == 2 else None,
    )


def _check_schema(location: ArchiveLocation, table: DeltaTable) -> None:
    found = {each.name for each in table.schema().fields}
    if not found >= set(TABLE_SCHEMA.names):
        raise InvalidRequest(
            f"the Delta table at {location.path} has the columns {', '.join(sorted(found))};"
            " it is not an archive"
        )


def _check_directory(local: Path) -> None:
    """Refuse a directory that holds something else than a Delta table."""
    if local.is_dir() and not (local / "_delta_log").is_dir() and any(_visible(local)):
        raise InvalidRequest(f"{local} is not empty and not a Delta table")


def _visible(directory: Path) -> Iterator[Path]:
    return (each for each in directory.iterdir() if not each.name.startswith("."))


def _unreachable(
    location: ArchiveLocation, error: Exception
) -> ArchiveUnavailable | InvalidRequest:
    kind = InvalidRequest if _is_mistaken(error) else ArchiveUnavailable
    return kind(f"the archive at {location.path} cannot be reached: {one_line(error)}")


def _is_mistaken(error: Exception) -> bool:
    """True when another try would fail alike, whatever the store does."""
    return isinstance(error, ValueError | PermissionError) or "Unknown scheme" in str(error)


def one_line(error: Exception) -> str:
    """Return what a store said as one line: Delta tells a tree of causes, S3 answers in XML."""
    told = _COLOUR.sub("", str(error)).replace("Kernel error -> ", "")
    lines = [line.strip(" \u21b3") for line in _in_xml(told).splitlines()]
    reason = ": ".join(line for line in lines if line) or type(error).__name__
    if _REFUSES_HTTP in reason:
        return f"{reason}; AWS_ALLOW_HTTP=true lets an address begin with http://"
    # What it knows is a list of dozens.
    return reason.split(". Known schemes")[0]


def _in_xml(told: str) -> str:
    answer = _S3_ANSWER.search(told)
    return told if answer is None else f"{told[: answer.start()]}{answer[1]}: {answer[2]}"
