"""Which partition a key belongs to: what Kafka's Java producer does by default.

So a message finds the partition of its key through every door, whoever published the others.

A message that has only an idempotency key goes by that, because a repeated publish must meet the
first one. A hash shares a few hundred of them unevenly. So publishers that draw keys for messages
which may go anywhere number them: `~<16 characters>~<number in hex>` goes by its number. The first
part tells the series from others; numbers of a series follow one another.
"""

import re

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_SEED = 0x9747B28C
_NUMBERED = re.compile(r"~[\w-]{16}~([0-9a-f]{1,15})", re.ASCII)


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic with that many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_of_idempotency_key(key: str, partitions: int) -> int:
    """Return the partition of a message that has no other key."""
    numbered = _NUMBERED.fullmatch(key)
    if numbered is not None:
        return int(numbered[1], 16) % partitions
    return partition_of_key(key.encode(), partitions)


def murmur2(data: bytes) -> int:
    """Return the 32 bit hash of `data`, unsigned."""
    size = len(data)
    whole = size & ~3
    value = _SEED ^ size
    for position in range(0, whole, 4):
        block = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        block = (block ^ block >> _SHIFT) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ block
    if size > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15
