"""What readers found damaged, until housekeeping has looked at it.

A scrub comes by once a day. A queue would stand still for as long at a batch that has rotted,
although other replicas have it whole. So who meets damage says so, and the batch is looked at
within a second: it is reported and marked, its leader hands over, and it is mended when another
one leads.
"""

# Handing over takes a few. Where the others have compacted the batch away, or have rotted too, it
# is never mended, and leaders must not hand over to each other for ever.
_LOOKS_MAX = 30


class Suspicion:
    """At most one batch of a log, by an offset in it; who meets another one comes again."""

    def __init__(self) -> None:
        self._offset = 0
        self._looks_left = 0
        self._lost = range(0)

    def __bool__(self) -> bool:
        return self._looks_left > 0

    def arise(self, offset: int) -> None:
        """Have the batch at an offset looked at until it is mended; not if that was given up."""
        if not self and offset not in self._lost:
            self._offset = offset
            self._looks_left = _LOOKS_MAX

    def take_look(self) -> int:
        """Return the offset to look at, and count the look."""
        assert self, "there is something to look at"
        self._looks_left -= 1
        return self._offset

    def end(self) -> None:
        """The batch is whole, or there is nothing to look at."""
        self._looks_left = 0

    def give_up(self, offsets: range) -> None:
        """Nobody can mend the batch with these offsets."""
        self._looks_left = 0
        self._lost = offsets
