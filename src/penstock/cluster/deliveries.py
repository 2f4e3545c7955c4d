"""What a partition's queue is asked and what it answers, and what the queues of a node share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from penstock.cluster.recent_records import RecordBudget
from penstock.delivery import GroupSettings
from penstock.ids import TopicPartition
from penstock.record import Record


@dataclass(slots=True)
class DeliveryCounts:
    """What happened to messages of queue groups, on partitions that this node led."""

    received: int = 0
    acked: int = 0
    nacked: int = 0
    expired: int = 0
    rejected: int = 0
    dead_lettered: int = 0


@dataclass(slots=True)
class DeliveryHost:
    """What the queues of all partitions of a node share."""

    settings_of: Callable[[str, str], GroupSettings]
    """Topic and group to settings."""
    counts: DeliveryCounts = field(default_factory=DeliveryCounts)
    budget: RecordBudget = field(default_factory=RecordBudget)
    on_dying: Callable[[TopicPartition, str, bool], None] = lambda *_: None
    """Told on the leader that a group has messages for the dead letters, and whether they are
    those of the leader before, who may have copied them already."""
    own_limits: Callable[[str, str], Callable[[Record], int] | None] = lambda *_: None
    """Topic and group to what reads how often a message of theirs may go out; None where the limit
    of the group counts alone."""


class Delivery(msgspec.Struct, frozen=True):
    """Messages that went out together."""

    number: int
    at_ms: int
    until_ms: int
    records: list[Record]
    attempts: list[int]
    """How often each of them has gone out now."""
    is_plain: bool = False
    """True when all go out for the first time and none has headers."""


class Return(NamedTuple):
    """A message that a consumer could not handle; without a delay the group's backoff counts."""

    delivery: int
    offset: int
    delay_ms: int | None
    reason: str
    is_counted: bool = True
    """False for one that was not begun: it costs no attempt, and needs no rest."""


class Waiter(NamedTuple):
    """Somebody who wants messages; `wake` is called once."""

    consumer: str
    wake: Callable[[], None]
