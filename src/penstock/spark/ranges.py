"""Ranges of offsets, and how they are fetched: plain values that executors are sent."""

from dataclasses import dataclass

from penstock.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How records are asked for, and how long is waited for them."""

    fetch_bytes: int = 8 << 20
    fetch_wait_ms: int = 500
    request_wait_ms: int = 30_000
    patience_ms: int = 120_000
    fails_on_data_loss: bool = True
    is_committed_only: bool = False


SETTINGS_DEFAULT = FetchSettings()


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Offsets of one partition, from `start` up to, without, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return max(self.end - self.start, 0)


def place_of(where: TopicPartition, offset: int) -> str:
    """Name a record in an error message."""
    return f"topic {where.topic} partition {where.partition} offset {offset}"
