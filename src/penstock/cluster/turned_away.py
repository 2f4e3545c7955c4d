"""Batches of idempotent producers that a partition's leader has turned away for now.

A producer has up to five batches under way. When one is turned away, because the disk is full or
another node takes over, those behind it arrive before it is back. They must not be called out of
order: a producer that is told so begins another epoch and repeats, in all partitions, whatever it
has no answer for, although some of that may be stored. So they are turned away for the same reason
until the first one is back. Nor may the second batch of a new producer be taken for its first: the
partition would then answer the repeated first one as if it were stored already.

This is kept in memory, by leaders: what a crash takes is asked for again by producers that have no
answer, and a gap that another leader has left is believed only when it stays.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.clock import Clock
from penstock.cluster.producers import ProducerState, is_before, next_sequence
from penstock.errors import PenstockError
from penstock.record import BatchHeader

# Producers of which a batch was turned away and is remembered.
_PRODUCERS_MAX = 10_000
# A gap in a producer's sequence after a change of leaders is real when it stays for this long.
_GAP_BELIEVED_S = 10.0


class _Refusal(NamedTuple):
    """Batches of one producer, and why the first one was turned away.

    `first` and `last` are the sequences with which the first and the last of them begin.
    """

    epoch: int
    first: int
    last: int
    reason: PenstockError

    def covers(self, epoch: int, sequence: int) -> bool:
        """True when the batch that begins with `sequence` is one of them."""
        is_within = not (is_before(sequence, self.first) or is_before(self.last, sequence))
        return epoch == self.epoch and is_within

    def is_stored(self, known: ProducerState) -> bool:
        """True when all of them have come back.

        A replica that does not lead yet may lag behind what is stored, so the next sequence cannot
        be told at that time; it is when another batch is judged by it.
        """
        return is_before(self.last, next_sequence(known, self.epoch))


class _Gap(NamedTuple):
    """A batch that one producer seems to have left out, and since when."""

    epoch: int
    awaited: int
    since_s: float


class TurnedAway:
    """What has yet to come back, for each producer of one partition."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refusals: dict[int, _Refusal] = {}
        self._gaps: dict[int, _Gap] = {}

    @property
    def refusals(self) -> Mapping[int, _Refusal]:
        """What has yet to come back, by producer."""
        return self._refusals

    def note(
        self, header: BatchHeader, reason: PenstockError, *, known: ProducerState | None
    ) -> None:
        """Remember a batch; `known` is what this replica knows of its producer."""
        noted = self._refusals.get(header.producer_id)
        if noted is not None and known is not None and noted.is_stored(known):
            del self._refusals[header.producer_id]
        self.note_failed(header.producer_id, header.producer_epoch, header.base_sequence, reason)

    def note_failed(
        self, producer_id: int, epoch: int, sequence: int, reason: PenstockError
    ) -> None:
        """Remember a batch along with those that were turned away before.

        All of them, because the first may turn out to be stored: the leader before took it, and it
        was committed after all. Then the second is the next one in line, and has yet to come back.
        """
        noted = self._refusals.get(producer_id)
        refusal = _Refusal(epoch, sequence, sequence, reason)
        if noted is not None and noted.epoch == epoch:
            if is_before(noted.first, sequence):
                refusal = refusal._replace(first=noted.first, reason=noted.reason)
            if is_before(sequence, noted.last):
                refusal = refusal._replace(last=noted.last)
        _make_room(self._refusals, producer_id)
        self._refusals[producer_id] = refusal

    def take_over(self, former: "TurnedAway") -> None:
        """Know what has yet to come back to another partition: it comes to this one."""
        for producer_id, refusal in former.refusals.items():
            if producer_id not in self._refusals:
                _make_room(self._refusals, producer_id)
                self._refusals[producer_id] = refusal

    def accepted(self, producer_id: int) -> None:
        """Forget a producer: the batch that comes next in line is back."""
        self._refusals.pop(producer_id, None)

    def reason_to_begin_with_another(self, header: BatchHeader) -> PenstockError | None:
        """Why a producer that the partition does not know may not begin with this batch."""
        refused = self._refusals.get(header.producer_id)
        if refused is None or refused.epoch != header.producer_epoch:
            return None
        return None if header.base_sequence == refused.first else refused.reason

    def reason_to_wait(self, header: BatchHeader, awaited: int) -> PenstockError | None:
        """Why the batch that is awaited was turned away, if it was."""
        refused = self._refusals.get(header.producer_id)
        if refused is None or not refused.covers(header.producer_epoch, awaited):
            return None
        return refused.reason

    def may_be_overtaken(self, header: BatchHeader, awaited: int) -> bool:
        """Whether the batch that is awaited may still be about to come from a former leader.

        A client whose request to the former leader runs out of time may send the next batch to the
        new one before it sends that one again. So a gap is believed only when it stays.
        """
        now_s = self._clock.steady_s()
        gap = self._gaps.get(header.producer_id)
        if gap is not None and (gap.epoch, gap.awaited) == (header.producer_epoch, awaited):
            return now_s - gap.since_s < _GAP_BELIEVED_S
        _make_room(self._gaps, header.producer_id)
        self._gaps[header.producer_id] = _Gap(header.producer_epoch, awaited, now_s)
        return True


def _make_room(noted: dict[int, _Refusal] | dict[int, _Gap], producer_id: int) -> None:
    """Forget the oldest producer when another one needs its place."""
    if producer_id not in noted and len(noted) >= _PRODUCERS_MAX:
        del noted[next(iter(noted))]
