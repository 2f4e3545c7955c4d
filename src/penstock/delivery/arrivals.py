"""What a partition knows of messages beside their order: priorities, keys, and who still waits.

Built by committed entries alone, and the same on every replica. Records say it in their headers,
which were checked when they came in; a header that makes no sense here says nothing.
"""

import msgspec
from pyroaring import BitMap64

from penstock.delivery.stage import Stage
from penstock.delivery.stage_events import (
    KeysMarked,
    Restaged,
    StageCancelled,
    Staged,
    StageEvent,
    StageMoved,
    parse_stage_id,
    stage_number,
    unpack_numbers,
)
from penstock.delivery.window import FirstResult, Window, key_digest
from penstock.errors import InvalidRequest
from penstock.record import (
    NO_ATTRIBUTES,
    PRIORITY_NORMAL,
    Attributes,
    BatchHeader,
    Buffer,
    Record,
    attributes_of,
    decode_records,
)


class _Snapshot(msgspec.Struct, frozen=True, array_like=True):
    priorities: dict[int, bytes]
    window: bytes
    stage: memoryview


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Snapshot).decode


class Arrivals:
    """The attributes of one partition's messages, as far as they matter after the publish."""

    def __init__(self) -> None:
        # Offsets of records that have another priority than the normal one.
        self.priorities: dict[int, BitMap64] = {}
        self.window = Window()
        self.stage = Stage()

    def apply_records(self, header: BatchHeader, batch: Buffer) -> None:
        """Take note of a committed batch that may have attributes."""
        released = []
        for record in _decoded(batch):
            attributes = _attributes_of(record)
            if attributes.priority != PRIORITY_NORMAL:
                self.priorities.setdefault(attributes.priority, BitMap64()).add(record.offset)
            if header.is_release:
                released.append(parse_stage_id(attributes.id or "")[1])
            elif attributes.idempotency_key is not None:
                result = FirstResult(record.offset, -1, record.timestamp, -1)
                self.window.add(key_digest(attributes.idempotency_key), result)
        if header.is_release:
            self.stage.release(released)

    def apply(self, event: StageEvent, index: int) -> list[bool]:
        """Apply a committed event; say of each message that it names whether it was waiting."""
        match event:
            case Staged():
                self._take_in(event, index)
            case Restaged(numbers):
                self.stage.restage(index, unpack_numbers(numbers))
            case StageCancelled():
                return self._cancel(event)
            case StageMoved(numbers, due_ms):
                return self.stage.move(unpack_numbers(numbers), due_ms)
            case KeysMarked(at_ms, keep_from_ms):
                self.window.mark(at_ms=at_ms, keep_from_ms=keep_from_ms)
        return []

    def _take_in(self, event: Staged, index: int) -> None:
        dues = unpack_numbers(event.dues)
        self.stage.add(index, dues)
        for place, key in event.keys.items():
            result = FirstResult(-1, stage_number(index, place), key.timestamp, dues[place])
            self.window.add(key.digest, result)

    def _cancel(self, event: StageCancelled) -> list[bool]:
        numbers = unpack_numbers(event.numbers)
        cancelled = self.stage.cancel(numbers)
        for place, digest in event.keys.items():
            if cancelled[place]:
                self.window.forget(digest, stage_number=numbers[place])
        return cancelled

    def has_priorities_below(self, offset: int) -> bool:
        """True when there is something to trim."""
        return any(offsets.min() < offset for offsets in self.priorities.values())

    def trim(self, start_offset: int) -> None:
        """Forget the priorities of records that are gone.

        Those of records that every group is done with are kept as long as the records are: a group
        that begins at the first record, or is reset to it, delivers them by their priorities. A
        set of offsets takes two bytes for each at most, and few bits where they follow each other.
        """
        for priority, offsets in list(self.priorities.items()):
            offsets.remove_range(0, start_offset)
            if not offsets:
                del self.priorities[priority]

    def snapshot(self) -> bytes:
        """Return the whole state."""
        priorities = {
            priority: offsets.serialize() for priority, offsets in self.priorities.items()
        }
        stage = memoryview(self.stage.snapshot())
        return _encode(_Snapshot(priorities, self.window.snapshot(), stage))

    def restore(self, payload: Buffer) -> None:
        """Replace the state by that of a snapshot."""
        saved = _decode(payload)
        self.priorities.clear()
        for priority, offsets in saved.priorities.items():
            self.priorities[priority] = BitMap64.deserialize(offsets)
        self.window.restore(saved.window)
        self.stage.restore(saved.stage)


def _decoded(batch: Buffer) -> list[Record]:
    """Return the records, or none when a producer sent bytes that are not records."""
    try:
        return list(decode_records(batch))
    except InvalidRequest:
        return []


def _attributes_of(record: Record) -> Attributes:
    try:
        return attributes_of(record.headers)
    except InvalidRequest:
        return NO_ATTRIBUTES
