"""What a power cut leaves of a file.

Writes that were never synced may be lost, kept, torn at any byte, or survive in some of their
sectors only; the file may have grown over bytes that never arrived, and those read as zeros or as
anything. A cut of the file may or may not have happened.
"""

from random import Random
from typing import NamedTuple

SECTOR_BYTES = 512
# How much of what was not synced is lost, from nothing to everything.
_LOSSES = (0.0, 0.2, 0.5, 0.8, 1.0)


class Write(NamedTuple):
    """Bytes that were written since the last sync."""

    position: int
    data: bytes


class Cut(NamedTuple):
    """A change of the size since the last sync."""

    size_bytes: int


Change = Write | Cut


def apply(image: bytearray, change: Change) -> None:
    """Make a change as it was asked for."""
    match change:
        case Write(position, data):
            if position > len(image):
                image.extend(bytes(position - len(image)))
            image[position : position + len(data)] = data
        case Cut(size_bytes):
            if size_bytes < len(image):
                del image[size_bytes:]
            else:
                image.extend(bytes(size_bytes - len(image)))


def resizes(image: bytearray, change: Change) -> bool:
    """Whether a change makes the file longer or shorter."""
    match change:
        case Write(position, data):
            return position + len(data) > len(image)
        case Cut(size_bytes):
            return size_bytes != len(image)


def survive(image: bytearray, changes: list[Change], random: Random) -> None:
    """Apply to the synced bytes what a power cut keeps of the changes after the sync."""
    loss = random.choice(_LOSSES)
    for change in changes:
        is_lost = random.random() < loss
        match change:
            case Write(position, data):
                if is_lost:
                    _lose(image, position, data, random)
                else:
                    _grow(image, position, random)
                    image[position : position + len(data)] = data
            case Cut():
                if not is_lost:
                    apply(image, change)


def _lose(image: bytearray, position: int, data: bytes, random: Random) -> None:
    fate = random.randrange(4)
    if fate == 0:
        kept = random.randrange(len(data) + 1)
        _grow(image, position, random)
        image[position : position + kept] = data[:kept]
    elif fate == 1:
        _keep_some_sectors(image, position, data, random)
    elif fate == 2:
        _grow(image, position + random.randrange(len(data) + 1), random)


def _keep_some_sectors(image: bytearray, position: int, data: bytes, random: Random) -> None:
    end = position + len(data)
    start = position
    while start < end:
        boundary = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if random.random() < 0.5:
            _grow(image, start, random)
            image[start:boundary] = data[start - position : boundary - position]
        start = boundary


def _grow(image: bytearray, size_bytes: int, random: Random) -> None:
    missing = size_bytes - len(image)
    if missing > 0:
        image.extend(random.randbytes(missing) if random.random() < 0.3 else bytes(missing))
