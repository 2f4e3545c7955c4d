"""Idempotency keys that a partition has seen, each with the result of its first publish.

Applying an entry reads no clock, and the times in records are their producers'. So the leader marks
the time by an entry now and then: keys belong to the *generation* that ends with the next mark, and
a generation goes when a mark says that all of it is older than the topic's window. Until then a key
is remembered, a little longer than the window and never shorter.

Keys are kept as digests of 128 bits: two keys that share one are not to be expected.
"""

import struct
from hashlib import blake2b
from typing import NamedTuple

import msgspec

DIGEST_BYTES = 16
_RESULT = struct.Struct("<qqqq")


class FirstResult(NamedTuple):
    """What became of the first message with a key; -1 stands for what it does not have."""

    offset: int
    stage_number: int
    timestamp: int
    due_ms: int


class _SavedGeneration(msgspec.Struct, frozen=True, array_like=True):
    at_ms: int
    digests: bytes
    results: bytes


class _Generation:
    """Keys seen before one mark; `at_ms` is -1 until it comes."""

    __slots__ = ("at_ms", "results")

    def __init__(self, at_ms: int = -1) -> None:
        self.at_ms = at_ms
        self.results: dict[bytes, bytes] = {}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_SavedGeneration]).decode


class Window:
    """The keys of one partition, by generations, the oldest first."""

    def __init__(self) -> None:
        self._generations = [_Generation()]

    def __len__(self) -> int:
        return sum(len(generation.results) for generation in self._generations)

    @property
    def has_unmarked(self) -> bool:
        """True when keys were seen since the last mark."""
        return bool(self._generations[-1].results)

    def add(self, digest: bytes, result: FirstResult) -> None:
        """Remember the first result of a key."""
        self._generations[-1].results[digest] = _RESULT.pack(*result)

    def find(self, digest: bytes, *, keep_from_ms: int) -> FirstResult | None:
        """Return the first result of a key that was seen at `keep_from_ms` or later."""
        for generation in reversed(self._generations):
            if 0 <= generation.at_ms < keep_from_ms:
                return None
            found = generation.results.get(digest)
            if found is not None:
                return FirstResult(*_RESULT.unpack(found))
        return None

    def forget(self, digest: bytes, *, stage_number: int) -> None:
        """Let a key be used again whose first message was scheduled and will never come."""
        for generation in self._generations:
            found = generation.results.get(digest)
            if found is not None and _RESULT.unpack(found)[1] == stage_number:
                del generation.results[digest]

    def mark(self, *, at_ms: int, keep_from_ms: int) -> None:
        """End a generation, and forget those that ended before `keep_from_ms`."""
        if self.has_unmarked:
            self._generations[-1].at_ms = at_ms
            self._generations.append(_Generation())
        self._generations = [
            each for each in self._generations if each.at_ms < 0 or each.at_ms >= keep_from_ms
        ]

    def snapshot(self) -> bytes:
        """Return the whole state."""
        saved = [
            _SavedGeneration(each.at_ms, b"".join(each.results), b"".join(each.results.values()))
            for each in self._generations
        ]
        return _encode(saved)

    def restore(self, payload: bytes) -> None:
        """Replace the state by that of a snapshot."""
        self._generations = [_restored(saved) for saved in _decode(payload)]


def _restored(saved: _SavedGeneration) -> _Generation:
    generation = _Generation(saved.at_ms)
    count = len(saved.digests) // DIGEST_BYTES
    generation.results = {
        saved.digests[DIGEST_BYTES * n : DIGEST_BYTES * (n + 1)]: saved.results[
            _RESULT.size * n : _RESULT.size * (n + 1)
        ]
        for n in range(count)
    }
    return generation


def key_digest(key: str) -> bytes:
    """Return what a key is remembered by."""
    return blake2b(key.encode(), digest_size=DIGEST_BYTES).digest()
