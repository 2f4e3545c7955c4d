"""Messages that wait to be published together, without a clock or a connection.

A batch goes out when it is large enough, when its first message has waited long enough, or when
somebody wants everything out. Batches of one buffer go out one after the other, so messages keep
their order.
"""

from collections import deque
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from penstock.client.publications import BATCH_MAX, Publication, fixed
from penstock.errors import InvalidRequest

F = TypeVar("F")

# Names, quotes and numbers around a message in a request.
_OVERHEAD_BYTES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLimits:
    """When a batch goes out, and how many messages may wait before `send` does."""

    batch_count_max: int = 1_000
    batch_bytes_max: int = 1024 * 1024
    linger_s: float = 0.005
    waiting_max: int = 10_000

    def check(self) -> None:
        """Raise `InvalidRequest` when a limit makes no sense."""
        if not 1 <= self.batch_count_max <= BATCH_MAX:
            raise InvalidRequest(f"batch_count_max is {self.batch_count_max}, not 1..{BATCH_MAX}")
        if self.waiting_max < 1:
            raise InvalidRequest(f"waiting_max is {self.waiting_max}, which is less than 1")


class Waiting(NamedTuple, Generic[F]):
    """A message, and whom to tell what became of it."""

    publication: Publication
    told: F
    size_bytes: int
    since_s: float


class PublishBuffer(Generic[F]):
    """The messages that wait."""

    def __init__(self, limits: BufferLimits) -> None:
        limits.check()
        self._limits = limits
        self._waiting: deque[Waiting[F]] = deque()
        self._bytes = 0
        # Messages up to this number are wanted out at once.
        self._hurried = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        """Whether another message may wait here."""
        return len(self._waiting) < self._limits.waiting_max

    def add(self, publication: Publication, told: F, now_s: float) -> None:
        """Let a message wait; one that cannot be sent is refused here."""
        publication = fixed(publication)
        size_bytes = _size_bytes(publication)
        self._waiting.append(Waiting(publication, told, size_bytes, now_s))
        self._bytes += size_bytes

    def hurry(self) -> None:
        """Let everything that waits now go out without waiting longer."""
        self._hurried = len(self._waiting)

    def due_s(self) -> float | None:
        """Return when the next batch goes out: now, later, or never while nothing waits."""
        if not self._waiting:
            return None
        is_large = (
            len(self._waiting) >= self._limits.batch_count_max
            or self._bytes >= self._limits.batch_bytes_max
        )
        if is_large or self._hurried:
            return float("-inf")
        return self._waiting[0].since_s + self._limits.linger_s

    def take(self) -> list[Waiting[F]]:
        """Return the next batch, in order: one message at least, whatever its size."""
        batch: list[Waiting[F]] = []
        size_bytes = 0
        while self._waiting and len(batch) < self._limits.batch_count_max:
            size_bytes += self._waiting[0].size_bytes
            if batch and size_bytes > self._limits.batch_bytes_max:
                break
            batch.append(self._waiting.popleft())
        self._bytes -= sum(each.size_bytes for each in batch)
        self._hurried = max(0, self._hurried - len(batch))
        return batch


def _size_bytes(publication: Publication) -> int:
    contents = (publication.value, publication.key)
    return _OVERHEAD_BYTES + sum(len(each) for each in contents if isinstance(each, bytes | str))
