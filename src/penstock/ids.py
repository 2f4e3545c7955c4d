"""Values that must not be mixed up.

An `Offset` counts records of a partition, an `EntryIndex` counts entries of its log (a batch of
records or one state change each), and a `Term` is the reign of one leader. Kafka clients see the
term as the leader epoch.
"""

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
EntryIndex = NewType("EntryIndex", int)
Term = NewType("Term", int)
NodeId = NewType("NodeId", int)
ProducerId = NewType("ProducerId", int)


class TopicPartition(NamedTuple):
    """Names one partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
