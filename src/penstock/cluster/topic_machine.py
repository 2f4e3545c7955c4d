"""The state of a topic's partition: its producers and where its log begins."""

import msgspec

from penstock.cluster.producers import ProducerState, after_batch
from penstock.ids import EntryIndex, Offset
from penstock.log import StateEntry
from penstock.record import BatchHeader, Buffer


class StartMoved(msgspec.Struct, frozen=True, tag="start"):
    """Records below `offset` were deleted on request."""

    offset: int


class _Snapshot(msgspec.Struct, frozen=True):
    start_offset: int
    producers: dict[int, ProducerState]
    newest_timestamp: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode_event = msgspec.msgpack.Decoder(StartMoved).decode
_decode_snapshot = msgspec.msgpack.Decoder(_Snapshot).decode


class TopicMachine:
    """What the entries of a topic's partition say beside the records themselves."""

    def __init__(self, *, producer_expiry_ms: int) -> None:
        self._producer_expiry_ms = producer_expiry_ms
        self._newest_timestamp = 0
        self._start_offset = Offset(0)
        self.producers: dict[int, ProducerState] = {}

    @property
    def start_offset(self) -> Offset:
        """Records below were deleted on request."""
        return self._start_offset

    def apply_records(self, header: BatchHeader, offset: Offset, batch: Buffer) -> None:
        """Remember the producer's sequence.

        The log has no clock but the newest timestamp in it. A producer is seen at that time, not at
        its own: one that publishes old records again is not silent.
        """
        del batch
        self._newest_timestamp = max(self._newest_timestamp, header.max_timestamp)
        if header.has_producer:
            known = self.producers.get(header.producer_id)
            seen = after_batch(known, header, offset)
            self.producers[header.producer_id] = ProducerState(
                seen.epoch, seen.batches, self._newest_timestamp
            )

    def apply_state(self, entry: StateEntry) -> Offset:
        """Move the start of the log; it never moves back."""
        event = _decode_event(entry.payload)
        self._start_offset = Offset(max(self._start_offset, event.offset))
        return self._start_offset

    def snapshot(self) -> bytes:
        """Return the state; producers that have been silent for long are left out."""
        oldest = self._newest_timestamp - self._producer_expiry_ms
        self.producers = {
            producer_id: state
            for producer_id, state in self.producers.items()
            if state.last_timestamp >= oldest
        }
        return _encode(_Snapshot(self.start_offset, self.producers, self._newest_timestamp))

    def restore(self, payload: bytes, index: EntryIndex) -> None:
        """Replace the state by that of a snapshot."""
        del index
        snapshot = _decode_snapshot(payload)
        self._start_offset = Offset(snapshot.start_offset)
        self.producers = snapshot.producers
        self._newest_timestamp = snapshot.newest_timestamp


def encode_start_moved(offset: Offset) -> bytes:
    """Return the state entry that moves the start of the log."""
    return _encode(StartMoved(offset))
