"""Topics and groups as the client tells of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from penstock.ids import TopicPartition

GroupKind = Literal["consumer", "share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to be created; None leaves the choice to the broker."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """One topic among others."""

    name: str
    partitions: int
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Records that a partition holds: from `start` up to, without, `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition, its replicas and its records; `leader` is None while there is none."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offsets: OffsetRange | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    """One setting of a topic; `is_default` tells that nobody set it on this topic."""

    name: str
    value: str | None
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """One topic in full."""

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]
    settings: tuple[TopicSetting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """One group among others; the state of a share group is told as `unknown`."""

    name: str
    kind: GroupKind
    state: str
    protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """One consumer of a group and the partitions that it reads."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """How far a group is in one partition; None stands for what is not known.

    `lag_s` is the age of the first record behind the committed offset, 0 when there is none.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    member_id: str | None
    lag_s: float | None = None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """One consumer group in full."""

    name: str
    state: str
    protocol: str
    assignor: str
    coordinator: int | None
    members: tuple[MemberDescription, ...]
    progress: tuple[PartitionProgress, ...]

    @property
    def lag_s(self) -> float | None:
        """Age of the oldest record that is known to be behind a committed offset."""
        return max((each.lag_s for each in self.progress if each.lag_s is not None), default=None)
