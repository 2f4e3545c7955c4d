"""The JSON of queue groups."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from penstock.protocols.http.message_bodies import Moment
from penstock.protocols.http.setting_values import SettingValue

ChangedSetting = Annotated[
    SettingValue | None,
    Meta(description="A text, a number or a boolean; null returns to the topic's own."),
]


class GroupSettingsBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a group, by the names that topics have for them."""

    settings: dict[str, ChangedSetting] = {}


class BlockedKey(Struct, frozen=True, kw_only=True):
    """A key whose messages wait until the blocker is settled."""

    partition: int
    key: str | None
    key_encoding: Literal["text", "base64"]
    blocker: Annotated[str, Meta(description="The id of the message that the others wait for.")]
    waiting: int


class GroupPartition(Struct, frozen=True, kw_only=True):
    """How far a group is in one partition."""

    partition: int
    floor: Annotated[int, Meta(description="Everything below is settled.")]
    end: Annotated[int, Meta(description="The offset after the last message.")]
    unsettled: int
    in_flight: Annotated[int, Meta(description="Out with consumers.")]
    waiting: Annotated[int, Meta(description="Resting until their next attempt.")]
    dying: Annotated[int, Meta(description="On their way to the dead letters.")]
    oldest: Annotated[int | None, Meta(description="Time of the oldest unsettled message.")]


class GroupTotals(Struct, frozen=True, kw_only=True):
    """The sums over all partitions that have a leader."""

    unsettled: int
    in_flight: int
    waiting: int
    dying: int
    oldest: int | None
    lag_s: Annotated[float, Meta(description="Age of the oldest unsettled message.")]


class GroupSettingValue(Struct, frozen=True, kw_only=True):
    """One setting as it stands."""

    value: str
    is_own: Annotated[bool, Meta(description="False when the topic or the default decides.")]
    meaning: str


class GroupSummary(Struct, frozen=True, kw_only=True):
    """A group in a list."""

    name: str
    order: str
    totals: GroupTotals


class GroupList(Struct, frozen=True, kw_only=True):
    """The queue groups of a topic, by name."""

    groups: list[GroupSummary]


class GroupDescription(Struct, frozen=True, kw_only=True):
    """A group with where it stands, what it waits for, and its settings."""

    topic: str
    name: str
    totals: GroupTotals
    partitions: list[GroupPartition]
    blocked_keys: list[BlockedKey]
    settings: dict[str, GroupSettingValue]


class GroupDeleted(Struct, frozen=True, kw_only=True):
    """A group that is gone."""

    topic: str
    name: str


class InFlightMessage(Struct, frozen=True, kw_only=True):
    """A message that is out with a consumer."""

    id: str
    partition: int
    offset: int
    consumer: str
    attempt: int
    delivered_at: int
    lease_until: int


class InFlightMessages(Struct, frozen=True, kw_only=True):
    """Messages that are out."""

    messages: list[InFlightMessage]


class ResetBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a group is to begin anew; in all partitions unless one is named."""

    to: Literal["earliest", "latest", "offset", "time"]
    offset: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    time: Moment | None = None
    partition: Annotated[int, Meta(ge=0, lt=2**31)] | None = None
    dry_run: bool = False


class ResetPartition(Struct, frozen=True, kw_only=True):
    """Where a group stood in a partition, and where it begins anew."""

    partition: int
    floor: int
    target: int


class GroupReset(Struct, frozen=True, kw_only=True):
    """What a reset did, or would do."""

    dry_run: bool
    partitions: list[ResetPartition]
