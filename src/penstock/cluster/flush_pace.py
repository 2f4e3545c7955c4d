"""Whether a flush is worth a thread.

A flush in a thread leaves the loop free for everybody else, and costs two hand-overs: one to wake
the thread and one to wake the loop. On a quick disk, with one small batch under way, nobody is
there to use the free loop, and the hand-overs take as long as the sync itself. Then the flush runs
on the loop.

A loop that waits for a disk serves nobody, so it does so only while all of this holds:

- flushes take below a millisecond: on average, and the last one. One slow sync sends the next ones
  to threads, until the average shows that the disk has recovered. So a disk that turns slow holds
  the loop for one sync, not for two; a node begins with threads;
- the disk does not stall too often. Flushes that take 20 ms or more may hold the loop for a tenth
  of the time, and for a second at once; when they have, threads are used until the share is right
  again;
- no other flush is under way or about to be. Syncs of several logs run side by side in threads,
  and the file system joins them;
- the last flush on the loop was of the same log, or is long over. Logs that take turns would each
  wait for the other.

What is written, and in which order, is the same in both places, and so is what a crash leaves.
"""

from penstock.clock import Clock
from penstock.cluster.vigil import Vigil

_QUICK_S = 0.001
# One stall of seconds must not outweigh minutes of quick syncs.
_COUNTED_S_MAX = 0.064
_AVERAGED = 8
_STALL_S = 0.02
_STALLED_SHARE_MAX = 0.1
_PATIENCE_S_MAX = 1.0


class FlushPace:
    """How quick the disk of a node is, and who uses it."""

    __slots__ = (
        "_average_s",
        "_clock",
        "_last_end_s",
        "_last_log",
        "_last_stall_s",
        "_patience_s",
        "_threads_until_s",
        "_under_way",
        "_vigil",
        "is_quick",
    )

    def __init__(self, clock: Clock, vigil: Vigil | None = None) -> None:
        self.is_quick = False
        """Whether a flush may wait for its turn on the loop; `may_run_here` decides then."""
        self._clock = clock
        self._vigil = vigil
        self._average_s = _QUICK_S
        self._under_way = 0
        self._last_log: object = None
        self._last_end_s = -1.0
        # How long stalls may still hold the loop, as of the last one.
        self._patience_s = _PATIENCE_S_MAX
        self._last_stall_s = 0.0
        self._threads_until_s = -1.0

    def plan(self) -> None:
        """A flush is about to run, here or in a thread."""
        self._under_way += 1
        if self._vigil is not None:
            self._vigil.flush_comes()

    def may_run_here(self, log: object) -> bool:
        """Whether the loop may run a small flush of `log` itself."""
        if not self.is_quick or self._under_way > 1:
            return False
        return log is self._last_log or self._is_long_over()

    def _is_long_over(self) -> bool:
        return self._clock.steady_s() - self._last_end_s > _QUICK_S

    def ran_here(self, log: object, *, is_leading: bool) -> None:
        """The loop has run a flush of `log`, for clients of its own or for another node."""
        self._last_log = log
        self._last_end_s = self._clock.steady_s()
        if self._vigil is not None and is_leading:
            self._vigil.flush_ran_here()

    def committed(self) -> None:
        """Followers have answered for what the loop has flushed."""
        if self._vigil is not None:
            self._vigil.committed()

    def ended(self, duration_s: float) -> None:
        """A planned flush has ended; it took this long, hand-overs not counted."""
        self._under_way -= 1
        self._average_s += (min(duration_s, _COUNTED_S_MAX) - self._average_s) / _AVERAGED
        is_quick = duration_s < _QUICK_S and self._average_s < _QUICK_S
        if duration_s >= _STALL_S:
            self._stalled(duration_s)
        self.is_quick = is_quick and self._clock.steady_s() >= self._threads_until_s

    def _stalled(self, duration_s: float) -> None:
        now_s = self._clock.steady_s()
        regained_s = (now_s - self._last_stall_s) * _STALLED_SHARE_MAX
        self._patience_s = min(self._patience_s + regained_s, _PATIENCE_S_MAX) - duration_s
        self._last_stall_s = now_s
        if self._patience_s < 0:
            self._threads_until_s = now_s - self._patience_s / _STALLED_SHARE_MAX
