"""Messages on their way to a topic and back."""

from dataclasses import dataclass
from typing import NamedTuple


class Header(NamedTuple):
    """One header; names may repeat and their order is kept."""

    name: str
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to be published. Without a partition the key decides, or chance without a key."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a published message went; the offset is None when no ack was asked for."""

    topic: str
    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as it was read; `timestamp_ms` is None when the record carries none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
