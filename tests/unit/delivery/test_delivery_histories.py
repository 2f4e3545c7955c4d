"""Whole histories of a group: a leader that comes and goes, consumers that answer or do not.

The model is the naive one: a dictionary of what each message has gone through.
"""

import random
from collections import Counter

import msgspec
import pytest
from pyroaring import BitMap64

from penstock.delivery import (
    Acked,
    DeadLettered,
    DeliveryEvent,
    DeliveryState,
    Dispatcher,
    Expired,
    Extended,
    Failure,
    GroupCreated,
    GroupSettings,
    Leased,
    OrderMode,
    Part,
    Rejected,
    Returned,
    to_runs,
)

GROUP = "workers"
LEASE_MS = 1_000
KEYS = 5


class History:
    """A partition's leader, its journal, and what consumers have seen."""

    def __init__(self, seed: int, order: OrderMode, *, with_priorities: bool) -> None:
        self.random = random.Random(seed)
        self.order = order
        self.settings = GroupSettings(order=order, attempts_max=3, in_flight_max=40)
        self.journal: list[bytes] = []
        self.pending: list[DeliveryEvent] = []
        self.state = DeliveryState()
        self.priorities: dict[int, BitMap64] = {}
        self.with_priorities = with_priorities
        self.end = 0
        self.now_ms = 0
        self.term = 0
        self.counter = 0
        self.lanes: dict[int, int] = {}
        self.out: dict[tuple[int, int], int] = {}
        self.deliveries: Counter[int] = Counter()
        self.acked: set[int] = set()
        self.dead: Counter[int] = Counter()
        self.apply(GroupCreated(GROUP, 0, 0))
        self.lead()

    @property
    def ledger(self):  # type: ignore[no-untyped-def]  # noqa: ANN201
        return self.state.ledgers[GROUP]

    def key_of(self, offset: int) -> int | None:
        return None if offset % 7 == 0 else offset % KEYS

    def lead(self) -> None:
        """Begin a new reign: what was not committed is lost, the rest is replayed."""
        self.pending.clear()
        self.state = DeliveryState()
        for each in self.journal:
            self.state.apply(msgspec.msgpack.decode(each, type=DeliveryEvent))
        self.term += 1
        self.counter = 0
        self.dispatcher = Dispatcher(self.ledger, self.priorities, self.order)

    def apply(self, event: DeliveryEvent):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self.journal.append(msgspec.msgpack.encode(event))
        return self.state.apply(event)

    def publish(self) -> None:
        for _ in range(self.random.randrange(1, 20)):
            lane = self.random.choice((0, 4, 4, 4, 9)) if self.with_priorities else 4
            self.lanes[self.end] = lane
            if lane != 4:
                self.priorities.setdefault(lane, BitMap64()).add(self.end)
            self.end += 1

    def receive(self) -> None:
        room = self.dispatcher.room("consumer", self.settings)
        picks = self.dispatcher.pick(
            min(room, self.random.randrange(1, 12)),
            end=self.end,
            now_ms=self.now_ms,
            key_of=self.key_of,
        )
        if not picks:
            return
        picks.sort()
        self.counter += 1
        delivery = self.term << 32 | self.counter
        expired = [pick for pick in picks if pick.offset % 31 == 30]
        taken = [pick for pick in picks if pick.offset % 31 != 30]
        event = Leased(
            GROUP,
            delivery,
            to_runs(pick.offset for pick in taken),
            self.now_ms + LEASE_MS,
            self.now_ms,
            "consumer",
            [pick.key for pick in taken] if self.order.is_by_key else [],
            to_runs(pick.offset for pick in expired),
        )
        self.dispatcher.reserve(event)
        self.pending.append(event)
        for pick in taken:
            assert pick.offset not in self.acked, "an acked message came back"
            assert pick.offset not in self.dead, "a dead message came back"
            if self.order is OrderMode.KEY_BATCH and not self.with_priorities:
                self.check_nobody_is_passed(pick.offset, {each.offset for each in picks})
            self.deliveries[pick.offset] += 1
            self.out[delivery, pick.offset] = self.now_ms + LEASE_MS

    def check_nobody_is_passed(self, offset: int, together: set[int]) -> None:
        key = self.key_of(offset)
        for earlier in range(self.ledger.floor, offset):
            if key is not None and self.key_of(earlier) == key and earlier not in together:
                assert self.ledger.is_settled(earlier), f"{offset} passed {earlier}"

    def commit(self) -> None:
        for event in self.pending:
            self.apply(event)
            assert isinstance(event, Leased)
            self.dispatcher.leased(event)
        self.pending.clear()

    def answer(self) -> None:
        """A consumer acks, nacks, extends or rejects some of what it has; receipts may be stale."""
        if not self.out:
            return
        self.commit()
        chosen = self.random.sample(sorted(self.out), min(len(self.out), 4))
        verb = self.random.choice(("ack", "ack", "ack", "nack", "extend", "reject"))
        parts = [Part(delivery, [(offset, offset + 1)]) for delivery, offset in chosen]
        failures = [
            Failure(delivery, offset, self.now_ms + self.random.randrange(500), "no")
            for delivery, offset in chosen
        ]
        if verb == "extend":
            until_ms = self.now_ms + 2 * LEASE_MS
            change = self.apply(Extended(GROUP, parts, until_ms, self.now_ms))
            self.dispatcher.extended({delivery for delivery, _ in chosen})
            good = set(chosen) - set(change.stale)
            self.out |= dict.fromkeys(good, until_ms)
            for stale in change.stale:
                del self.out[stale]
            return
        event: DeliveryEvent
        if verb == "ack":
            event = Acked(GROUP, parts, self.now_ms)
        elif verb == "nack":
            event = Returned(GROUP, failures, self.settings.attempts_max, self.now_ms)
        else:
            event = Rejected(GROUP, failures, self.now_ms)
        change = self.apply(event)
        self.dispatcher.changed(change)
        for each in chosen:
            del self.out[each]
        if verb == "ack":
            self.acked |= {offset for _, offset in set(chosen) - set(change.stale)}

    def pass_time(self) -> None:
        self.now_ms += self.random.randrange(600)
        self.commit()
        overdue = self.dispatcher.overdue(self.now_ms)
        if overdue:
            event = Expired(GROUP, overdue, self.settings.attempts_max, self.now_ms)
            self.dispatcher.changed(self.apply(event))
            self.dispatcher.expired(overdue)

    def bury(self) -> None:
        """Move what is dying to the dead letters."""
        dying = sorted(self.ledger.dying)
        if dying:
            change = self.apply(DeadLettered(GROUP, to_runs(dying), self.now_ms))
            self.dispatcher.changed(change)
            self.dead.update(dying)

    def step(self) -> None:
        actions = (self.publish, self.receive, self.receive, self.commit, self.answer, self.answer)
        rare = (self.pass_time, self.bury, self.lead)
        self.random.choice(rare if self.random.random() < 0.2 else actions)()
        self.check()

    def check(self) -> None:
        leased = list(self.ledger.leased())
        assert len(leased) == len(set(leased)) == self.ledger.in_flight
        states = [
            set(leased),
            set(self.ledger.waiting),
            set(self.ledger.dying),
            set(self.ledger.done),
        ]
        assert sum(map(len, states)) == len(set().union(*states)), "two states at once"
        assert all(self.ledger.is_settled(offset) for offset in self.acked)
        assert max(self.dead.values(), default=1) == 1
        if self.order is OrderMode.KEY:
            busy = [self.key_of(each) for each in (*leased, *self.ledger.waiting)]
            busy = [key for key in busy if key is not None]
            assert len(busy) == len(set(busy)), "two messages of one key are under way"
        if self.order is OrderMode.KEY_BATCH:
            holders: dict[int, set[int]] = {}
            for delivery, lease in self.ledger.leases.items():
                for offset in lease.live_offsets():
                    key = self.key_of(offset)
                    if key is not None:
                        holders.setdefault(key, set()).add(delivery)
            assert all(len(each) == 1 for each in holders.values()), "two have messages of a key"
        if self.order is OrderMode.STRICT:
            assert len(leased) + len(self.ledger.waiting) <= 1

    def finish(self) -> None:
        """Every message is settled in the end, and none more than once."""
        self.out.clear()
        for _ in range(100_000):
            self.now_ms += 2 * LEASE_MS
            self.receive()
            self.pass_time()
            self.bury()
            while self.out:
                self.commit()
                parts = [Part(delivery, [(offset, offset + 1)]) for delivery, offset in self.out]
                offsets = [offset for _, offset in self.out]
                change = self.apply(Acked(GROUP, parts, self.now_ms))
                self.dispatcher.changed(change)
                stale = {offset for _, offset in change.stale}
                self.acked |= set(offsets) - stale
                self.out.clear()
            if self.ledger.floor == self.end:
                return
        raise AssertionError(f"stuck at {self.ledger.floor} of {self.end}")


@pytest.mark.parametrize("order", list(OrderMode))
@pytest.mark.parametrize("with_priorities", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_every_message_is_settled_once_whatever_happens(
    seed: int, order: OrderMode, with_priorities: bool
) -> None:
    history = History(seed, order, with_priorities=with_priorities)

    for _ in range(400):
        history.step()
    history.finish()

    settled = history.acked | set(history.dead)
    expired = {offset for offset in range(history.end) if offset % 31 == 30}
    assert settled | expired == set(range(history.end))
    assert not settled & expired


@pytest.mark.parametrize("order", list(OrderMode))
@pytest.mark.parametrize("seed", range(6))
def test_a_snapshot_and_the_rest_of_the_journal_give_the_same_books(
    seed: int, order: OrderMode
) -> None:
    history = History(seed, order, with_priorities=True)
    for _ in range(300):
        history.step()

    cut = random.Random(seed).randrange(len(history.journal))
    before = DeliveryState()
    for each in history.journal[:cut]:
        before.apply(msgspec.msgpack.decode(each, type=DeliveryEvent))
    after = DeliveryState()
    after.restore(before.snapshot())
    for each in history.journal[cut:]:
        after.apply(msgspec.msgpack.decode(each, type=DeliveryEvent))

    assert after.snapshot() == history.state.snapshot()
