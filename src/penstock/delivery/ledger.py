"""The books of one queue group in one partition: what is settled, out, resting, or dying.

Every message from the floor on is in exactly one of these states:

    open      nobody has it; it was never delivered
    leased    it is out with a consumer until a deadline
    waiting   it was given back, or its lease ended, and is ready again at a time
    dying     it has failed too often or was rejected; its copy goes to the dead letters
    settled   acked, dead-lettered, or too old: the group is done with it

Everything below the floor is settled, and the floor rises over what is settled. The books change by
events that are committed to the partition's log and by nothing else, so they are the same on every
replica and after every restart. Open messages cost nothing, and messages that went out together
share one object.
"""

from collections.abc import Iterable, Iterator

import msgspec
from pyroaring import BitMap64

from penstock.delivery.events import (
    Acked,
    DeadLettered,
    Expired,
    Extended,
    Failure,
    Leased,
    Part,
    Rejected,
    Returned,
)
from penstock.delivery.leases import Lease, SavedLease
from penstock.delivery.offset_sets import run_end
from penstock.delivery.recent_acks import RecentAcks
from penstock.delivery.runs import Run, count_of, offsets_of, to_runs

EXPIRY_REASON = "the lease ended without an answer"


class Dying(msgspec.Struct, frozen=True, array_like=True):
    """A message on its way to the dead letters."""

    attempts: int
    reason: str
    is_rejected: bool = False


class Change(msgspec.Struct):
    """What applying one event did, for the one who proposed it and for the dispatcher."""

    settled: list[Run] = []
    waiting: list[tuple[int, int]] = []
    """Offset and the time at which it is ready again."""
    dying: list[int] = []
    ended: list[tuple[str, int]] = []
    """Consumers, and how many of their leases have ended."""
    stale: list[tuple[int, int]] = []
    """Delivery and offset of receipts that no longer hold."""


class _Saved(msgspec.Struct, frozen=True):
    floor: int
    done: bytes
    leases: list[SavedLease]
    attempts: dict[int, int]
    waiting: dict[int, int]
    dying: dict[int, Dying]
    keys: dict[int, int]
    first_ms: dict[int, int] = {}
    acked: list[Part] = []
    reborn_end: int = 0
    limits: dict[int, int] = {}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Saved).decode


class Ledger:
    """The state of one group in one partition."""

    def __init__(self, floor: int, *, reborn_end: int = 0) -> None:
        self.floor = floor
        # Messages below may have a life from before the group was reset.
        self.reborn_end = reborn_end
        self.done = BitMap64()
        self.leases: dict[int, Lease] = {}
        self.in_flight = 0
        # Deliveries before the current lease; offsets that never came back are left out.
        self._attempts: dict[int, int] = {}
        # When those that came back went out first.
        self._first_ms: dict[int, int] = {}
        self.waiting: dict[int, int] = {}
        self.dying: dict[int, Dying] = {}
        self.keys: dict[int, int] = {}
        # How often those may go out that have a limit of their own.
        self._limits: dict[int, int] = {}
        self._acked = RecentAcks()

    def attempts(self, offset: int) -> int:
        """How often a message went out before, the lease that it may be under excepted."""
        return self._attempts.get(offset, 0)

    def first_delivered_ms(self, offset: int) -> int | None:
        """When a message that came back went out first; None for one that never came back."""
        return self._first_ms.get(offset)

    def is_settled(self, offset: int) -> bool:
        """True when the group is done with a message."""
        return offset < self.floor or offset in self.done

    def next_unsettled(self, offset: int) -> int:
        """Return the first offset from this one on that the group is not done with."""
        return run_end(self.done, offset) if offset in self.done else max(offset, self.floor)

    def was_acked(self, offset: int) -> bool:
        """True when one of the last acks has settled a message, of whichever delivery."""
        return self._acked.holds(offset)

    def is_open(self, offset: int) -> bool:
        """True when a message was never out."""
        return not (
            self.is_settled(offset)
            or offset in self._first_ms
            or offset in self.dying
            or self.lease_of(offset)
        )

    def lease_of(self, offset: int) -> Lease | None:
        """Return the lease that a message is under. Looks at all of them."""
        return next((each for each in self.leases.values() if each.holds(offset)), None)

    def leased(self) -> Iterator[int]:
        """Yield every offset that is out."""
        for lease in self.leases.values():
            yield from lease.live_offsets()

    def unsettled(self, end: int) -> int:
        """How many messages below `end` the group is not done with."""
        start = min(self.floor, end)
        return end - start - self.done.range_cardinality(start, end)

    # Events.

    def lease(self, event: Leased) -> Change:
        """Messages go out; those that retention has settled since that was proposed do not."""
        runs, expired = event.runs, event.expired
        if (runs and runs[0][0] < self.floor) or (expired and expired[0][0] < self.floor):
            event = _from_floor(event, self.floor)
        if self.waiting:
            for start, end in event.runs:
                for offset in self._known_in(self.waiting, start, end):
                    del self.waiting[offset]
        if event.runs:
            lease = Lease(event)
            self.leases[event.delivery] = lease
            self.in_flight += lease.live_count
        if event.keys:
            keyed = zip(offsets_of(event.runs), event.keys, strict=True)
            self.keys.update({offset: key for offset, key in keyed if key is not None})
        if event.limits:
            self._limits.update(zip(offsets_of(event.runs), event.limits, strict=True))
        if event.expired:
            self._settle(event.expired)
        return Change(settled=event.expired)

    def ack(self, event: Acked) -> Change:
        """Settle messages whose lease holds; those that the same receipt has settled stay so."""
        change = Change()
        for part in event.parts:
            taken = self._take(part, change)
            if taken:
                self._settle(taken)
                self._acked.add(part if taken is part.runs else Part(part.delivery, taken))
                change.settled += taken
        if change.stale:
            change.stale = self._acked.without(change.stale)
        return change

    def give_back(self, event: Returned) -> Change:
        """Let messages rest, or die when they have been out too often."""
        change = Change()
        for failure in event.failures:
            if not self._take_one(failure, change):
                continue
            offset, ready_at_ms = failure.offset, failure.ready_at_ms
            if failure.is_counted:
                self._fail(offset, ready_at_ms, event.attempts_max, failure.reason)
            else:
                self.waiting[offset] = ready_at_ms
            self._note_failed(offset, change)
        return change

    def expire(self, event: Expired) -> Change:
        """End the leases whose deadline has passed; their messages are ready at once."""
        change = Change()
        for delivery in event.deliveries:
            lease = self.leases.get(delivery)
            if lease is None:
                continue
            offsets = lease.overdue(event.at_ms)
            ended = self._end(lease, delivery, to_runs(offsets), change)
            assert ended, "only what is out can be overdue"
            for offset in offsets:
                self._first_ms.setdefault(offset, lease.at_ms)
                self._fail(offset, event.at_ms, event.attempts_max, EXPIRY_REASON)
                self._note_failed(offset, change)
        return change

    def extend(self, event: Extended) -> Change:
        """Move deadlines."""
        change = Change()
        for part in event.parts:
            lease = self.leases.get(part.delivery)
            for offset in offsets_of(part.runs):
                if lease is None or not lease.holds(offset):
                    change.stale.append((part.delivery, offset))
                else:
                    lease.extend(offset, event.until_ms)
        return change

    def reject(self, event: Rejected) -> Change:
        """Send messages to the dead letters at once."""
        change = Change()
        for failure in event.failures:
            if self._take_one(failure, change):
                attempts = self._attempts.pop(failure.offset, 0) + 1
                self.dying[failure.offset] = Dying(attempts, failure.reason, is_rejected=True)
                change.dying.append(failure.offset)
        return change

    def dead_letter(self, event: DeadLettered) -> Change:
        """Settle messages that have their copy among the dead letters."""
        runs = to_runs(offset for offset in offsets_of(event.runs) if offset in self.dying)
        self._settle(runs)
        return Change(settled=runs)

    def trim(self, start_offset: int) -> None:
        """Settle what retention has removed."""
        if self.floor >= start_offset:
            return
        for delivery, lease in list(self.leases.items()):
            gone = [offset for offset in lease.live_offsets() if offset < start_offset]
            if gone:
                ended = self._end(lease, delivery, to_runs(gone), Change())
                assert ended, "only what is out is gone"
        self._settle([(self.floor, start_offset)])

    # The steps that events are made of.

    @staticmethod
    def _known_in(known: dict[int, int] | dict[int, Dying], start: int, end: int) -> list[int]:
        """Return the keys of `known` in a run, looking at the smaller of the two."""
        if len(known) < end - start:
            return [offset for offset in known if start <= offset < end]
        return [offset for offset in range(start, end) if offset in known]

    def _settle(self, runs: Iterable[Run]) -> None:
        for start, end in runs:
            if start <= self.floor < end:
                self.floor = end
            else:
                self.done.add_range(start, end)
            notes: tuple[dict[int, int] | dict[int, Dying], ...] = (
                self._attempts,
                self._first_ms,
                self._limits,
                self.waiting,
                self.dying,
                self.keys,
            )
            for known in filter(len, notes):
                for offset in self._known_in(known, start, end):
                    del known[offset]
        if self.done:
            self._raise_floor()

    def _raise_floor(self) -> None:
        if self.floor in self.done:
            self.floor = run_end(self.done, self.floor)
        self.done.remove_range(0, self.floor)

    def _take(self, part: Part, change: Change) -> list[Run]:
        """End the leases of a part; return the runs that were really out."""
        lease = self.leases.get(part.delivery)
        if lease is None:
            change.stale += [(part.delivery, offset) for offset in offsets_of(part.runs)]
            return []
        if self._end(lease, part.delivery, part.runs, change):
            return part.runs
        held: list[int] = []
        for offset in offsets_of(part.runs):
            if lease.holds(offset) and (not held or held[-1] < offset):
                held.append(offset)
            else:
                change.stale.append((part.delivery, offset))
        runs = to_runs(held)
        ended = self._end(lease, part.delivery, runs, change)
        assert ended, "only what is out comes back"
        return runs

    def _take_one(self, failure: Failure, change: Change) -> bool:
        run = (failure.offset, failure.offset + 1)
        lease = self.leases.get(failure.delivery)
        if not self._take(Part(failure.delivery, [run]), change):
            return False
        assert lease is not None, "a lease ended"
        self._first_ms.setdefault(failure.offset, lease.at_ms)
        return True

    def _end(self, lease: Lease, delivery: int, runs: list[Run], change: Change) -> bool:
        """End leases of one delivery; False, and none ends, when not all of them hold."""
        count = lease.end(runs)
        if count is None:
            return False
        self.in_flight -= count
        if count:
            change.ended.append((lease.consumer, count))
        if not lease.live_count:
            del self.leases[delivery]
        return True

    def _fail(self, offset: int, ready_at_ms: int, attempts_max: int, reason: str) -> None:
        attempts = self._attempts.get(offset, 0) + 1
        own_max = self._limits.get(offset, 0)
        if 0 < attempts_max <= attempts or 0 < own_max <= attempts:
            self._attempts.pop(offset, None)
            self.dying[offset] = Dying(attempts, reason)
        else:
            self._attempts[offset] = attempts
            self.waiting[offset] = ready_at_ms

    def _note_failed(self, offset: int, change: Change) -> None:
        if offset in self.dying:
            change.dying.append(offset)
        else:
            change.waiting.append((offset, self.waiting[offset]))

    # Snapshots.

    def snapshot(self) -> bytes:
        """Return the whole state."""
        saved = _Saved(
            self.floor,
            self.done.serialize(),
            [lease.saved(delivery) for delivery, lease in self.leases.items()],
            self._attempts,
            self.waiting,
            self.dying,
            self.keys,
            self._first_ms,
            list(self._acked),
            self.reborn_end,
            self._limits,
        )
        return _encode(saved)

    @classmethod
    def restore(cls, payload: bytes) -> "Ledger":
        """Return the ledger of a snapshot."""
        saved = _decode(payload)
        ledger = cls(saved.floor, reborn_end=saved.reborn_end)
        ledger.done = BitMap64.deserialize(saved.done)
        ledger.leases = {each.delivery: Lease.restore(each) for each in saved.leases}
        ledger.in_flight = sum(lease.live_count for lease in ledger.leases.values())
        ledger._attempts = saved.attempts
        ledger.waiting = saved.waiting
        ledger.dying = saved.dying
        ledger.keys = saved.keys
        ledger._first_ms = saved.first_ms
        ledger._limits = saved.limits
        for part in saved.acked:
            ledger._acked.add(part)
        return ledger


def _from_floor(event: Leased, floor: int) -> Leased:
    """Return a lease without the messages below the floor."""
    passed = count_of(_clipped(event.runs, 0, floor))
    end = max(run[1] for run in (*event.runs, *event.expired))
    return msgspec.structs.replace(
        event,
        runs=_clipped(event.runs, floor, end),
        keys=event.keys[passed:],
        limits=event.limits[passed:],
        expired=_clipped(event.expired, floor, end),
    )


def _clipped(runs: list[Run], low: int, high: int) -> list[Run]:
    """Return what lies between two offsets."""
    return [(max(a, low), min(b, high)) for a, b in runs if a < high and b > low]
