"""How a queue group hands out messages."""

from enum import StrEnum
from typing import Literal

import msgspec


class OrderMode(StrEnum):
    """Which messages may be out at the same time."""

    PARALLEL = "parallel"
    """All of them."""
    KEY = "key"
    """One of each key: the next one waits until the one before is settled."""
    KEY_BATCH = "key-batch"
    """Those of a key that one receive got, in their order: the next ones wait for all of them."""
    STRICT = "strict"
    """One of the partition."""

    @property
    def is_by_key(self) -> bool:
        """True when messages of a key wait for each other."""
        return self in (OrderMode.KEY, OrderMode.KEY_BATCH)


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue group can be told. Limits on messages in flight hold for each partition."""

    lease_ms: int = 30_000
    attempts_max: int = 4
    """Deliveries before a message goes to the dead letters; 0 means no limit."""
    backoff_min_ms: int = 1_000
    backoff_max_ms: int = 60_000
    order: OrderMode = OrderMode.PARALLEL
    ttl_ms: int = 0
    """Older messages are not delivered; 0 means that age does not matter."""
    in_flight_max: int = 100_000
    consumer_in_flight_max: int = 10_000
    start: Literal["earliest", "latest"] = "earliest"
    """Where a group begins that nobody has received for yet."""
    dead_letter_topic: str = ""
    """Empty for the name of the topic with `.dlq` added."""

    def backoff_ms(self, attempt: int, jitter: float) -> int:
        """Return how long a message rests after its `attempt`-th delivery failed.

        The wait doubles with each attempt; `jitter` in 0..1 adds up to a fifth, so that messages
        that failed together do not come back together.
        """
        doublings = min(attempt - 1, 32)
        rest_ms = min(self.backoff_max_ms, self.backoff_min_ms << doublings)
        return int(rest_ms * (1 + jitter / 5))
