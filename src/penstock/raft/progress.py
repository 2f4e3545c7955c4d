"""How far the leader knows one follower to be, and how fast it may send.

A progress is in one of three states:

- PROBE: the leader does not know where the two logs part. One append goes out at a time, from
  `next`; an acceptance leads to REPLICATE, a refusal moves `next` back.
- REPLICATE: the follower accepts what it is sent. Appends go out without waiting for answers, up to
  a window of messages and bytes; `next` runs ahead of `match`. A refusal leads back to PROBE.
- SNAPSHOT: entries that the follower needs are gone. Nothing is sent until it has installed the
  snapshot that was offered, or says that it cannot.

What a follower has acknowledged it may lose after all: bytes that rot in its last flush are cut
like a torn write (`log.recovery`). So a follower that restarts is compared again, from `match` on,
and if it refuses that, `match` says nothing any more.
"""

from collections import deque
from enum import IntEnum

from penstock.ids import EntryIndex
from penstock.raft.membership import Member
from penstock.raft.settings import RaftSettings


class ProgressState(IntEnum):
    """See the module's account."""

    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2


_PROBE = ProgressState.PROBE
_REPLICATE = ProgressState.REPLICATE
_SNAPSHOT = ProgressState.SNAPSHOT
_NOTHING = EntryIndex(0)


class Progress:
    """One follower, seen by its leader. `match` < `next` always holds."""

    __slots__ = (
        "_bytes_max",
        "_inflight",
        "_inflight_bytes",
        "_is_held",
        "_is_paused",
        "_messages_max",
        "acked_round",
        "has_room",
        "incarnation",
        "is_active",
        "is_asking",
        "is_voter",
        "match",
        "next",
        "node",
        "snapshot_index",
        "state",
        "was_active",
    )

    def __init__(self, member: Member, next_index: int, settings: RaftSettings) -> None:
        self.node = member.node
        self.incarnation = member.incarnation
        self.is_voter = False
        self.match = _NOTHING
        """Everything up to here is persisted on the follower and equal to the leader's log."""
        self.next = next_index
        """The next entry to send."""
        self.state = _PROBE
        self.is_active = True
        """Whether it was heard from since the leader last counted its quorum."""
        self.was_active = False
        """Whether it was heard from in the count before."""
        self.is_asking = False
        """Whether to send an append even if it is empty, so that a loss comes to light."""
        self.has_room = True
        """Whether one more append may go out now: asked for far more often than it changes."""
        self.snapshot_index = 0
        self.acked_round = 0
        # Whether a probe is out.
        self._is_paused = False
        self._is_held = False
        self._messages_max = settings.inflight_messages_max
        self._bytes_max = settings.inflight_bytes_max
        self._inflight: deque[tuple[int, int]] = deque()
        self._inflight_bytes = 0

    def hold(self) -> None:
        """Let nothing more be sent until `release`."""
        self._is_held = True
        self._find_room()

    def release(self) -> None:
        """Go on."""
        self._is_held = False
        self._find_room()

    def pause(self) -> None:
        """Send no probe until `resume`, or until something is known of the follower."""
        self._is_paused = True
        self._find_room()

    def resume(self) -> None:
        """Send a probe, if that is what is waited for: the last one may be lost."""
        self._is_paused = False
        self._find_room()

    def _find_room(self) -> None:
        if self.state is _REPLICATE:
            is_open = (
                len(self._inflight) < self._messages_max and self._inflight_bytes < self._bytes_max
            )
        else:
            is_open = self.state is _PROBE and not self._is_paused
        self.has_room = is_open and not self._is_held

    def sent(self, end: int, size_bytes: int) -> None:
        """An append of entries [next, end) went out."""
        self.is_asking = False
        if self.state is _PROBE:
            self.pause()
            return
        inflight = self._inflight
        inflight.append((end - 1, size_bytes))
        self._inflight_bytes += size_bytes
        self.next = end
        if len(inflight) >= self._messages_max or self._inflight_bytes >= self._bytes_max:
            self.has_room = False

    def asked(self) -> None:
        """An append without entries went out."""
        self.is_asking = False
        if self.state is _PROBE:
            self.pause()

    def accepted(self, index: EntryIndex) -> bool:
        """The follower holds everything up to `index`; False when that was known already."""
        if index <= self.match:
            if self.state is _PROBE and self.match == self.next - 1:
                # An empty probe is answered with what was known: the logs agree up to `next`.
                self._replicate()
            return False
        self.match = index
        inflight = self._inflight
        if index >= self.next - 1:
            # As a rule nothing that was sent is under way any more.
            self.next = index + 1
            inflight.clear()
            self._inflight_bytes = 0
        else:
            while inflight and inflight[0][0] <= index:
                self._inflight_bytes -= inflight.popleft()[1]
        if self.state is _REPLICATE:
            if not self.has_room:
                self._find_room()
        elif self.state is _PROBE or index >= self.snapshot_index:
            self._replicate()
        return True

    def refused(self, index: int, next_index: int) -> bool:
        """The follower lacks the entry at `index`; False when the refusal is an old one."""
        if self.state is _SNAPSHOT:
            if index != self.snapshot_index:
                return False
            # The next attempt waits for a heartbeat's answer, so that a follower that cannot
            # fetch the snapshot is not offered it again in a tight loop.
            self.probe(self.match + 1)
            self.pause()
            return True
        if self.state is _REPLICATE:
            if index <= self.match:
                return False
            self.probe(self.match + 1)
            return True
        if index != self.next - 1:
            return False
        if index <= self.match:
            # It lost what it once acknowledged. An old refusal looks the same and costs a probe.
            self.match = _NOTHING
        self.probe(max(min(index, next_index), self.match + 1))
        return True

    def restarted(self) -> None:
        """The follower may have restarted: find out whether it still has what it acknowledged."""
        if self.state is _REPLICATE:
            self.probe(self.match + 1)

    def probe(self, next_index: int) -> None:
        """Search for the place where the logs part, from `next_index` down."""
        self._reset(_PROBE)
        self.next = next_index

    def await_snapshot(self, index: int) -> None:
        """Send nothing until the snapshot at `index` is installed."""
        self._reset(_SNAPSHOT)
        self.snapshot_index = index
        self.next = index + 1

    def _replicate(self) -> None:
        self._reset(_REPLICATE)
        self.next = self.match + 1

    def _reset(self, state: ProgressState) -> None:
        self.state = state
        self.is_asking = False
        self.snapshot_index = 0
        self._inflight.clear()
        self._inflight_bytes = 0
        self.resume()
