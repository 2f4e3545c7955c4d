"""When a node knows that it is cut off."""

import pytest

from penstock.cluster.contact import Contact
from penstock.ids import NodeId
from penstock.raft import Incarnation, Member, Membership

THREE = Membership.of([Member(NodeId(node), Incarnation(node)) for node in (1, 2, 3)])


def joined_contact() -> Contact:
    contact = Contact()
    contact.joined()
    return contact


def test_a_node_that_has_not_caught_up_is_not_in_touch() -> None:
    contact = Contact()
    contact.leader_is(2, now_s=0.0)

    assert contact.is_lost(THREE, {1, 2, 3}, now_s=0.0)


def test_a_node_with_a_leader_is_in_touch() -> None:
    contact = joined_contact()
    contact.leader_is(None, now_s=0.0)
    contact.leader_is(2, now_s=1.0)

    assert not contact.is_lost(THREE, {1, 2, 3}, now_s=100.0)


@pytest.mark.parametrize(
    ("reachable", "now_s", "is_lost"),
    [({1}, 0.1, True), ({1, 2}, 0.1, False), ({1, 2}, 2.9, False), ({1, 2}, 3.1, True)],
)
def test_without_a_leader_links_to_a_majority_give_hope_for_a_while(
    reachable: set[int], now_s: float, is_lost: bool
) -> None:
    contact = joined_contact()
    contact.leader_is(None, now_s=0.0)
    contact.leader_is(None, now_s=0.05)

    assert contact.is_lost(THREE, reachable, now_s=now_s) is is_lost
