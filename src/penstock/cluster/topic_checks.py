"""What topics and their groups can be called, how large topics can be, and how safe."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from penstock.cluster.described import Topic
from penstock.cluster.topic_settings import IN_SYNC_MIN, check_settings
from penstock.errors import (
    InvalidGroupId,
    InvalidPartitionCount,
    InvalidReplication,
    InvalidSetting,
    InvalidTopicName,
    TopicExists,
)

PARTITIONS_MAX = 10_000
_NAME_BYTES_MAX = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")

Members = Sequence[tuple[int, int]]


def check_new_topic(
    name: str, partitions: int, settings: Mapping[str, str], existing: Collection[str]
) -> None:
    """Raise when a topic cannot be created like this."""
    check_topic_name(name)
    if name in existing:
        raise TopicExists(f"topic {name!r} exists already")
    # A name in the style of a.b and one like a_b would share their name in metrics.
    alike = name.replace(".", "_")
    for other in existing:
        if other.replace(".", "_") == alike:
            raise InvalidTopicName(
                f"topic name {name!r} differs from {other!r} only in '.' and '_'"
            )
    check_partition_count(partitions)
    check_settings(settings)


def check_partition_count(partitions: int) -> None:
    """Raise `InvalidPartitionCount` when a topic cannot have that many."""
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidPartitionCount(
            f"a topic has between 1 and {PARTITIONS_MAX} partitions, not {partitions}"
        )


def check_topic_name(name: str) -> None:
    """Raise `InvalidTopicName` when a name breaks Kafka's rules."""
    if not name or name in {".", ".."}:
        raise InvalidTopicName(f"{name!r} cannot be the name of a topic")
    if len(name) > _NAME_BYTES_MAX:
        raise InvalidTopicName(
            f"a topic name has at most {_NAME_BYTES_MAX} characters, this one has {len(name)}"
        )
    if _NAME.fullmatch(name) is None:
        raise InvalidTopicName(
            f"topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
        )


def check_in_sync_min(settings: Mapping[str, str], partitions: Iterable[Members]) -> None:
    """Raise `InvalidSetting` when a topic asks for more replicas in step than a partition has.

    No record would ever be taken, with an error that tells clients to try again.
    """
    fewest = min(map(len, partitions))
    if _in_sync_min_of(settings) > fewest:
        raise InvalidSetting(
            f"{IN_SYNC_MIN}={settings[IN_SYNC_MIN]} is more than the {fewest} replicas that a"
            f" partition of the topic has: between 1 and {fewest} can be in step"
        )


def check_in_sync_change(topic: Topic, changed: Mapping[str, str]) -> None:
    """The same for settings that are changed. A topic that was set up like this is left alone."""
    news = dict(changed.items() - topic.settings.items())
    check_in_sync_min(news, [each.members for each in topic.replicas])


def check_in_sync_left(topic: Topic, before: int, after: int) -> None:
    """Raise when a partition of a topic would be left with too few replicas to take records."""
    wanted = _in_sync_min_of(topic.settings)
    # One that had too few before may be changed all the same.
    if 0 < after < wanted <= before:
        raise InvalidReplication(
            f"a partition of {topic.name!r} would have {after} replicas, and the topic's"
            f" {IN_SYNC_MIN} is {wanted}; lower that first"
        )


def _in_sync_min_of(settings: Mapping[str, str]) -> int:
    return int(settings.get(IN_SYNC_MIN, 1))


def check_group_name(name: str) -> None:
    """Raise `InvalidGroupId` when a queue group cannot be called that."""
    if not name or len(name.encode()) > _NAME_BYTES_MAX or not name.isprintable():
        raise InvalidGroupId(
            f"a queue group is named by 1 to {_NAME_BYTES_MAX} bytes of printable text, not"
            f" {name[:_NAME_BYTES_MAX]!r}"
        )
