"""The sequence numbers of idempotent producers.

A producer numbers its records in each partition. The partition remembers, for each producer, its
epoch and the last five batches, so that a batch that is sent again is answered with the offset of
its first copy, a gap is refused, and an older instance of a producer is fenced. Five is what
clients rely on: they keep at most five requests in flight.

The numbers stand in the batch headers, so this state is rebuilt from the log itself.
"""

import msgspec

from penstock.errors import DuplicateSequence, OutOfOrderSequence, ProducerFenced
from penstock.record import BatchHeader

BATCHES_KEPT = 5
_SEQUENCE_MASK = 0x7FFFFFFF


class SequencedBatch(msgspec.Struct, frozen=True, array_like=True):
    """One batch that a producer has sent; the offset is -1 until it is known."""

    first_sequence: int
    last_sequence: int
    offset: int


class ProducerState(msgspec.Struct, frozen=True, array_like=True):
    """What a partition remembers of one producer."""

    epoch: int
    batches: tuple[SequencedBatch, ...]
    last_timestamp: int

    def duplicate_of(self, header: BatchHeader) -> SequencedBatch | None:
        """Return the batch that `header` repeats."""
        if header.producer_epoch != self.epoch:
            return None
        for batch in self.batches:
            if (batch.first_sequence, batch.last_sequence) == (
                header.base_sequence,
                header.last_sequence,
            ):
                return batch
        return None


def check_sequence(state: ProducerState | None, header: BatchHeader) -> SequencedBatch | None:
    """Return the batch that this one repeats, or None when it is the next one in line.

    Raises when it is neither. A producer that the partition does not know may begin anywhere: its
    earlier batches may have been deleted by retention.
    """
    if state is None:
        return None
    if header.producer_epoch < state.epoch:
        raise ProducerFenced(
            f"producer {header.producer_id} has epoch {state.epoch},"
            f" the batch was sent under epoch {header.producer_epoch}"
        )
    duplicate = state.duplicate_of(header)
    if duplicate is not None:
        return duplicate
    expected = next_sequence(state, header.producer_epoch)
    if header.base_sequence == expected:
        return None
    if header.producer_epoch == state.epoch and is_before(header.last_sequence, expected):
        raise DuplicateSequence(
            f"producer {header.producer_id} repeats sequence {header.base_sequence}, which is older"
            f" than the last {BATCHES_KEPT} batches; the next one is {expected}"
        )
    raise OutOfOrderSequence(
        f"producer {header.producer_id} sent sequence {header.base_sequence}, the next one is"
        f" {expected}"
    )


def next_sequence(state: ProducerState, epoch: int) -> int:
    """Return the sequence that the next batch of an epoch begins with."""
    return 0 if epoch > state.epoch else (state.batches[-1].last_sequence + 1) & _SEQUENCE_MASK


def after_batch(state: ProducerState | None, header: BatchHeader, offset: int) -> ProducerState:
    """Return what to remember once the batch is appended."""
    batch = SequencedBatch(header.base_sequence, header.last_sequence, offset)
    if state is None or state.epoch != header.producer_epoch:
        kept: tuple[SequencedBatch, ...] = (batch,)
    else:
        kept = (*state.batches[-(BATCHES_KEPT - 1) :], batch)
    return ProducerState(header.producer_epoch, kept, header.max_timestamp)


def is_before(sequence: int, other: int) -> bool:
    """Compare sequences that wrap at 2^31: the shorter way round decides."""
    return 0 < ((other - sequence) & _SEQUENCE_MASK) < _SEQUENCE_MASK // 2
