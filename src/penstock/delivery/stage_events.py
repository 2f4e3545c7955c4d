"""What happens to messages before they are in the log, as entries of the partition's log.

A scheduled message is known by a number: the index of the entry that brought it, and its place
there. The number is its name for good, also when its bytes are moved to a later entry.
"""

import sys
from array import array
from collections.abc import Iterable, Sequence

import msgspec

from penstock.errors import InvalidRequest, MessageNotFound
from penstock.record import Buffer, Record

# An entry brings fewer messages than this.
_PLACE_BITS = 20
STAGED_MAX = 1 << _PLACE_BITS
# Numbers are kept as signed integers of 64 bits.
_INDEX_END = 1 << 63 - _PLACE_BITS


class StagedKey(msgspec.Struct, frozen=True, array_like=True):
    """The digest of a message's idempotency key, and the time that its publisher gave it."""

    digest: bytes
    timestamp: int


class Staged(msgspec.Struct, frozen=True, tag="stage", omit_defaults=True):
    """Messages wait for their time.

    `dues` are their times, in the order of `records`. `header` is that of the producer's batch,
    where it counts its batches; `keys` are the idempotency keys by place.
    """

    dues: bytes
    records: bytes
    at_ms: int
    keys: dict[int, StagedKey] = {}
    header: bytes = b""


class Restaged(msgspec.Struct, frozen=True, tag="restage"):
    """The bytes of waiting messages stand here from now on, so that old segments can go."""

    numbers: bytes
    records: bytes


class StageCancelled(msgspec.Struct, frozen=True, tag="unstage", omit_defaults=True):
    """Waiting messages are not wanted any more.

    `keys` are digests of their idempotency keys, by place: they are free again.
    """

    numbers: bytes
    at_ms: int
    keys: dict[int, bytes] = {}


class StageMoved(msgspec.Struct, frozen=True, tag="stage_move"):
    """Waiting messages have another time."""

    numbers: bytes
    due_ms: int
    at_ms: int


class KeysMarked(msgspec.Struct, frozen=True, tag="keys"):
    """The time at which idempotency keys were seen; those from before `keep_from_ms` may go."""

    at_ms: int
    keep_from_ms: int


StageEvent = Staged | Restaged | StageCancelled | StageMoved | KeysMarked


_encode = msgspec.msgpack.Encoder().encode
_decode_list = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_record = msgspec.msgpack.Decoder(Record).decode


def pack_records(records: Sequence[Record]) -> bytes:
    """Return records as an entry of the stage holds them: applying it leaves them alone."""
    return _encode(records)


def unpack_records(packed: bytes, places: Sequence[int]) -> list[Record]:
    """Return the records at some places; the others are passed over."""
    records = _decode_list(packed)
    return [_decode_record(records[place]) for place in places]


def stage_number(index: int, place: int) -> int:
    """Return the number of the message at `place` of entry `index`."""
    return index << _PLACE_BITS | place


def index_and_place(number: int) -> tuple[int, int]:
    """Return the entry and the place that a number stands for."""
    return number >> _PLACE_BITS, number & (STAGED_MAX - 1)


def stage_id(partition: int, number: int) -> str:
    """Return the id of a scheduled message, which it keeps after its release."""
    index, place = index_and_place(number)
    return f"{partition}-s{index}-{place}"


def parse_stage_id(text: str) -> tuple[int, int]:
    """Return partition and number of a scheduled message; raise when the text is no such id."""
    partition, _, rest = text.partition("-s")
    index, _, place = rest.partition("-")
    if not all(
        part.isascii() and part.isdigit() and len(part) < 16 for part in (partition, index, place)
    ):
        raise InvalidRequest(f"{text[:80]!r} is not the id of a scheduled message")
    if int(place) >= STAGED_MAX or int(index) >= _INDEX_END:
        raise MessageNotFound(f"there is no scheduled message {text!r}")
    return int(partition), stage_number(int(index), int(place))


def pack_numbers(numbers: "Iterable[int] | array[int]") -> bytes:
    """Return numbers as little endian 64 bit integers."""
    packed = numbers if isinstance(numbers, array) else array("q", numbers)
    if sys.byteorder == "big":
        packed = array("q", packed)
        packed.byteswap()
    return packed.tobytes()


def view_numbers(numbers: "array[int]") -> memoryview:
    """Return what `pack_numbers` does, without a copy where the machine allows it.

    The array must not grow or shrink while the view is there.
    """
    if sys.byteorder == "big":
        return memoryview(pack_numbers(numbers))
    return memoryview(numbers).cast("B")


def unpack_numbers(packed: Buffer) -> "array[int]":
    """Return what `pack_numbers` was given."""
    numbers = array("q")
    numbers.frombytes(packed)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
