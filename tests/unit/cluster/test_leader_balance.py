"""When leadership goes back to whom it belongs."""

from penstock.cluster.leader_balance import LeaderBalance, LedGroup
from penstock.ids import NodeId

READY = LedGroup(10_000, NodeId(1), is_ready=True)
AWAY = LedGroup(10_000, NodeId(1), is_ready=False)
INTERVAL_S = 30.0


def handed_over(balance: LeaderBalance, rounds: list[LedGroup], first: int = 0) -> list[int]:
    """Return the rounds, counted from `first`, in which the group is handed over."""
    return [
        number
        for number, seen in enumerate(rounds, start=first)
        if balance.due([seen], number * INTERVAL_S)
    ]


def test_a_group_goes_back_when_its_first_replica_was_in_step_for_two_rounds() -> None:
    balance = LeaderBalance(INTERVAL_S)

    assert handed_over(balance, [AWAY, READY, AWAY, READY, READY]) == [4]


def test_a_group_that_comes_back_again_and_again_stays_longer_each_time() -> None:
    balance = LeaderBalance(INTERVAL_S)

    times = handed_over(balance, [READY] * 40)

    assert times == [1, 3, 7, 15, 31]


def test_rounds_before_another_node_led_do_not_count() -> None:
    balance = LeaderBalance(INTERVAL_S)
    handed_over(balance, [READY])

    balance.due([], INTERVAL_S)

    assert handed_over(balance, [READY, READY], first=2) == [3]


def test_old_failures_are_forgotten_in_the_end() -> None:
    balance = LeaderBalance(INTERVAL_S)
    handed_over(balance, [READY] * 40)
    balance.due([], 999 * INTERVAL_S)

    assert handed_over(balance, [READY] * 4, first=1_000) == [1_001, 1_003]


def test_nothing_is_remembered_of_groups_that_are_gone() -> None:
    balance = LeaderBalance(INTERVAL_S)
    handed_over(balance, [READY] * 3)

    balance.forget([])

    assert handed_over(balance, [READY] * 2, first=3) == [4]
