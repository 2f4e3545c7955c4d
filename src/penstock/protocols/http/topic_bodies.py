"""The JSON of topics."""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.protocols.http.setting_values import GivenSetting


class NewTopicBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic to be created; what is left out follows the node's options."""

    name: str
    partitions: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=1_000)] | None = None
    settings: dict[str, GivenSetting] = {}


class AlterTopicBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings to change, or to return to their default by null, and more partitions."""

    settings: dict[str, GivenSetting | None] = {}
    partitions: Annotated[int, Meta(ge=1, le=10_000)] | None = None


class TopicSummary(Struct, frozen=True, kw_only=True):
    """A topic in a list."""

    name: str
    partitions: int
    replication_factor: int


class TopicList(Struct, frozen=True, kw_only=True):
    """All topics, by name."""

    topics: list[TopicSummary]


class TopicPartitionBounds(Struct, frozen=True, kw_only=True):
    """What one partition holds: from `start` to before `end`."""

    partition: int
    start: int
    end: int
    leader: int
    replicas: list[int]


class TopicSettingValue(Struct, frozen=True, kw_only=True):
    """One setting as it stands."""

    value: str
    is_default: bool
    meaning: str


class TopicDescription(Struct, frozen=True, kw_only=True):
    """A topic with its partitions and settings."""

    name: str
    id: str
    partitions: list[TopicPartitionBounds]
    settings: dict[str, TopicSettingValue]


class TopicDeleted(Struct, frozen=True, kw_only=True):
    """A topic that is gone."""

    name: str
