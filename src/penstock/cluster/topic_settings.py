"""What a topic can be told, under the names that Kafka's tools use.

Values are kept as the text that was given, and checked when it is given. A setting that nobody gave
follows the node's options.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from penstock.config import NodeOptions
from penstock.errors import InvalidSetting
from penstock.log import LogSettings

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


class SettingType(Enum):
    """How a value is written."""

    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True)
class SettingDefinition:
    """One setting: how it is written, its limits, its default and its meaning."""

    name: str
    type: SettingType
    default: Callable[[NodeOptions], str]
    check: Callable[[str], str | None]
    meaning: str


def _number(low: int, high: int) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        try:
            number = int(value)
        except ValueError:
            return "is not a whole number"
        return None if low <= number <= high else f"is not between {low} and {high}"

    return check


def _ratio(value: str) -> str | None:
    try:
        number = float(value)
    except ValueError:
        return "is not a number"
    return None if 0 <= number <= 1 else "is not between 0 and 1"


def _one_of(*choices: str) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        return None if value in choices else f"is none of {', '.join(choices)}"

    return check


def _cleanup_policy(value: str) -> str | None:
    parts = {part.strip() for part in value.split(",")}
    return None if parts and parts <= {"delete", "compact"} else "is not delete, compact or both"


def _fixed(value: str) -> Callable[[NodeOptions], str]:
    return lambda _: value


_DEFINITIONS = (
    SettingDefinition(
        "cleanup.policy",
        SettingType.LIST,
        _fixed("delete"),
        _cleanup_policy,
        "delete old segments, compact by key, or both",
    ),
    SettingDefinition(
        "retention.ms",
        SettingType.LONG,
        lambda options: str(options.retention_ms),
        _number(-1, _INT64_MAX),
        "how long records are kept; -1 keeps them for good",
    ),
    SettingDefinition(
        "retention.bytes",
        SettingType.LONG,
        lambda options: str(options.retention_bytes),
        _number(-1, _INT64_MAX),
        "how many bytes each partition keeps; -1 keeps all",
    ),
    SettingDefinition(
        "segment.bytes",
        SettingType.INT,
        lambda options: str(options.segment_bytes),
        _number(1024, _INT32_MAX),
        "the size at which a new segment begins",
    ),
    SettingDefinition(
        "segment.ms",
        SettingType.LONG,
        lambda options: str(options.segment_ms),
        _number(1, _INT64_MAX),
        "the age at which a new segment begins",
    ),
    SettingDefinition(
        "max.message.bytes",
        SettingType.INT,
        lambda options: str(options.message_bytes_max),
        _number(0, _INT32_MAX),
        "the largest record batch that is accepted",
    ),
    SettingDefinition(
        "message.timestamp.type",
        SettingType.STRING,
        _fixed("CreateTime"),
        _one_of("CreateTime", "LogAppendTime"),
        "whether records keep the producer's time or get the broker's",
    ),
    SettingDefinition(
        "message.timestamp.before.max.ms",
        SettingType.LONG,
        _fixed(str(_INT64_MAX)),
        _number(0, _INT64_MAX),
        "how far a record's time may lie in the past",
    ),
    SettingDefinition(
        "message.timestamp.after.max.ms",
        SettingType.LONG,
        _fixed(str(_INT64_MAX)),
        _number(0, _INT64_MAX),
        "how far a record's time may lie in the future",
    ),
    SettingDefinition(
        "min.insync.replicas",
        SettingType.INT,
        _fixed("1"),
        _number(1, 32767),
        "how many replicas must have a record before acks=all is answered",
    ),
    SettingDefinition(
        "delete.retention.ms",
        SettingType.LONG,
        _fixed("86400000"),
        _number(0, _INT64_MAX),
        "how long compaction keeps tombstones",
    ),
    SettingDefinition(
        "min.compaction.lag.ms",
        SettingType.LONG,
        _fixed("0"),
        _number(0, _INT64_MAX),
        "how long a record stays before compaction may remove it",
    ),
    SettingDefinition(
        "min.cleanable.dirty.ratio",
        SettingType.DOUBLE,
        _fixed("0.5"),
        _ratio,
        "which share of the log must be new before it is compacted",
    ),
    SettingDefinition(
        "compression.type",
        SettingType.STRING,
        _fixed("producer"),
        _one_of("producer"),
        "batches are stored as their producer compressed them",
    ),
    SettingDefinition(
        "durability",
        SettingType.STRING,
        lambda options: options.durability,
        _one_of("sync", "os"),
        "acknowledge after fdatasync, or from the page cache",
    ),
)

# Settings of Kafka that describe its own storage. They are accepted, so that tools which give them
# work, and change nothing here: every acknowledged record is synced, and the index has every batch.
_WITHOUT_EFFECT = (
    ("flush.messages", SettingType.LONG, str(_INT64_MAX)),
    ("flush.ms", SettingType.LONG, str(_INT64_MAX)),
    ("file.delete.delay.ms", SettingType.LONG, "60000"),
    ("index.interval.bytes", SettingType.INT, "4096"),
    ("segment.index.bytes", SettingType.INT, "10485760"),
    ("segment.jitter.ms", SettingType.LONG, "0"),
    ("max.compaction.lag.ms", SettingType.LONG, str(_INT64_MAX)),
)

DEFINITIONS: Mapping[str, SettingDefinition] = {
    definition.name: definition
    for definition in (
        *_DEFINITIONS,
        *(
            SettingDefinition(
                name, type_, _fixed(default), _number(0, _INT64_MAX), "accepted, has no effect"
            )
            for name, type_, default in _WITHOUT_EFFECT
        ),
        SettingDefinition(
            "preallocate",
            SettingType.BOOLEAN,
            _fixed("false"),
            _one_of("true", "false"),
            "accepted, has no effect",
        ),
    )
}


def check_settings(settings: Mapping[str, str]) -> None:
    """Raise `InvalidSetting` that names everything wrong with the given settings."""
    problems = []
    for name, value in settings.items():
        definition = DEFINITIONS.get(name)
        if definition is None:
            problems.append(f"{name} is no setting of a topic")
        elif (fault := definition.check(value)) is not None:
            problems.append(f"{name}={value} {fault}")
    if problems:
        raise InvalidSetting("; ".join(problems))


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of one topic, resolved against the node's options."""

    log: LogSettings
    batch_bytes_max: int
    uses_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    in_sync_min: int


def resolve_settings(given: Mapping[str, str], options: NodeOptions) -> TopicSettings:
    """Return typed settings; `given` was checked when it was stored."""

    def text(name: str) -> str:
        value = given.get(name)
        return value if value is not None else DEFINITIONS[name].default(options)

    policy = text("cleanup.policy")
    return TopicSettings(
        log=LogSettings(
            segment_bytes=int(text("segment.bytes")),
            segment_ms=int(text("segment.ms")),
            retention_ms=int(text("retention.ms")),
            retention_bytes=int(text("retention.bytes")),
            deletes="delete" in policy,
            compacts="compact" in policy,
            sync_records=text("durability") == "sync",
            compaction_lag_ms=int(text("min.compaction.lag.ms")),
            tombstone_retention_ms=int(text("delete.retention.ms")),
            dirty_ratio_min=float(text("min.cleanable.dirty.ratio")),
        ),
        batch_bytes_max=int(text("max.message.bytes")),
        uses_append_time=text("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=int(text("message.timestamp.before.max.ms")),
        timestamp_after_max_ms=int(text("message.timestamp.after.max.ms")),
        in_sync_min=int(text("min.insync.replicas")),
    )
