"""Questions to sets of offsets."""

from pyroaring import BitMap64


def run_end(offsets: BitMap64, start: int) -> int:
    """Return the end of the run of consecutive members that begins at `start`, a member."""
    length = 1
    while offsets.contains_range(start, start + length * 2):
        length *= 2
    low, high = length, length * 2
    while high - low > 1:
        middle = (low + high) // 2
        if offsets.contains_range(start, start + middle):
            low = middle
        else:
            high = middle
    return start + low


def next_member(offsets: BitMap64 | None, start: int) -> int | None:
    """Return the first member from `start` on."""
    if not offsets or start > offsets.max():
        return None
    return int(offsets.next_set_bit(start))


def cut_at(offsets: BitMap64, start: int, end: int) -> int:
    """Return `end`, or the first member from `start` on when that comes earlier."""
    found = next_member(offsets, start)
    return end if found is None else min(end, found)
