"""Topics as the HTTP door shows and changes them."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.calls import Call, path_of, reader_of, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    """A topic in a list."""

    name: str
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBounds:
    """What one partition holds, from `start` to before `end`; without a leader that is -1."""

    partition: int
    start: int
    end: int
    leader: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingValue:
    """One setting as it stands."""

    value: str
    is_default: bool
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDetails:
    """A topic with its partitions and settings."""

    name: str
    id: str
    partitions: tuple[PartitionBounds, ...]
    settings: dict[str, SettingValue]


@dataclass(frozen=True, slots=True)
class _Topics:
    topics: list[TopicSummary]


def list_topics_call() -> Call[list[TopicSummary]]:
    """All topics, by name."""
    read = reader_of(_Topics)
    return Call(method="GET", path=path_of("v1", "topics"), read=lambda answer: read(answer).topics)


def topic_call(name: str) -> Call[TopicDetails]:
    """One topic."""
    return Call(method="GET", path=path_of("v1", "topics", name), read=reader_of(TopicDetails))


def create_topic_call(
    name: str,
    *,
    partitions: int | None,
    replication_factor: int | None,
    settings: Mapping[str, str] | None,
) -> Call[TopicDetails]:
    """Create a topic; doing that twice is a conflict."""
    body = {
        "name": name,
        "partitions": partitions,
        "replication_factor": replication_factor,
        "settings": dict(settings or {}),
    }
    return Call(
        method="POST",
        path=path_of("v1", "topics"),
        content=to_json(body),
        read=reader_of(TopicDetails),
        is_repeatable=False,
    )


def alter_topic_call(
    name: str, *, settings: Mapping[str, str | None], partitions: int | None
) -> Call[TopicDetails]:
    """Change settings, or return them to their default by None, and add partitions."""
    return Call(
        method="PATCH",
        path=path_of("v1", "topics", name),
        content=to_json({"settings": dict(settings), "partitions": partitions}),
        read=reader_of(TopicDetails),
    )


def delete_topic_call(name: str) -> Call[None]:
    """Delete a topic; the second time there is none."""
    path = path_of("v1", "topics", name)
    return Call(method="DELETE", path=path, read=read_nothing, is_repeatable=False)


def read_nothing(_answer: bytes) -> None:
    """Read an answer that tells no more than that it was done."""
