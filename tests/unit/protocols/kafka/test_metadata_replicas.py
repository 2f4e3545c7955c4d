"""What Metadata tells of the replicas of a partition, at rest and while it is being moved."""

from typing import cast

import pytest

from penstock.broker import Broker
from penstock.cluster.described import Replicas
from penstock.ids import TopicPartition
from penstock.protocols.kafka.api import Client, Context
from penstock.protocols.kafka.metadata import _partition

BEFORE = ((1, 10), (2, 20), (3, 30))
DOWN = 3


class FakeBroker:
    """A broker that knows one partition; node 3 is down."""

    def __init__(self, replicas: Replicas, leader: int) -> None:
        self._replicas = replicas
        self._leader = leader

    def leader_of(self, _: TopicPartition) -> tuple[int, int]:
        return self._leader, 7

    def replicas_of(self, _: TopicPartition) -> Replicas:
        return self._replicas

    def is_reachable(self, node: int) -> bool:
        return node != DOWN


def told(replicas: Replicas, *, leader: int) -> tuple[tuple[int, ...], ...]:
    """Return all replicas, those in step and those that are down."""
    broker = cast("Broker", FakeBroker(replicas, leader))
    found = _partition(TopicPartition("orders", 0), Context(broker, Client("", ""), 1))
    return found.replica_nodes, found.isr_nodes, found.offline_replicas


def test_replicas_of_a_partition_at_rest_are_its_members() -> None:
    assert told(Replicas(5, BEFORE, BEFORE), leader=1) == ((1, 2, 3), (1, 2), (3,))


@pytest.mark.parametrize(
    ("leader", "in_step"),
    [
        pytest.param(2, (1, 2), id="the newcomer is being filled"),
        pytest.param(4, (4, 1, 2), id="the newcomer leads"),
    ],
)
def test_replicas_that_leave_are_listed_until_the_move_is_settled(
    leader: int, in_step: tuple[int, ...]
) -> None:
    after = ((4, 40), (1, 10))
    moving = Replicas(5, BEFORE, after, leaving=((2, 20), (3, 30)), former=BEFORE)

    assert told(moving, leader=leader) == ((4, 1, 2, 3), in_step, (3,))


def test_a_node_that_lost_its_replica_is_listed_once_and_out_of_step() -> None:
    after = ((1, 10), (2, 21))
    refilled = Replicas(5, BEFORE[:2], after, leaving=((2, 20),), former=BEFORE[:2])

    assert told(refilled, leader=1) == ((1, 2), (1,), ())
