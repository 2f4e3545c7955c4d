from penstock.delivery import (
    EXPIRY_REASON,
    Acked,
    DeadLettered,
    Expired,
    Extended,
    Failure,
    Leased,
    Ledger,
    Part,
    Rejected,
    Returned,
)
from penstock.delivery.recent_acks import RUNS_MAX

GROUP = "g"
FIRST, SECOND = 1, 2


def leased(ledger: Ledger, delivery: int, *runs: tuple[int, int], until_ms: int = 1_000) -> None:
    ledger.lease(Leased(GROUP, delivery, list(runs), until_ms, 0, "consumer"))


def ack(ledger: Ledger, delivery: int, *runs: tuple[int, int]) -> list[tuple[int, int]]:
    return ledger.ack(Acked(GROUP, [Part(delivery, list(runs))], 0)).stale


def nack(ledger: Ledger, delivery: int, offset: int, *, attempts_max: int = 4) -> None:
    failure = Failure(delivery, offset, 500, "broken")
    ledger.give_back(Returned(GROUP, [failure], attempts_max, 0))


def test_the_floor_rises_over_what_is_settled() -> None:
    ledger = Ledger(floor=10)
    leased(ledger, FIRST, (10, 20))

    ack(ledger, FIRST, (12, 15))
    assert ledger.floor == 10
    ack(ledger, FIRST, (10, 12))

    assert ledger.floor == 15
    assert ledger.in_flight == 5
    assert not ledger.done


def test_an_ack_that_comes_again_is_accepted_and_changes_nothing() -> None:
    ledger = Ledger(0)
    leased(ledger, FIRST, (0, 3))

    assert ack(ledger, FIRST, (1, 2)) == []
    assert ack(ledger, FIRST, (1, 2)) == []
    assert ack(Ledger.restore(ledger.snapshot()), FIRST, (1, 2)) == []
    assert ack(ledger, SECOND, (1, 3)) == [(SECOND, 1), (SECOND, 2)]
    assert ledger.in_flight == 2


def test_messages_that_have_a_limit_of_their_own_die_by_it() -> None:
    ledger = Ledger(0)
    ledger.lease(Leased(GROUP, FIRST, [(0, 2), (4, 6)], 1_000, 0, limits=[9, 1, 2, 1]))
    ledger = Ledger.restore(ledger.snapshot())

    nack(ledger, FIRST, 5)
    ledger.expire(Expired(GROUP, [FIRST], 4, 1_000))
    assert sorted(ledger.dying) == [1, 5]
    ledger.lease(Leased(GROUP, SECOND, [(0, 1), (4, 5)], 2_000, 0, limits=[9, 2]))
    ledger.expire(Expired(GROUP, [SECOND], 2, 2_000))

    # The group's limit counts beside that of the message.
    assert sorted(ledger.dying) == [0, 1, 4, 5]


def test_limits_stay_with_their_messages_when_retention_has_removed_the_first() -> None:
    ledger = Ledger(0)
    ledger.trim(2)
    ledger.lease(Leased(GROUP, FIRST, [(0, 4)], 1_000, 0, limits=[1, 1, 2, 1]))

    ledger.expire(Expired(GROUP, [FIRST], 4, 1_000))

    assert sorted(ledger.waiting) == [2]
    assert sorted(ledger.dying) == [3]


def test_a_repeated_receipt_in_one_request_is_settled_once() -> None:
    ledger = Ledger(0)
    leased(ledger, FIRST, (0, 3))

    assert ack(ledger, FIRST, (0, 1), (0, 1)) == []
    assert (ledger.floor, ledger.in_flight) == (1, 2)


def test_a_receipt_that_settled_nothing_is_refused_although_its_message_is_settled() -> None:
    ledger = Ledger(0)
    leased(ledger, FIRST, (0, 2))
    ledger.expire(Expired(GROUP, [FIRST], 4, 1_000))
    leased(ledger, SECOND, (0, 2), until_ms=2_000)

    assert ack(ledger, SECOND, (0, 2)) == []
    assert ack(ledger, FIRST, (0, 1)) == [(FIRST, 0)]


def test_acks_are_remembered_up_to_a_limit() -> None:
    ledger = Ledger(0)
    count = RUNS_MAX + 1
    leased(ledger, FIRST, (0, 2 * count))
    for offset in range(0, 2 * count, 2):
        ack(ledger, FIRST, (offset, offset + 1))

    assert ack(ledger, FIRST, (0, 1)) == [(FIRST, 0)]
    assert ack(ledger, FIRST, (2, 3)) == []


def test_a_message_given_back_uncounted_is_as_if_it_had_not_been_out() -> None:
    ledger = Ledger(0)
    leased(ledger, FIRST, (0, 1))
    nack(ledger, FIRST, 0, attempts_max=2)
    assert ledger.attempts(0) == 1

    for delivery in range(SECOND, 10):
        leased(ledger, delivery, (0, 1))
        failure = Failure(delivery, 0, 700, "not begun", is_counted=False)
        change = ledger.give_back(Returned(GROUP, [failure], 2, 0))
        assert (change.waiting, change.dying) == ([(0, 700)], [])

    assert ledger.attempts(0) == 1
    assert (ledger.waiting, ledger.dying, ledger.in_flight) == ({0: 700}, {}, 0)


def test_the_receipt_of_an_older_lease_does_not_settle_a_newer_one() -> None:
    ledger = Ledger(0)
    leased(ledger, FIRST, (0, 1))
    ledger.expire(Expired(GROUP, [FIRST], 4, 1_000))
    leased(ledger, SECOND, (0, 1), until_ms=2_000)

    assert ack(ledger, FIRST, (0, 1)) == [(FIRST, 0)]
    assert ack(ledger, SECOND, (0, 1)) == []


def test_an_expired_message_is_ready_at_once_and_its_delivery_counts() -> None:
    ledger = Ledger(0)
    leased(ledger, FIRST, (0, 2), until_ms=1_000)

    change = ledger.expire(Expired(GROUP, [FIRST], 4, 1_500))

    assert change.waiting == [(0, 1_500), (1, 1_500)]
    assert change.ended == [("consumer", 2)]
    assert ledger.attempts(0) == 1


def test_a_message_that_was_extended_does_not_expire_with_the_others() -> None:
    ledger = Ledger(0)
    leased(ledger, FIRST, (0, 3), until_ms=1_000)
    ledger.extend(Extended(GROUP, [Part(FIRST, [(1, 2)])], 5_000, 0))

    change = ledger.expire(Expired(GROUP, [FIRST], 4, 1_000))

    assert [offset for offset, _ in change.waiting] == [0, 2]
    assert list(ledger.leased()) == [1]
    assert ledger.leases[FIRST].next_deadline_ms == 5_000


def test_a_message_dies_with_its_last_attempt_and_is_settled_by_its_copy() -> None:
    ledger = Ledger(0)
    for delivery in range(3):
        leased(ledger, delivery, (0, 1))
        nack(ledger, delivery, 0, attempts_max=3)

    assert ledger.dying[0].attempts == 3
    assert ledger.dying[0].reason == "broken"
    assert ledger.floor == 0
    ledger.dead_letter(DeadLettered(GROUP, [(0, 1)], 0))

    assert ledger.floor == 1
    assert not ledger.dying


def test_a_second_burial_changes_nothing() -> None:
    ledger = Ledger(0)
    leased(ledger, FIRST, (0, 2))
    ledger.reject(Rejected(GROUP, [Failure(FIRST, 0, 0, "no")], 0))

    first = ledger.dead_letter(DeadLettered(GROUP, [(0, 1)], 0))
    second = ledger.dead_letter(DeadLettered(GROUP, [(0, 2)], 0))

    assert first.settled == [(0, 1)]
    assert second.settled == []
    assert list(ledger.leased()) == [1]


def test_without_a_limit_nothing_dies() -> None:
    ledger = Ledger(0)
    for delivery in range(100):
        leased(ledger, delivery, (0, 1))
        nack(ledger, delivery, 0, attempts_max=0)

    assert ledger.waiting == {0: 500}
    assert ledger.attempts(0) == 100


def test_the_reason_of_an_expiry_is_told() -> None:
    ledger = Ledger(0)
    leased(ledger, FIRST, (0, 1))

    ledger.expire(Expired(GROUP, [FIRST], 1, 1_000))

    assert ledger.dying[0].reason == EXPIRY_REASON


def test_messages_that_are_too_old_are_settled_with_the_lease_that_met_them() -> None:
    ledger = Ledger(0)

    event = Leased(GROUP, FIRST, [(2, 3)], 1_000, 0, "consumer", expired=[(0, 2)])
    ledger.lease(event)

    assert ledger.floor == 2
    assert ledger.in_flight == 1


def test_what_retention_removed_is_settled_and_its_leases_end() -> None:
    ledger = Ledger(0)
    leased(ledger, FIRST, (0, 4))
    nack(ledger, FIRST, 1)

    ledger.trim(3)

    assert ledger.floor == 3
    assert ledger.in_flight == 1
    assert ledger.waiting == {}


def test_a_lease_that_retention_overtook_does_not_bring_messages_back() -> None:
    ledger = Ledger(0)
    ledger.trim(3)

    keys: list[int | None] = [10, None, 12, 13]
    ledger.lease(Leased(GROUP, FIRST, [(1, 5)], 1_000, 0, "consumer", keys, [(0, 1), (5, 6)]))
    ledger.expire(Expired(GROUP, [FIRST], 4, 1_000))

    assert ledger.floor == 3
    assert ledger.waiting.keys() == {3, 4}
    assert ledger.keys == {3: 12, 4: 13}
    assert list(ledger.done) == [5]


def test_a_million_messages_that_went_out_in_hundreds_are_ten_thousand_objects() -> None:
    ledger = Ledger(0)
    for number in range(10_000):
        leased(ledger, number, (number * 100, number * 100 + 100))

    assert ledger.in_flight == 1_000_000
    assert len(ledger.leases) == 10_000
    assert ledger.unsettled(1_000_000) == 1_000_000
