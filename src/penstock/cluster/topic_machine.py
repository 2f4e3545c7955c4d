"""The state of a topic's partition: its producers, its queue groups, and where its log begins."""

import struct
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import msgspec
from pyroaring import BitMap64

from penstock.cluster.producers import ProducerState, after_batch
from penstock.cluster.staged_writes import StagedWrites
from penstock.cluster.write_decisions import WriteDecisions
from penstock.cluster.write_events import (
    StagedWriteEvent,
    WriteDecided,
    WriteEvent,
    WritersForgotten,
)
from penstock.delivery import (
    Arrivals,
    Change,
    DeliveryEvent,
    DeliveryState,
    Staged,
    StageEvent,
)
from penstock.errors import PenstockError
from penstock.ids import EntryIndex, Offset
from penstock.log import StateEntry
from penstock.record import (
    CODEC_MASK,
    BatchHeader,
    Buffer,
    batch_may_have_attributes,
    read_header,
)


class StartMoved(msgspec.Struct, frozen=True, tag="start"):
    """Records below `offset` were deleted on request."""

    offset: int


class Archived(msgspec.Struct, frozen=True, tag="archived"):
    """The archive at `path` durably holds every record below `offset`.

    `table` tells the archive from one that was there before it.
    """

    path: str
    table: str
    offset: int
    at_ms: int


class Fenced(msgspec.Struct, frozen=True, tag="fenced"):
    """No records follow while the fence of that number is in force.

    With `closes_reads`, none are read either until the fence is lifted or the topic has lost its
    name to its copy.
    """

    fence: int
    closes_reads: bool = False


class _Snapshot(msgspec.Struct, frozen=True):
    start_offset: int
    producers: dict[int, ProducerState]
    newest_timestamp: int = 0
    delivery: bytes = b""
    arrivals: memoryview = memoryview(b"")
    archived: Archived | None = None
    writes: bytes = b""
    decisions: bytes = b""
    fence: int = 0
    read_fence: int = 0


Event = StartMoved | Archived | Fenced | DeliveryEvent | StageEvent | WriteEvent

# How MessagePack begins an array that says its length in two bytes.
_ARRAY = struct.Struct(">BH")
_ARRAY_CODE = 0xDC

# Up to here a second search costs less than to remember that the first one found nothing.
_SEARCHED_BYTES = 16 * 1024

# A result of an event that is applied; of one of a queue group it is what has changed.
_Result = Offset | Change | int | list[bool] | WriteDecided | None

_encode = msgspec.msgpack.Encoder().encode
# Called for every lease and ack, so there is no function around it.
encode_delivery: Callable[[DeliveryEvent], bytes] = _encode
"""Return the state entry of an event of a queue group."""
_decode = msgspec.msgpack.Decoder(Event | list[DeliveryEvent]).decode
_decode_snapshot = msgspec.msgpack.Decoder(_Snapshot).decode


class TopicMachine:
    """What the entries of a topic's partition say beside the records themselves."""

    def __init__(self, *, producer_expiry_ms: int) -> None:
        self._producer_expiry_ms = producer_expiry_ms
        self._newest_timestamp = 0
        self._start_offset = Offset(0)
        self._archived: Archived | None = None
        self.fence = self.read_fence = 0
        self.producers: dict[int, ProducerState] = {}
        self.delivery = DeliveryState()
        self.on_delivery: Callable[[DeliveryEvent, Change], None] = lambda *_: None
        self.on_trimmed: Callable[[], None] = lambda: None
        self.arrivals = Arrivals()
        self.writes = StagedWrites()
        self.decisions = WriteDecisions()
        # Batches that are on their way and known to have no attributes, by identity.
        self._plain: WeakValueDictionary[int, memoryview] = WeakValueDictionary()

    @property
    def priorities(self) -> dict[int, BitMap64]:
        """Offsets of records that have another priority than the normal one."""
        return self.arrivals.priorities

    @property
    def start_offset(self) -> Offset:
        """Records below were deleted on request."""
        return self._start_offset

    @property
    def remembered(self) -> frozenset[int]:
        """First offsets of the last batches of all producers, and of writes under way."""
        last = (batch.offset for state in self.producers.values() for batch in state.batches)
        return frozenset((*last, *self.writes.remembered))

    def archived_offset(self, archive: str) -> Offset:
        """Return up to where the archive at that path is known to hold the records."""
        archived = self._archived
        if archived is None or archived.path != archive:
            return Offset(0)
        return Offset(archived.offset)

    def knows_archived(self, event: Archived) -> bool:
        """Return whether a report says nothing new."""
        known = self._archived
        is_same = known is not None and (known.path, known.table) == (event.path, event.table)
        return known is not None and is_same and event.offset <= known.offset

    def apply_records(self, header: BatchHeader, offset: Offset, batch: Buffer) -> None:
        """Remember the producer's sequence and what the records say about their delivery."""
        self._note_producer(header, offset)
        is_plain = _is_long_searched(header, batch) and self._plain.pop(id(batch), None) is not None
        if not is_plain and batch_may_have_attributes(header, batch):
            self.arrivals.apply_records(header, batch)

    def expect_plain(self, header: BatchHeader, batch: memoryview) -> None:
        """A batch that is about to be proposed has no attributes: it need not be searched again."""
        if _is_long_searched(header, batch):
            self._plain[id(batch)] = batch

    def _note_producer(self, header: BatchHeader, offset: Offset) -> None:
        """Remember the sequence.

        The log has no clock but the newest timestamp in it. A producer is seen at that time, not at
        its own: one that publishes old records again is not silent.
        """
        if header.max_timestamp > self._newest_timestamp:
            self._newest_timestamp = header.max_timestamp
        if header.producer_id >= 0:
            known = self.producers.get(header.producer_id)
            seen = after_batch(known, header, offset)
            self.producers[header.producer_id] = ProducerState(
                seen.epoch, seen.batches, self._newest_timestamp
            )
            self.writes.note(header, offset)

    def apply_state(self, entry: StateEntry) -> _Result | list[Change | PenstockError]:
        """Move the start of the log, or keep the books of all that is not records yet."""
        event = _decode(entry.payload)
        # Most entries are of queue groups, and most of those hold a lease and an ack.
        if isinstance(event, list):
            return [self._apply_bundled(each, entry) for each in event]
        if isinstance(event, DeliveryEvent):
            return self._apply_delivery(event, entry)
        return self._apply_other(event, entry)

    def bundle(self, payloads: Sequence[bytes]) -> bytes:
        """Return one entry with several events of queue groups, each of them encoded."""
        return b"".join((_ARRAY.pack(_ARRAY_CODE, len(payloads)), *payloads))

    def _apply_delivery(self, event: DeliveryEvent, entry: StateEntry) -> Change:
        change = self.delivery.apply(event, end=entry.next_offset)
        self.on_delivery(event, change)
        return change

    def _apply_bundled(self, event: DeliveryEvent, entry: StateEntry) -> Change | PenstockError:
        """One event that is refused leaves the others as they are."""
        try:
            return self._apply_delivery(event, entry)
        except PenstockError as refusal:
            return refusal

    def _apply_other(
        self, event: StartMoved | Archived | Fenced | StageEvent | WriteEvent, entry: StateEntry
    ) -> _Result:
        if isinstance(event, StartMoved):
            return self._move_start(event)
        if isinstance(event, Archived):
            return self._note_archived(event)
        if isinstance(event, Fenced):
            self.fence = max(self.fence, event.fence)
            if event.closes_reads:
                self.read_fence = self.fence
            return None
        if isinstance(event, Staged):
            return self._stage(event, entry)
        if isinstance(event, StageEvent):
            return self.arrivals.apply(event, entry.index)
        return self._apply_write(event, entry.index)

    def _apply_write(self, event: WriteEvent, index: int) -> WriteDecided | bool | None:
        if isinstance(event, WritersForgotten):
            self.writes.forget(event.before_ms)
            self.decisions.forget(event.before_ms)
            return None
        if isinstance(event, StagedWriteEvent):
            return self.writes.apply(event, index)
        return self.decisions.apply(event)

    def _move_start(self, event: StartMoved) -> Offset:
        """The start never moves back. Queue groups are done with what lies before it."""
        self._start_offset = Offset(max(self._start_offset, event.offset))
        self.delivery.trim(self._start_offset)
        self.arrivals.trim(self._start_offset)
        self.on_trimmed()
        return self._start_offset

    def _note_archived(self, event: Archived) -> Offset:
        """Reports may come late or twice: only another archive begins at a smaller offset."""
        if not self.knows_archived(event):
            self._archived = event
        return self.archived_offset(event.path)

    def _stage(self, event: Staged, entry: StateEntry) -> int:
        """Take messages into the stage; the answer is the index that names them."""
        if event.header:
            self._note_producer(read_header(event.header), Offset(entry.next_offset))
        self.arrivals.apply(event, entry.index)
        return entry.index

    def snapshot(self) -> bytes:
        """Return the state; producers that have been silent for long are left out."""
        oldest = self._newest_timestamp - self._producer_expiry_ms
        self.producers = {
            producer_id: state
            # Sorted, so that equal states are equal bytes: compaction may have taken the batches by
            # which another replica came to know of a producer first.
            for producer_id, state in sorted(self.producers.items())
            if state.last_timestamp >= oldest
        }
        return _encode(
            _Snapshot(
                self.start_offset,
                self.producers,
                self._newest_timestamp,
                self.delivery.snapshot(),
                memoryview(self.arrivals.snapshot()),
                self._archived,
                self.writes.snapshot(),
                self.decisions.snapshot(),
                self.fence,
                self.read_fence,
            )
        )

    def restore(self, payload: Buffer, index: EntryIndex) -> None:
        """Replace the state by that of a snapshot."""
        del index
        snapshot = _decode_snapshot(payload)
        self._start_offset = Offset(snapshot.start_offset)
        self.producers = snapshot.producers
        self._newest_timestamp = snapshot.newest_timestamp
        self._archived = snapshot.archived
        self.fence = snapshot.fence
        self.read_fence = snapshot.read_fence
        if snapshot.delivery:
            self.delivery.restore(snapshot.delivery)
        if snapshot.arrivals:
            self.arrivals.restore(snapshot.arrivals)
        if snapshot.writes:
            self.writes.restore(snapshot.writes)
        if snapshot.decisions:
            self.decisions.restore(snapshot.decisions)


def _is_long_searched(header: BatchHeader, batch: Buffer) -> bool:
    """Whether a search for attributes costs more than remembering what it found."""
    return len(batch) > _SEARCHED_BYTES or header.attributes & CODEC_MASK != 0


def encode_start_moved(offset: Offset) -> bytes:
    """Return the state entry that moves the start of the log."""
    return _encode(StartMoved(offset))


def encode_archived(event: Archived) -> bytes:
    """Return the state entry that notes how far an archive is."""
    return _encode(event)


def encode_fenced(event: Fenced) -> bytes:
    """Return the state entry that turns writes away, or reads, too."""
    return _encode(event)


def decode_event(payload: Buffer) -> Event:
    """Return the event of a state entry that holds no more than one."""
    (event,) = decode_events(payload)
    return event


def decode_events(payload: Buffer) -> Sequence[Event]:
    """Return what a state entry says: one event, or several of queue groups."""
    found = _decode(payload)
    return found if isinstance(found, list) else (found,)


def encode_write_event(event: WriteEvent) -> bytes:
    """Return the state entry of an event of writers."""
    return _encode(event)


def encode_stage_event(event: StageEvent) -> bytes:
    """Return the state entry of an event of scheduled messages or of keys."""
    return _encode(event)
