"""Which leases are extended when."""

from dataclasses import dataclass

from penstock.client.renewal import Renewal


@dataclass(frozen=True)
class Out:
    receipt: str
    topic: str = "orders"
    group: str = "billing"
    lease_until_ms: int = 0


FIRST, SECOND, OTHER = Out("1"), Out("2"), Out("1", topic="payments")


def test_a_lease_is_extended_after_a_third_of_its_time_and_again_after_that() -> None:
    renewal = Renewal()
    renewal.hold([FIRST], lease_s=30, now_s=100)

    assert renewal.next_due_s() == 110
    assert renewal.take_due(105) == {}
    assert renewal.take_due(110) == {30: [FIRST]}
    assert renewal.next_due_s() == 120


def test_leases_that_are_nearly_due_are_extended_together() -> None:
    renewal = Renewal()
    renewal.hold([FIRST], lease_s=30, now_s=100)
    renewal.hold([SECOND], lease_s=30, now_s=101)
    renewal.hold([OTHER], lease_s=300, now_s=100)

    assert renewal.take_due(110) == {30: [FIRST, SECOND]}


def test_settled_messages_are_let_go() -> None:
    renewal = Renewal()
    renewal.hold([FIRST, OTHER], lease_s=30, now_s=100)
    renewal.drop([FIRST, SECOND])

    assert renewal.take_due(110) == {30: [OTHER]}


def test_what_was_held_for_one_owner_is_let_go_together() -> None:
    renewal = Renewal()
    mine, yours = object(), object()
    renewal.hold([FIRST, SECOND], lease_s=30, now_s=100, owner=mine)
    renewal.hold([OTHER], lease_s=30, now_s=100, owner=yours)
    renewal.drop_all_of(mine)

    assert len(renewal) == 1
    renewal.drop_all_of(yours)
    assert renewal.next_due_s() is None
