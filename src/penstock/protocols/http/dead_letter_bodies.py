"""The JSON of dead letters."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.protocols.http.contents import Encoding


class DeadLetterAnswer(Struct, frozen=True, kw_only=True):
    """A message that no consumer of its group could handle."""

    id: str
    partition: int
    offset: int
    timestamp: Annotated[int, Meta(description="When it came to the dead letters.")]
    key: str | None
    value: str | None
    headers: dict[str, str | None]
    source_topic: str
    source_partition: int
    source_offset: int
    source_id: str
    source_timestamp: int
    group: str
    attempts: int
    reason: str
    error: Annotated[str, Meta(description="What its last receiver said.")]
    redriven: Annotated[int, Meta(description="How many times it was sent back before.")]
    encoding: Encoding | UnsetType = UNSET
    key_encoding: Encoding | UnsetType = UNSET
    raw_headers: list[tuple[str, str | None]] | UnsetType = UNSET


class DeadLetterList(Struct, frozen=True, kw_only=True):
    """Dead letters; `after` continues the list where there may be more."""

    letters: list[DeadLetterAnswer]
    after: str | None


class DeadLetterChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters are meant; what is left out does not matter."""

    group: str | None = None
    reason: Annotated[str | None, Meta(description="Part of the reason or last error.")] = None
    key: str | None = None
    key_encoding: Encoding = "text"
    ids: Annotated[list[str], Meta(min_length=1, max_length=10_000)] | None = None


class RedriveBody(DeadLetterChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters are sent back, where to and how fast."""

    to: Annotated[str | None, Meta(description="Another topic than they came from.")] = None
    rate: Annotated[float | None, Meta(description="Messages a second.")] = None
    max: Annotated[int, Meta(ge=1, le=10_000)] = 10_000
    redrives_max: Annotated[
        int, Meta(ge=1, le=1_000, description="Those that came back so often are held back.")
    ] = 3
    dry_run: bool = False


class RedriveAnswer(Struct, frozen=True, kw_only=True):
    """What a redrive did, or would do."""

    moved: int
    skipped: Annotated[int, Meta(description="Held back by the guard against loops.")]
    failed: int
    errors: list[str]
    unknown: Annotated[
        list[str], Meta(description="Given ids that none of the chosen dead letters has.")
    ]
    dry_run: bool


class PurgeBody(DeadLetterChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters nobody needs any more."""


class PurgeAnswer(Struct, frozen=True, kw_only=True):
    """How many dead letters are gone."""

    purged: int
    unknown: Annotated[
        list[str], Meta(description="Given ids that none of the chosen dead letters has.")
    ]


class EditedLetter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a dead letter is to hold; what is left out stays."""

    value: Annotated[Any, Meta(description="As for publish.")] | UnsetType = UNSET
    encoding: Encoding = "text"
    key: str | UnsetType | None = UNSET
    key_encoding: Encoding = "text"
    headers: dict[str, str | None] | UnsetType = UNSET
