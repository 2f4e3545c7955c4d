"""What a partition's leader hands out next to one queue group.

The ledger says what has happened; the dispatcher knows what can go out now. It exists only where
the partition is led, is built from the ledger when leadership begins, and is thrown away when it
ends. A message that it has picked is reserved: it is not picked again, although the event that
leases it is not committed yet. When that event fails, the dispatcher is built anew.

Messages wait in ten lanes, one for each priority. Higher lanes go first, but every tenth message is
the oldest that waits in any lane, so that no lane starves. In each lane those that came back go
before those that were never out. Fresh messages are not listed anywhere: a cursor for each lane
runs over the log.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from pyroaring import BitMap64

from penstock.delivery.events import Leased
from penstock.delivery.key_order import BlockedKey, KeyOrder
from penstock.delivery.ledger import Change, Ledger
from penstock.delivery.offset_sets import cut_at, next_member, run_end
from penstock.delivery.runs import Run, count_of, offsets_of
from penstock.delivery.settings import GroupSettings, OrderMode

NORMAL_LANE = 4
LANES = range(10)
_PARALLEL, _STRICT = OrderMode.PARALLEL, OrderMode.STRICT
# One message in this many is the oldest that waits, whatever its lane.
_OLDEST_EVERY = 10


class Pick(NamedTuple):
    """One message to hand out, and how often it went out before; its key's hash in key order."""

    offset: int
    attempts: int
    key: int | None = None


class Dispatcher:
    """Chooses messages; the driver reads them, proposes their lease and tells what was applied."""

    def __init__(
        self,
        ledger: Ledger,
        priorities: Mapping[int, BitMap64],
        order: OrderMode,
    ) -> None:
        self._ledger = ledger
        self._priorities = priorities
        self._order = order
        # What was delivered before this dispatcher began; the cursors pass over it.
        self._taken = BitMap64(ledger.done)
        self._taken.update(ledger.leased())
        self._taken.update(ledger.waiting)
        self._taken.update(ledger.dying)
        self._taken_end = self._taken.max() + 1 if self._taken else 0
        self._cursors = dict.fromkeys(LANES, ledger.floor)
        self._resting = [(ready_at_ms, offset) for offset, ready_at_ms in ledger.waiting.items()]
        heapify(self._resting)
        self._ready: dict[int, list[int]] = {lane: [] for lane in LANES}
        self._deadlines = [
            (lease.next_deadline_ms, delivery) for delivery, lease in ledger.leases.items()
        ]
        heapify(self._deadlines)
        self._reserved: dict[int, int] = {}
        # Messages that are handed out while that is not committed.
        self.reserved_count = 0
        self._by_consumer: Counter[str] = Counter()
        for lease in ledger.leases.values():
            self._by_consumer[lease.consumer] += lease.live_count
        self._since_oldest = 0
        self._keys: KeyOrder | None = None
        if order.is_by_key:
            self._keys = KeyOrder(ledger, goes_together=order is OrderMode.KEY_BATCH)

    # Handing out.

    def room(self, consumer: str, settings: GroupSettings) -> int:
        """How many more messages may be out with this consumer now."""
        if self._order is _STRICT:
            return 0 if self._ledger.in_flight or self.reserved_count else 1
        in_flight = self._ledger.in_flight + self.reserved_count
        by_consumer = settings.consumer_in_flight_max - self._by_consumer[consumer]
        return max(0, min(settings.in_flight_max - in_flight, by_consumer))

    def pick(
        self, count_max: int, *, end: int, now_ms: int, key_of: Callable[[int], int | None]
    ) -> list[Pick]:
        """Choose up to `count_max` messages below `end`; `key_of` is asked in key order only.

        What is picked must be leased or settled with the next `reserve`, or the dispatcher be
        built anew.
        """
        self.wake(now_ms)
        if self._order is _STRICT:
            return self._pick_strict(end)
        if self._keys is not None:
            return self._pick_by_key(self._keys, count_max, end, key_of)
        return [
            Pick(offset, self._ledger.attempts(offset)) for offset in self._take(count_max, end)
        ]

    def pick_fresh(self, count_max: int, *, end: int, now_ms: int) -> Run | None:
        """Choose a run of messages that were never out, when nothing goes before them.

        That is what an undisturbed group does all the time, and needs no list of messages. None
        says that `pick` has to look closer; the same holds for what is picked.
        """
        if self._order is not _PARALLEL or self._priorities:
            return None
        if self._resting:
            self.wake(now_ms)
        cursor = max(self._cursors[NORMAL_LANE], self._ledger.floor)
        start = cursor if cursor >= self._taken_end else self._next_fresh(NORMAL_LANE, end)
        if start is None or start >= end or any(self._ready.values()):
            return None
        wanted_end = min(end, start + count_max)
        if start < self._taken_end and cut_at(self._taken, start, wanted_end) < wanted_end:
            return None
        self._cursors[NORMAL_LANE] = wanted_end
        return start, wanted_end

    def claim(self, offset: int, now_ms: int) -> bool:
        """Take a message that nobody has; False when it is not there to be had.

        It came back and is ready, or this leader has never handed it out: the lease by which one
        before did is lost. As with a pick, it must be leased or settled with the next `reserve`.
        """
        self.wake(now_ms)
        lane = self._lane_of(offset)
        ready = self._ready[lane]
        if offset in ready:
            if offset not in self._ledger.waiting:
                return False
            self._ready[lane] = [each for each in ready if each != offset]
            heapify(self._ready[lane])
            return True
        return self._claim_fresh(lane, offset)

    def _claim_fresh(self, lane: int, offset: int) -> bool:
        is_passed = offset < self._cursors[lane] or offset in self._taken
        # A receipt from before the group began anew says nothing about this life of the message.
        is_reborn = offset < self._ledger.reborn_end
        is_settled = self._ledger.is_settled(offset)
        if self._order is not _PARALLEL or is_passed or is_reborn or is_settled:
            return False
        self._taken.add(offset)
        self._taken_end = max(self._taken_end, offset + 1)
        return True

    def put_back(self, offsets: Iterable[int]) -> None:
        """These were picked and are not handed out after all; they go first next time."""
        for offset in offsets:
            if self._keys is not None:
                self._keys.put_back(offset)
            self._get_ready(offset)

    def _get_ready(self, offset: int) -> None:
        heappush(self._ready[self._lane_of(offset)], offset)

    def reserve(self, event: Leased) -> None:
        """The picked messages are out, as `event` will say once it is committed."""
        count = count_of(event.runs)
        self._reserved[event.delivery] = count
        self.reserved_count += count
        self._by_consumer[event.consumer] += count
        heappush(self._deadlines, (event.until_ms, event.delivery))

    # What happened.

    def leased(self, event: Leased) -> None:
        """A lease is committed."""
        self.reserved_count -= self._reserved.pop(event.delivery, 0)
        if event.expired:
            self._settle_keys(offsets_of(event.expired))

    def changed(self, change: Change) -> None:
        """An event other than a lease is committed."""
        for offset, ready_at_ms in change.waiting:
            heappush(self._resting, (ready_at_ms, offset))
        for consumer, count in change.ended:
            self._by_consumer[consumer] -= count
            if self._by_consumer[consumer] <= 0:
                del self._by_consumer[consumer]
        if self._keys is not None:
            back = [*(offset for offset, _ in change.waiting), *change.dying]
            for offset in self._keys.came_back(back):
                self._get_ready(offset)
            self._settle_keys(offsets_of(change.settled))

    def extended(self, deliveries: set[int]) -> None:
        """Deadlines have moved."""
        for delivery in deliveries:
            lease = self._ledger.leases.get(delivery)
            if lease is not None:
                heappush(self._deadlines, (lease.next_deadline_ms, delivery))

    # Time.

    def wake(self, now_ms: int) -> None:
        """Messages that have rested long enough are ready."""
        while self._resting and self._resting[0][0] <= now_ms:
            _, offset = heappop(self._resting)
            # It may have been settled since, or be resting for longer after another delivery.
            if self._ledger.waiting.get(offset, now_ms + 1) <= now_ms:
                self._get_ready(offset)

    def overdue(self, now_ms: int) -> list[int]:
        """Take the deliveries that hold a lease whose deadline has passed.

        They are named once; when their expiry cannot be committed the dispatcher is built anew.
        """
        found = set()
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, delivery = heappop(self._deadlines)
            lease = self._ledger.leases.get(delivery)
            if lease is None:
                if delivery in self._reserved:
                    # Its lease is not committed yet; that cannot take long.
                    heappush(self._deadlines, (now_ms + 1, delivery))
                    break
            elif lease.next_deadline_ms <= now_ms:
                found.add(delivery)
            else:
                heappush(self._deadlines, (lease.next_deadline_ms, delivery))
        return sorted(found)

    def expired(self, deliveries: list[int]) -> None:
        """An expiry is committed; messages that were extended meanwhile are still out."""
        self.extended(set(deliveries))

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next lease ends or the next message is ready again."""
        times = [heap[0][0] for heap in (self._deadlines, self._resting) if heap]
        return min(times) if times else None

    def has_ready(self, end: int) -> bool:
        """True when something may be there to be handed out."""
        if any(self._ready.values()):
            return True
        if self._order is _STRICT:
            is_free = not (self._ledger.in_flight or self.reserved_count)
            return is_free and self._strict_candidate(end) is not None
        lanes = LANES if self._priorities else (NORMAL_LANE,)
        return any(self._next_fresh(lane, end) is not None for lane in lanes)

    def blocked_keys(self, count_max: int) -> list[BlockedKey]:
        """Name keys that have messages waiting, and the message that each waits for."""
        return [] if self._keys is None else self._keys.blocked(count_max)

    # Picking, in the order in which it is done.

    def _lane_of(self, offset: int) -> int:
        for lane, offsets in self._priorities.items():
            if offset in offsets:
                return lane
        return NORMAL_LANE

    def _pick_strict(self, end: int) -> list[Pick]:
        if self._ledger.in_flight or self.reserved_count:
            return []
        offset = self._strict_candidate(end)
        if offset is None:
            return []
        for ready in self._ready.values():
            ready.clear()
        return [Pick(offset, self._ledger.attempts(offset))]

    def _strict_candidate(self, end: int) -> int | None:
        """Return the floor when it may go out: it rests until it is ready, and dies in its turn."""
        offset = self._ledger.floor
        if offset >= end or offset in self._ledger.dying:
            return None
        if offset in self._ledger.waiting and not any(self._ready.values()):
            return None
        return offset

    def _pick_by_key(
        self, keys: KeyOrder, count_max: int, end: int, key_of: Callable[[int], int | None]
    ) -> list[Pick]:
        picks: list[Pick] = []
        keys.begin_pick()
        while len(picks) < count_max and not keys.is_full:
            offsets = self._take(count_max - len(picks), end)
            if not offsets:
                break
            for offset in offsets:
                if len(picks) == count_max:
                    # Others of a key have come along.
                    self._get_ready(offset)
                    continue
                key = keys.key_of(offset)
                if key is None:
                    key = key_of(offset)
                if key is None:
                    picks.append(Pick(offset, self._ledger.attempts(offset)))
                    continue
                following: int | None = offset
                while following is not None and keys.admit(following, key):
                    picks.append(Pick(following, self._ledger.attempts(following), key))
                    following = keys.follower(key) if len(picks) < count_max else None
        return picks

    def _settle_keys(self, settled: Iterable[int]) -> None:
        if self._keys is not None:
            for offset in self._keys.settled(settled):
                self._get_ready(offset)

    def _take(self, count_max: int, end: int) -> list[int]:
        """Take messages out of the lanes."""
        if not self._priorities and not any(
            self._ready[lane] for lane in LANES if lane != NORMAL_LANE
        ):
            return self._take_lane(NORMAL_LANE, count_max, end)
        taken: list[int] = []
        while len(taken) < count_max:
            heads = {lane: head for lane in LANES if (head := self._head(lane, end)) is not None}
            if not heads:
                break
            before_oldest = _OLDEST_EVERY - 1 - self._since_oldest
            if before_oldest == 0:
                oldest = min(heads, key=heads.__getitem__)
                taken += self._take_lane(oldest, 1, end)
                self._since_oldest = 0
            else:
                got = self._take_lane(max(heads), min(count_max - len(taken), before_oldest), end)
                taken += got
                self._since_oldest += len(got)
        return taken

    def _head(self, lane: int, end: int) -> int | None:
        ready = self._ready[lane]
        fresh = self._next_fresh(lane, end)
        if ready:
            return ready[0] if fresh is None else min(ready[0], fresh)
        return fresh

    def _take_lane(self, lane: int, count_max: int, end: int) -> list[int]:
        ready = self._ready[lane]
        taken = [heappop(ready) for _ in range(min(count_max, len(ready)))]
        while len(taken) < count_max:
            start = self._next_fresh(lane, end)
            if start is None:
                break
            fresh_end = self._fresh_end(lane, start, min(end, start + count_max - len(taken)))
            taken += range(start, fresh_end)
            self._cursors[lane] = fresh_end
        return taken

    def _next_fresh(self, lane: int, end: int) -> int | None:
        """Move the lane's cursor to its next message that was never out; None at the end."""
        cursor = max(self._cursors[lane], self._ledger.floor)
        while cursor < end:
            if lane != NORMAL_LANE:
                found = next_member(self._priorities.get(lane), cursor)
                if found is None or found >= end:
                    # Messages of this lane may still come, from here on.
                    self._cursors[lane] = end
                    return None
                cursor = found
            passed = self._pass_over(lane, cursor)
            if passed == cursor:
                self._cursors[lane] = cursor
                return cursor
            cursor = passed
        self._cursors[lane] = max(self._cursors[lane], min(cursor, end))
        return None

    def _pass_over(self, lane: int, cursor: int) -> int:
        """Return the first offset from `cursor` on that may be a fresh message of this lane."""
        if cursor < self._taken_end and cursor in self._taken:
            return run_end(self._taken, cursor)
        if lane == NORMAL_LANE:
            for offsets in self._priorities.values():
                if cursor in offsets:
                    return run_end(offsets, cursor)
        return cursor

    def _fresh_end(self, lane: int, start: int, end: int) -> int:
        """Return where a run of fresh messages of a lane ends."""
        if lane != NORMAL_LANE:
            end = min(end, run_end(self._priorities[lane], start))
        else:
            for offsets in self._priorities.values():
                end = cut_at(offsets, start, end)
        if start < self._taken_end:
            end = cut_at(self._taken, start, end)
        return end
