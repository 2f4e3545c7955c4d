"""How much is published into a partition, as a rate over the last minute or so."""

from collections import deque

_SAMPLES = 13


class Traffic:
    """A few samples of how many bytes have come in; the rate is taken over all of them."""

    __slots__ = ("_samples", "bytes_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)

    def sample(self, now_s: float) -> None:
        """Take note of the time; called every few seconds."""
        self._samples.append((now_s, self.bytes_in))

    def bytes_per_s(self, now_s: float) -> float:
        """Return the mean rate since the oldest sample."""
        if not self._samples:
            return 0.0
        then_s, bytes_then = self._samples[0]
        elapsed_s = now_s - then_s
        return (self.bytes_in - bytes_then) / elapsed_s if elapsed_s > 0 else 0.0
