"""The options of the source: Spark's names for Kafka, and a few of our own.

Options are read once, on the driver, into frozen values. An unknown name, a value outside its
limits and two options that exclude each other are refused with the values in the message.
"""

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from penstock.errors import InvalidRequest
from penstock.ids import TopicPartition
from penstock.spark.brokers import EARLIEST, LATEST
from penstock.spark.given_options import GivenOptions, Option
from penstock.spark.ranges import FetchSettings
from penstock.spark.schema import COLUMNS, COLUMNS_WITH_HEADERS, check_columns

_WORDS = {"earliest": EARLIEST, "latest": LATEST}

T = TypeVar("T")


OPTIONS = (
    Option("kafka.bootstrap.servers", "required", "addresses of brokers, `host:port`, by commas"),
    Option("subscribe", "", "topics to read, separated by commas"),
    Option("subscribePattern", "", "regular expression that whole topic names match"),
    Option("assign", "", 'partitions to read, as in `{"orders": [0, 1]}`'),
    Option(
        "startingOffsets",
        "`earliest` in batch, `latest` in streams",
        'where to begin: `earliest`, `latest` (streams only) or `{"orders": {"0": 23, "1": -2}}`,'
        " where -2 stands for earliest and -1 for latest",
    ),
    Option(
        "endingOffsets",
        "`latest`",
        "batch only: where to end, without that offset: `latest` or JSON as above",
    ),
    Option(
        "startingTimestamp",
        "",
        "begin with the first record at or after a time: milliseconds since 1970, or ISO 8601;"
        " goes before the two options about starting offsets",
    ),
    Option("endingTimestamp", "", "batch only: end before the first record at or after a time"),
    Option(
        "startingOffsetsByTimestamp",
        "",
        'a time for each partition, as in `{"orders": {"0": 1700000000000}}`',
    ),
    Option("endingOffsetsByTimestamp", "", "batch only: the same for the end"),
    Option(
        "startingOffsetsByTimestampStrategy",
        "`error`",
        "what happens when no record is that new: `error`, or `latest` to begin with what comes",
    ),
    Option("failOnDataLoss", "`true`", "end the query when records it is to read are gone"),
    Option(
        "includeDeleted",
        "`false`",
        "read what retention removed from the topic's archive, at its original offsets",
    ),
    Option(
        "archivePath",
        "the topic's `archive.path`",
        "where that archive is; with it, a topic that was deleted can be read, too",
    ),
    Option(
        "archiveOptions",
        "`{}`",
        'options of the object store that the archive is in, as in `{"AWS_REGION": "eu-west-1"}`',
    ),
    Option("includeHeaders", "`false`", "add the column `headers`"),
    Option(
        "columns",
        "all",
        "columns to read, by commas; Spark tells no source which ones a query uses, so this is"
        " how not to move the others",
    ),
    Option("minPartitions", "", "split partitions into offset ranges until there are so many"),
    Option("maxRecordsPerPartition", "", "split partitions into ranges of at most so many"),
    Option("maxOffsetsPerTrigger", "", "streams only: at most so many offsets in a micro-batch"),
    Option(
        "maxBytesPerTrigger",
        "",
        "streams only: about so many bytes in a micro-batch, as stored; the size of an offset is"
        " estimated from the first records of each partition",
    ),
    Option("minOffsetsPerTrigger", "", "streams only: wait until so many offsets have come"),
    Option("maxTriggerDelay", "`15m`", "streams only: but wait no longer than this"),
    Option(
        "kafka.group.id",
        "",
        "streams only: commit progress under this name, so that tools for lag see it; Spark's"
        " checkpoint, not this, decides where a query goes on",
    ),
    Option("groupId", "", "the same as `kafka.group.id`"),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "`120000`",
        "give up when a partition or the cluster has given nothing for so long",
    ),
    Option("kafka.request.timeout.ms", "`30000`", "how long one request may take"),
    Option(
        "kafka.isolation.level",
        "`read_uncommitted`",
        "`read_committed` leaves out records of transactions that are open or were aborted",
    ),
    Option("kafka.max.partition.fetch.bytes", "`8388608`", "size of one fetch"),
    Option("kafka.fetch.max.wait.ms", "`500`", "how long a broker waits for the first record"),
)
_TIME_MS_MAX = 2**63 - 1
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which partitions are read: by topics, by a pattern, or one by one."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern {self.pattern}"
        if self.partitions:
            return f"assign {', '.join(map(str, self.partitions))}"
        return f"subscribe {','.join(self.topics)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One end of what is read. Exactly one of the fields says where it lies.

    `offset` is EARLIEST or LATEST for all partitions, `offsets` has one for each, `time_ms` is
    one time for all and `times_ms` has one for each.
    """

    offset: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    time_ms: int | None = None
    times_ms: Mapping[TopicPartition, int] | None = None

    @property
    def has_times(self) -> bool:
        """True when times, not offsets, say where it lies."""
        return self.time_ms is not None or self.times_ms is not None

    @property
    def is_earliest_anywhere(self) -> bool:
        """True when the start of some partition is meant."""
        return self.offset == EARLIEST or EARLIEST in (self.offsets or {}).values()

    @property
    def is_latest_anywhere(self) -> bool:
        """True when the end of some partition is meant."""
        return self.offset == LATEST or LATEST in (self.offsets or {}).values()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one micro-batch takes."""

    offsets_max: int | None = None
    bytes_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = 15 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Everything that a reader was told."""

    bootstrap: str
    selection: Selection
    start: Bound | None
    end: Bound | None
    late_start_is_latest: bool
    columns: tuple[str, ...]
    partitions_min: int | None
    records_per_partition_max: int | None
    limits: Limits
    group: str | None
    includes_deleted: bool = False
    archive_path: str | None = None
    archive_options: Mapping[str, str] = field(default_factory=dict)
    fetch: FetchSettings = field(default_factory=FetchSettings)


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Read the options of a batch or a stream, or raise what is wrong with them."""
    reader = _OptionReader(given, OPTIONS, "source")
    return SourceOptions(
        bootstrap=reader.bootstrap(),
        selection=reader.selection(),
        start=reader.bound("starting"),
        end=reader.end(),
        late_start_is_latest=reader.strategy() == "latest",
        columns=reader.columns(),
        partitions_min=reader.count("minPartitions"),
        records_per_partition_max=reader.count("maxRecordsPerPartition"),
        limits=reader.limits(),
        group=reader.text("kafka.group.id") or reader.text("groupId"),
        includes_deleted=reader.flag("includeDeleted", default=False),
        archive_path=reader.path("archivePath"),
        archive_options=parse_json_texts("archiveOptions", reader.text("archiveOptions") or "{}"),
        fetch=reader.fetch_settings(),
    )


class _OptionReader(GivenOptions):
    """Takes options apart, one kind of value at a time."""

    def selection(self) -> Selection:
        """Return which partitions are wanted; exactly one option says so."""
        names = ("subscribe", "subscribePattern", "assign")
        given = [name for name in names if self.text(name)]
        if len(given) != 1:
            raise InvalidRequest(
                f"exactly one of {', '.join(names)} says what to read;"
                f" {' and '.join(given) or 'none'} was given"
            )
        text = self.text(given[0]) or ""
        match given[0]:
            case "subscribe":
                return Selection(topics=_checked("subscribe", text, _topics))
            case "subscribePattern":
                return Selection(pattern=_checked("subscribePattern", text, _pattern))
        return Selection(partitions=_checked("assign", text, _assignment))

    def path(self, name: str) -> str | None:
        """Return an address as it is, and a path with all directories: executors have their own."""
        text = self.text(name)
        return text if not text or urlsplit(text).scheme else str(Path(text).absolute())

    def bound(self, side: str) -> Bound | None:
        """Return where to begin or to end, by the option that goes first."""
        if (text := self.text(f"{side}Timestamp")) is not None:
            return Bound(time_ms=_checked(f"{side}Timestamp", text, parse_time_ms))
        if (text := self.text(f"{side}OffsetsByTimestamp")) is not None:
            return Bound(times_ms=_checked(f"{side}OffsetsByTimestamp", text, _times))
        text = self.text(f"{side}Offsets")
        if text is None:
            return None
        if text.strip().lower() in _WORDS:
            return Bound(offset=_WORDS[text.strip().lower()])
        return Bound(offsets=_checked(f"{side}Offsets", text, _offsets))

    def end(self) -> Bound | None:
        """Return where to end, which is behind the place where everything begins."""
        bound = self.bound("ending")
        if bound is not None and bound.is_earliest_anywhere:
            raise InvalidRequest(
                f"endingOffsets is {self.text('endingOffsets')!r}: nothing lies before the earliest"
                " offset; it is latest, or JSON of offsets and -1 (latest)"
            )
        return bound

    def isolation(self) -> str:
        """Return whether records of open and aborted transactions are read."""
        isolation = self.text("kafka.isolation.level") or "read_uncommitted"
        if isolation not in ("read_uncommitted", "read_committed"):
            raise InvalidRequest(
                f"kafka.isolation.level is {isolation!r}, not read_uncommitted or read_committed"
            )
        return isolation

    def strategy(self) -> str:
        """Return what happens when no record is as new as the starting time."""
        strategy = self.text("startingOffsetsByTimestampStrategy") or "error"
        if strategy not in ("error", "latest"):
            raise InvalidRequest(
                f"startingOffsetsByTimestampStrategy is {strategy!r}, not error or latest"
            )
        return strategy

    def columns(self) -> tuple[str, ...]:
        """Return the columns in the order in which they were given."""
        text = self.text("columns")
        if text is None:
            return COLUMNS_WITH_HEADERS if self.flag("includeHeaders", default=False) else COLUMNS
        names = check_columns([name.strip() for name in text.split(",")])
        if self.flag("includeHeaders", default=False) and "headers" not in names:
            return (*names, "headers")
        return names

    def limits(self) -> Limits:
        """Return the limits of micro-batches."""
        delay = self.text("maxTriggerDelay")
        limits = Limits(
            offsets_max=self.count("maxOffsetsPerTrigger"),
            bytes_max=self.count("maxBytesPerTrigger"),
            offsets_min=self.count("minOffsetsPerTrigger"),
            delay_ms_max=15 * 60_000 if delay is None else _duration_ms("maxTriggerDelay", delay),
        )
        least, most = limits.offsets_min, limits.offsets_max
        if least is not None and most is not None and least > most:
            raise InvalidRequest(
                f"minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger, {most}"
            )
        return limits

    def fetch_settings(self) -> FetchSettings:
        """Return how executors fetch."""
        usual = FetchSettings()
        return FetchSettings(
            fetch_bytes=self.count("kafka.max.partition.fetch.bytes") or usual.fetch_bytes,
            fetch_wait_ms=self.count("kafka.fetch.max.wait.ms") or usual.fetch_wait_ms,
            request_wait_ms=self.count("kafka.request.timeout.ms") or usual.request_wait_ms,
            patience_ms=self.count("kafkaConsumer.pollTimeoutMs") or usual.patience_ms,
            fails_on_data_loss=self.flag("failOnDataLoss", default=True),
            is_committed_only=self.isolation() == "read_committed",
        )


def parse_time_ms(text: str) -> int:
    """Read milliseconds since 1970, or ISO 8601; a time without a zone is UTC."""
    if re.fullmatch(r"-?\d+", text.strip()):
        if abs(int(text)) > _TIME_MS_MAX:
            raise ValueError(f"it is not within {_TIME_MS_MAX} ms around 1970")
        return int(text)
    moment = dt.datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp() * 1000)


def parse_json_texts(name: str, text: str) -> dict[str, str]:
    """Read a JSON object of texts."""
    found = _checked(name, text, json.loads)
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise InvalidRequest(f"{name} is {text!r}, not a JSON object of texts")
    return found


def _checked(name: str, text: str, read: Callable[[str], T]) -> T:
    try:
        return read(text)
    except (ValueError, TypeError, AttributeError, KeyError, re.error) as error:
        raise InvalidRequest(f"{name} is {text!r}, which cannot be read: {error}") from None


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if not topics:
        raise ValueError("it names no topic")
    return topics


def _pattern(text: str) -> str:
    return re.compile(text).pattern


def _assignment(text: str) -> tuple[TopicPartition, ...]:
    wanted = _tree(text, '{"orders": [0, 1]}')
    if not all(isinstance(partitions, list) for partitions in wanted.values()):
        raise ValueError('partitions are lists, as in {"orders": [0, 1]}')
    places = {
        TopicPartition(topic, int(partition))
        for topic, partitions in wanted.items()
        for partition in partitions
    }
    if not places:
        raise ValueError("it names no partition")
    return tuple(sorted(places))


def _offsets(text: str) -> dict[TopicPartition, int]:
    if not text.lstrip().startswith("{"):
        raise ValueError('it is not earliest, latest or JSON such as {"orders": {"0": 23}}')
    return {place: _offset(value) for place, value in _by_partition(text)}


def _times(text: str) -> dict[TopicPartition, int]:
    return {place: parse_time_ms(str(value)) for place, value in _by_partition(text)}


def _by_partition(text: str) -> list[tuple[TopicPartition, Any]]:
    wanted = _tree(text, '{"orders": {"0": 23}}')
    if not all(isinstance(partitions, dict) for partitions in wanted.values()):
        raise ValueError('partitions have values, as in {"orders": {"0": 23}}')
    return [
        (TopicPartition(topic, int(partition)), value)
        for topic, partitions in wanted.items()
        for partition, value in partitions.items()
    ]


def _tree(text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"it is not JSON such as {example}")
    return found


def _offset(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
        raise ValueError(f"{value!r} is not an offset, nor -2 (earliest) or -1 (latest)")
    return value


def _duration_ms(name: str, text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidRequest(f"{name} is {text!r}, not a duration such as 30s or 15m")
    return int(match[1]) * _UNITS_MS[match[2]]
