"""What a topic can be told, under the names that Kafka's tools use.

Values are kept as the text that was given, and checked when it is given. A setting that nobody gave
follows the node's options.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import msgspec

from penstock.config import NodeOptions
from penstock.delivery import GroupSettings, OrderMode
from penstock.errors import InvalidSetting
from penstock.log import LogSettings

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_NAME_MAX = 249
_PATH_MAX = 1024
_DAY_MS = 24 * 3600 * 1000
LEASE_MS_MAX = _DAY_MS
IN_SYNC_MIN = "min.insync.replicas"
# The dead letters of a topic go to the topic of its name with this added.
DEAD_LETTER_SUFFIX = ".dlq"


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
            return f"is not a whole number between {low} and {high}"
        return None if low <= number <= high else f"is not between {low} and {high}"

    return check


def _ratio(value: str) -> str | None:
    try:
        number = float(value)
    except ValueError:
        return "is not a number between 0 and 1"
    return None if 0 <= number <= 1 else "is not between 0 and 1"


def _one_of(*choices: str) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        return None if value in choices else f"is none of {', '.join(choices)}"

    return check


def _only(wanted: str, reason: str) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        return None if value == wanted else f"is not {wanted or 'empty'}: {reason}"

    return check


def _never(reason: str) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        # Kafka reads True and FALSE, too, and some tools write them.
        return None if value.lower() == "false" else f"is not false: {reason}"

    return check


def _cleanup_policy(value: str) -> str | None:
    parts = {part.strip() for part in value.split(",")}
    return None if parts and parts <= {"delete", "compact"} else "is not delete, compact or both"


def _dead_letter_topic(value: str) -> str | None:
    is_name = len(value) <= _NAME_MAX and all(each.isalnum() or each in "._-" for each in value)
    if is_name and value.isascii():
        return None
    return f"is not the name of a topic: up to {_NAME_MAX} letters, digits, '.', '_' and '-'"


def _path(value: str) -> str | None:
    if len(value) > _PATH_MAX:
        return f"has more than {_PATH_MAX} characters"
    is_complete = not value or value.startswith("/") or "://" in value
    is_complete = is_complete and value.isprintable()
    return None if is_complete else "is neither an absolute path nor an address as s3://..."


def _texts_by_name(value: str) -> str | None:
    try:
        msgspec.json.decode(value, type=dict[str, str])
    except msgspec.MsgspecError:
        return "is not a JSON object of strings"
    return None


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
        IN_SYNC_MIN,
        SettingType.INT,
        _fixed("1"),
        _number(1, 32767),
        "how many replicas must be in step for acks=all to be taken, at most as many as there are",
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
        _only("producer", "batches are stored as their producer compressed them"),
        "batches are stored as their producer compressed them",
    ),
    SettingDefinition(
        "durability",
        SettingType.STRING,
        lambda options: options.durability,
        _one_of("sync", "os"),
        "acknowledge after fdatasync, or from the page cache",
    ),
    SettingDefinition(
        "idempotency.window.ms",
        SettingType.LONG,
        _fixed("300000"),
        _number(0, 24 * 3600 * 1000),
        "how long an idempotency key is remembered; 0 takes no notice of keys",
    ),
    SettingDefinition(
        "archive.path",
        SettingType.STRING,
        _fixed(""),
        _path,
        "the Delta table that `penstock archive run` copies records to; retention and compaction"
        " remove nothing that is not there yet; empty for no archive",
    ),
)

# What queue groups follow unless they have settings of their own.
_DELIVERY_DEFINITIONS = (
    SettingDefinition(
        "delivery.lease.ms",
        SettingType.LONG,
        _fixed("30000"),
        _number(1, LEASE_MS_MAX),
        "how long a message is out with a consumer before it comes back",
    ),
    SettingDefinition(
        "delivery.attempts.max",
        SettingType.INT,
        _fixed("4"),
        _number(0, _INT32_MAX),
        "deliveries before a message goes to the dead letters; 0 means no limit, which is the"
        " default in strict order and for dead letters themselves",
    ),
    SettingDefinition(
        "delivery.backoff.min.ms",
        SettingType.LONG,
        _fixed("1000"),
        _number(0, _DAY_MS),
        "how long a message rests after its first failure; the rest doubles each time",
    ),
    SettingDefinition(
        "delivery.backoff.max.ms",
        SettingType.LONG,
        _fixed("60000"),
        _number(0, _DAY_MS),
        "how long a message rests at most",
    ),
    SettingDefinition(
        "delivery.order",
        SettingType.STRING,
        _fixed(OrderMode.PARALLEL.value),
        _one_of(*(mode.value for mode in OrderMode)),
        "which messages may be out at once: all, one of each key, those of a key that one receive"
        " got, or one of the partition",
    ),
    SettingDefinition(
        "delivery.ttl.ms",
        SettingType.LONG,
        _fixed("0"),
        _number(0, _INT64_MAX),
        "older messages are not delivered to queue groups; 0 means that age does not matter",
    ),
    SettingDefinition(
        "delivery.in.flight.max",
        SettingType.INT,
        _fixed("100000"),
        _number(1, 1_000_000),
        "how many messages of a partition a group may have out; more make receives wait",
    ),
    SettingDefinition(
        "delivery.consumer.in.flight.max",
        SettingType.INT,
        _fixed("10000"),
        _number(1, 1_000_000),
        "how many messages of a partition one consumer may have out; more make its receives wait",
    ),
    SettingDefinition(
        "delivery.start",
        SettingType.STRING,
        _fixed("earliest"),
        _one_of("earliest", "latest"),
        "where a new queue group begins",
    ),
    SettingDefinition(
        "delivery.dead.letter.topic",
        SettingType.STRING,
        _fixed(""),
        _dead_letter_topic,
        f"where dead letters go; empty for the topic's name with {DEAD_LETTER_SUFFIX} added",
    ),
)

# What the topic is as a queue of SQS. What may stand in them is checked where they are set.
_QUEUE_DEFINITIONS = (
    SettingDefinition(
        "sqs.attributes",
        SettingType.STRING,
        _fixed("{}"),
        _texts_by_name,
        "attributes that were given to the topic as a queue, as JSON",
    ),
    SettingDefinition(
        "sqs.tags",
        SettingType.STRING,
        _fixed("{}"),
        _texts_by_name,
        "tags of the topic as a queue, as JSON",
    ),
    SettingDefinition(
        "sqs.move.tasks",
        SettingType.STRING,
        _fixed("{}"),
        _texts_by_name,
        "tasks that move messages out of the topic as a queue, as JSON",
    ),
    SettingDefinition(
        "sqs.move.progress",
        SettingType.STRING,
        _fixed("{}"),
        _texts_by_name,
        "how far these tasks are, as JSON",
    ),
)

_THROTTLED = "the node's option transfer_bytes_per_s bounds what all moves take"
_NO_TIERS = "there is no remote storage; archive.path keeps a copy of records elsewhere"

# What Kafka lets a topic choose and is decided here. The choice that says what happens anyway is
# accepted, because tools give it to every topic that they create.
_DECIDED_DEFINITIONS = (
    SettingDefinition(
        "unclean.leader.election.enable",
        SettingType.BOOLEAN,
        _fixed("false"),
        _never("only a replica leads that a majority has elected"),
        "always false: only a replica leads that a majority has elected",
    ),
    SettingDefinition(
        "message.downconversion.enable",
        SettingType.BOOLEAN,
        _fixed("false"),
        _never("records are handed out in the format that they are stored in"),
        "always false: records are handed out in the format that they are stored in",
    ),
    *(
        SettingDefinition(
            f"{role}.replication.throttled.replicas",
            SettingType.LIST,
            _fixed(""),
            _only("", _THROTTLED),
            f"always empty: {_THROTTLED}",
        )
        for role in ("leader", "follower")
    ),
    *(
        SettingDefinition(
            name,
            SettingType.BOOLEAN,
            _fixed("false"),
            _never(_NO_TIERS),
            f"always false: {_NO_TIERS}",
        )
        for name in (
            "remote.storage.enable",
            "remote.log.copy.disable",
            "remote.log.delete.on.disable",
        )
    ),
    *(
        SettingDefinition(
            f"local.retention.{unit}",
            SettingType.LONG,
            _fixed("-2"),
            _only("-2", f"retention.{unit} says what is kept, and there is no remote storage"),
            f"always -2: what retention.{unit} says",
        )
        for unit in ("ms", "bytes")
    ),
)

# With which effort a broker compresses that does not leave it to producers. Kafka, too, has no use
# for them where it does.
_COMPRESSION_LEVELS = (("gzip", -1, 9, "-1"), ("lz4", 1, 17, "9"), ("zstd", -131072, 22, "3"))

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
        *_DELIVERY_DEFINITIONS,
        *_QUEUE_DEFINITIONS,
        *_DECIDED_DEFINITIONS,
        *(
            SettingDefinition(
                f"compression.{codec}.level",
                SettingType.INT,
                _fixed(default),
                _number(low, high),
                "accepted, has no effect",
            )
            for codec, low, high, default in _COMPRESSION_LEVELS
        ),
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
            problems.append(no_setting(name))
        elif (fault := definition.check(value)) is not None:
            problems.append(f"{name}={value} {fault}")
    if problems:
        raise InvalidSetting("; ".join(problems))


def no_setting(name: str) -> str:
    """Return that a topic has no setting of this name, with the one that was meant perhaps."""
    near = difflib.get_close_matches(name, DEFINITIONS, n=1)
    return f"{name} is no setting of a topic" + (f"; did you mean {near[0]}?" if near else "")


# None of them follows an option of the node.
_GROUP_DEFAULTS = {
    definition.name: definition.default(NodeOptions()) for definition in _DELIVERY_DEFINITIONS
}


def check_group_settings(settings: Mapping[str, str]) -> None:
    """Raise `InvalidSetting` that names everything wrong with the settings of a queue group."""
    check_group_setting_names(settings)
    check_settings(settings)


def check_group_setting_names(names: Iterable[str]) -> None:
    """Raise `InvalidSetting` when a queue group has no settings of these names."""
    unknown = [name for name in names if name not in _GROUP_DEFAULTS]
    if unknown:
        raise InvalidSetting(
            f"{', '.join(unknown)} is no setting of a queue group; there are"
            f" {', '.join(_GROUP_DEFAULTS)}"
        )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of one topic, resolved against the node's options."""

    log: LogSettings
    batch_bytes_max: int
    uses_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    in_sync_min: int
    idempotency_window_ms: int


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
            archive=text("archive.path"),
        ),
        batch_bytes_max=int(text("max.message.bytes")),
        uses_append_time=text("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=int(text("message.timestamp.before.max.ms")),
        timestamp_after_max_ms=int(text("message.timestamp.after.max.ms")),
        in_sync_min=int(text(IN_SYNC_MIN)),
        idempotency_window_ms=int(text("idempotency.window.ms")),
    )


def resolve_group_settings(
    topic: str, topic_given: Mapping[str, str], group_given: Mapping[str, str]
) -> GroupSettings:
    """Return the settings of a queue group: its own, else its topic's, else the defaults."""
    given = {**topic_given, **group_given}

    def text(name: str) -> str:
        return given.get(name) or _GROUP_DEFAULTS[name]

    order = OrderMode(text("delivery.order"))
    dead_letter_topic = text("delivery.dead.letter.topic")
    attempts_max = int(text("delivery.attempts.max"))
    is_dead_end = topic.endswith(DEAD_LETTER_SUFFIX) and not dead_letter_topic
    if "delivery.attempts.max" not in given and (order is OrderMode.STRICT or is_dead_end):
        # Strict order skips nothing, and dead letters have nowhere to go.
        attempts_max = 0
    return GroupSettings(
        lease_ms=int(text("delivery.lease.ms")),
        attempts_max=attempts_max,
        backoff_min_ms=int(text("delivery.backoff.min.ms")),
        backoff_max_ms=int(text("delivery.backoff.max.ms")),
        order=order,
        ttl_ms=int(text("delivery.ttl.ms")),
        in_flight_max=int(text("delivery.in.flight.max")),
        consumer_in_flight_max=int(text("delivery.consumer.in.flight.max")),
        start="latest" if text("delivery.start") == "latest" else "earliest",
        dead_letter_topic=dead_letter_topic or f"{topic}{DEAD_LETTER_SUFFIX}",
    )
