import pytest
from pyroaring import BitMap64

from penstock.delivery import (
    Acked,
    Change,
    Dispatcher,
    Failure,
    GroupSettings,
    Leased,
    Ledger,
    OrderMode,
    Part,
    Returned,
    to_runs,
)

GROUP = "g"
END = 1_000


class Leader:
    """A dispatcher whose leases commit at once."""

    def __init__(
        self, order: OrderMode = OrderMode.PARALLEL, priorities: dict[int, BitMap64] | None = None
    ) -> None:
        self.ledger = Ledger(0)
        self.order = order
        self.priorities = priorities or {}
        self.dispatcher = Dispatcher(self.ledger, self.priorities, order)
        self.delivery = 0
        self.deliveries: dict[int, int] = {}

    def receive(self, count: int, *, now_ms: int = 0, end: int = END) -> list[int]:
        picks = self.dispatcher.pick(
            count, end=end, now_ms=now_ms, key_of=lambda offset: offset % 3
        )
        self.delivery += 1
        offsets = sorted(pick.offset for pick in picks)
        keys = [offset % 3 for offset in offsets] if self.order.is_by_key else []
        until_ms = now_ms + 1_000
        event = Leased(GROUP, self.delivery, to_runs(offsets), until_ms, now_ms, "c", keys)
        self.dispatcher.reserve(event)
        self.ledger.lease(event)
        self.dispatcher.leased(event)
        self.deliveries |= dict.fromkeys(offsets, self.delivery)
        return [pick.offset for pick in picks]

    def ack(self, *offsets: int) -> Change:
        parts = [Part(self.deliveries[offset], [(offset, offset + 1)]) for offset in offsets]
        change = self.ledger.ack(Acked(GROUP, parts, 0))
        self.dispatcher.changed(change)
        return change

    def nack(self, offset: int, *, ready_at_ms: int) -> None:
        failure = Failure(self.deliveries[offset], offset, ready_at_ms)
        self.dispatcher.changed(self.ledger.give_back(Returned(GROUP, [failure], 4, 0)))


def test_fresh_messages_go_out_in_the_order_of_the_log() -> None:
    leader = Leader()

    assert leader.receive(3) == [0, 1, 2]
    assert leader.receive(2) == [3, 4]
    assert leader.receive(10, end=6) == [5]
    assert leader.receive(10, end=6) == []


def test_a_message_that_rests_holds_nobody_up_and_comes_back_first() -> None:
    leader = Leader()
    leader.receive(2)
    leader.nack(0, ready_at_ms=500)

    assert leader.receive(1, now_ms=499) == [2]
    assert leader.receive(2, now_ms=500) == [0, 3]


def test_a_new_leader_goes_on_where_the_books_stand() -> None:
    leader = Leader()
    leader.receive(4)
    leader.ack(1)
    leader.nack(2, ready_at_ms=100)

    leader.dispatcher = Dispatcher(leader.ledger, {}, OrderMode.PARALLEL)

    assert leader.receive(2, now_ms=0) == [4, 5]
    assert leader.receive(2, now_ms=100) == [2, 6]
    assert leader.dispatcher.overdue(1_000) == [1, 2]


def test_a_message_that_nobody_has_can_be_claimed_and_is_not_picked_then() -> None:
    leader = Leader()
    leader.receive(3)
    leader.nack(0, ready_at_ms=500)
    leader.nack(1, ready_at_ms=0)

    claimed = [offset for offset in range(4) if leader.dispatcher.claim(offset, now_ms=499)]

    assert claimed == [1, 3]
    assert not leader.dispatcher.claim(1, now_ms=499)
    assert leader.receive(2, now_ms=500) == [0, 4]


def test_what_a_group_has_begun_anew_cannot_be_claimed_before_it_is_handed_out() -> None:
    leader = Leader()
    leader.ledger.reborn_end = 2

    assert [leader.dispatcher.claim(offset, now_ms=0) for offset in (1, 2)] == [False, True]


def test_higher_priorities_go_first_and_every_tenth_message_is_the_oldest() -> None:
    leader = Leader(priorities={9: BitMap64(range(100, 200)), 0: BitMap64(range(10))})

    received = leader.receive(40)

    assert received[:9] == list(range(100, 109))
    assert received[9::10] == [0, 1, 2, 3]
    assert leader.receive(100)[-1] < 300


def test_lanes_keep_their_own_order_and_the_normal_one_skips_the_others() -> None:
    leader = Leader(priorities={7: BitMap64([2, 5])})

    assert leader.receive(6) == [2, 5, 0, 1, 3, 4]


def test_a_key_waits_for_its_blocker_and_other_keys_go_on() -> None:
    leader = Leader(OrderMode.KEY)

    assert leader.receive(5, end=7) == [0, 1, 2]
    blocked = {each.key: (each.blocker, each.waiting) for each in leader.dispatcher.blocked_keys(9)}
    assert blocked == {0: (0, 2), 1: (1, 1), 2: (2, 1)}
    leader.ack(0)

    assert leader.receive(5, end=7) == [3]


def test_a_key_stays_blocked_while_its_message_rests() -> None:
    leader = Leader(OrderMode.KEY)
    leader.receive(3, end=6)
    leader.nack(1, ready_at_ms=100)

    assert leader.receive(3, end=6) == []
    assert leader.receive(3, end=6, now_ms=100) == [1]


def test_messages_of_a_key_go_out_together_and_the_next_ones_wait_for_all_of_them() -> None:
    leader = Leader(OrderMode.KEY_BATCH)

    assert leader.receive(4, end=9) == [0, 1, 2, 3]
    assert leader.receive(9, end=9) == []
    leader.ack(0)
    assert leader.receive(9, end=9) == []
    leader.ack(3, 1)
    assert leader.receive(9, end=9) == [4, 7, 6]
    assert [each.key for each in leader.dispatcher.blocked_keys(9)] == [2]


def test_a_message_of_a_key_that_failed_is_not_passed_by_those_that_went_out_with_it() -> None:
    leader = Leader(OrderMode.KEY_BATCH)
    assert leader.receive(9, end=9) == list(range(9))

    leader.nack(3, ready_at_ms=100)
    leader.nack(0, ready_at_ms=200)
    assert leader.receive(9, end=9, now_ms=150) == []
    leader.nack(6, ready_at_ms=0)
    assert leader.receive(9, end=9, now_ms=150) == []

    assert leader.receive(9, end=12, now_ms=200) == [0, 3, 6, 9]
    assert leader.receive(9, end=12, now_ms=200) == []


def test_in_strict_order_one_message_is_out_and_is_never_passed() -> None:
    leader = Leader(OrderMode.STRICT)

    assert leader.receive(5) == [0]
    assert leader.receive(5) == []
    leader.nack(0, ready_at_ms=50)
    assert leader.receive(5, now_ms=49) == []
    assert leader.receive(5, now_ms=50) == [0]
    leader.ack(0)

    assert leader.receive(5) == [1]


def test_limits_in_flight_hold_for_the_group_and_for_a_consumer() -> None:
    leader = Leader()
    settings = GroupSettings(in_flight_max=10, consumer_in_flight_max=6)
    leader.receive(4)

    assert leader.dispatcher.room("c", settings) == 2
    assert leader.dispatcher.room("another", settings) == 6
    leader.ack(0, 1)

    assert leader.dispatcher.room("c", settings) == 4


def test_overdue_deliveries_are_named_when_their_deadline_passes() -> None:
    leader = Leader()
    leader.receive(1, now_ms=0)
    leader.receive(1, now_ms=10)

    assert leader.dispatcher.next_deadline_ms == 1_000
    assert leader.dispatcher.overdue(999) == []
    assert leader.dispatcher.overdue(1_005) == [1]
    assert leader.dispatcher.overdue(1_010) == [2]


def test_a_fresh_run_is_what_a_pick_would_choose_and_goes_out_once() -> None:
    leader = Leader()

    assert leader.dispatcher.pick_fresh(4, end=6, now_ms=0) == (0, 4)
    assert leader.dispatcher.pick_fresh(4, end=6, now_ms=0) == (4, 6)
    assert leader.dispatcher.pick_fresh(4, end=6, now_ms=0) is None
    assert leader.receive(4, end=8) == [6, 7]


def test_nothing_is_fresh_while_a_message_that_came_back_goes_first() -> None:
    leader = Leader()
    leader.receive(3)
    leader.nack(1, ready_at_ms=100)

    assert leader.dispatcher.pick_fresh(1, end=END, now_ms=99) == (3, 4)
    assert leader.dispatcher.pick_fresh(1, end=END, now_ms=100) is None
    assert leader.receive(2, now_ms=100) == [1, 4]


def test_a_run_with_a_hole_is_not_fresh_and_loses_nothing() -> None:
    leader = Leader()
    leader.receive(3)
    leader.ack(1)
    leader.dispatcher = Dispatcher(leader.ledger, {}, OrderMode.PARALLEL)
    leader.receive(2)
    rebuilt = Dispatcher(leader.ledger, {}, OrderMode.PARALLEL)

    # 0 and 2 to 4 are out, 1 is settled.
    assert rebuilt.pick_fresh(3, end=8, now_ms=0) == (5, 8)


@pytest.mark.parametrize("order", [OrderMode.KEY, OrderMode.STRICT])
def test_order_and_priorities_are_left_to_the_closer_look(order: OrderMode) -> None:
    lanes = {7: BitMap64([3])}

    assert Leader(order).dispatcher.pick_fresh(2, end=END, now_ms=0) is None
    assert Leader(priorities=lanes).dispatcher.pick_fresh(2, end=END, now_ms=0) is None
