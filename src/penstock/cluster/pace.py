"""How fast a node may copy, over all its logs together."""

from collections.abc import Callable

# What may go at once after a time of silence.
_BURST_S = 0.1


class Pace:
    """Tells whoever has copied something how long to wait before the next part."""

    def __init__(self, bytes_per_s: int, now_s: Callable[[], float]) -> None:
        self._bytes_per_s = bytes_per_s
        self._now_s = now_s
        self._free_s = now_s()

    def take(self, size_bytes: int) -> float:
        """Note what was copied; return the seconds until more may be."""
        now_s = self._now_s()
        self._free_s = max(self._free_s, now_s - _BURST_S) + size_bytes / self._bytes_per_s
        return max(0.0, self._free_s - now_s)
