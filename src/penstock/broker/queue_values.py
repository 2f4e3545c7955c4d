"""What the verbs of queue groups take and give."""

import msgspec

from penstock.errors import PenstockError

Outcome = PenstockError | None
"""What became of one item of a request: None when it was done."""


class Message(msgspec.Struct, frozen=True):
    """A record that is handed to a consumer."""

    topic: str
    partition: int
    offset: int
    id: str
    receipt: str
    attempt: int
    first_delivered_ms: int
    lease_until_ms: int
    timestamp: int
    priority: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Nack(msgspec.Struct, frozen=True):
    """A message that could not be handled; without a delay the group's backoff counts."""

    receipt: str
    delay_ms: int | None = None
    reason: str = ""


class Reject(msgspec.Struct, frozen=True):
    """A message that nobody will ever be able to handle."""

    receipt: str
    reason: str = ""
