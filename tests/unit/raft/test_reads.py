"""Reads that must be current: section 8 of the paper, 6.4 of the thesis."""

from dataclasses import replace

import pytest

from penstock.errors import NotLeader, Unavailable
from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import HeartbeatResponse, RaftNode, ReadState, Role
from penstock.raft.reads import ReadQueue

from .group import FIRST, SETTINGS, Group, led


def reads(group: Group, node: int) -> list[ReadState]:
    return group.hosts[node].reads


def test_a_read_waits_until_a_majority_confirms_the_leader_6_4() -> None:
    group = led(1, 2, 3)
    group[1].read_index(7)
    group.flush(1)
    assert reads(group, 1) == []

    group.settle()

    assert reads(group, 1) == [ReadState(7, EntryIndex(1))]


def test_a_new_leader_serves_no_read_before_it_commits_in_its_term_6_4() -> None:
    group = led(1, 2, 3)
    group.propose(1, b"x")
    group.settle()
    group.crash(1)
    group.expire_leases(3)
    group[2]._campaign(is_transfer=False)
    group.sync()
    group.deliver()
    group.sync()
    group.deliver()
    assert group[2].role is Role.LEADER

    # Node 2 does not know yet that entry 2 is committed; a majority confirms it as leader.
    group[2].read_index(7)
    group.flush(2)
    group[2].step(HeartbeatResponse(NodeId(3), NodeId(2), Term(2), 1, EntryIndex(0), FIRST))
    group.flush(2)
    assert reads(group, 2) == []

    group.settle()
    assert reads(group, 2) == [ReadState(7, EntryIndex(3))]


class ReadsWithoutProof(RaftNode):
    """A planted fault, to show that the test below would notice it."""

    def _round_of_majority(self) -> int:
        return self._read_queue.round


@pytest.mark.parametrize(("node_class", "served"), [(RaftNode, 0), (ReadsWithoutProof, 1)])
def test_a_deposed_leader_serves_no_stale_read_6_4(node_class: type[RaftNode], served: int) -> None:
    group = led(1, 2, 3, node_class=node_class)
    group.cut = {1}
    group.elect(2)
    group.propose(2, b"x")
    group.settle()
    assert group[1].role is Role.LEADER

    group[1].read_index(7)
    group.settle()
    group.cut = set()
    group.settle()

    assert len(reads(group, 1)) == served


def test_reads_of_a_deposed_leader_are_refused_not_forgotten_6_4() -> None:
    group = led(1, 2, 3)
    group.cut = {1}
    group[1].read_index(7)
    group.settle()

    group.tick(1, count=20)
    group.settle()

    assert group.hosts[1].reads_refused == [7]


def test_answers_to_an_earlier_round_prove_nothing_6_4() -> None:
    group = led(1, 2, 3)
    group.tick(1)
    group.flush(1)
    group[1].read_index(7)
    group.deliver()
    group.sync(2, 3)
    assert reads(group, 1) == []

    group.deliver()

    assert reads(group, 1) == []


def test_reads_between_two_bundles_share_one_round_6_4() -> None:
    group = led(1, 2, 3)
    for context in (1, 2, 3):
        group[1].read_index(context)

    group.flush(1)

    assert len(group.wire) == 2
    group.settle()
    assert [read.context for read in reads(group, 1)] == [1, 2, 3]


def test_a_follower_asks_the_leader_and_serves_when_it_has_applied_6_4() -> None:
    group = led(1, 2, 3)
    group.propose(1, b"x")
    group.settle()

    group[2].read_index(7)
    group.settle()

    assert reads(group, 2) == [ReadState(7, EntryIndex(2))]
    assert group.applied(2) == [b"x"]


def test_a_follower_without_a_leader_refuses_a_read() -> None:
    group = Group(1, 2, 3)

    with pytest.raises(NotLeader):
        group[2].read_index(7)


def test_a_follower_that_changes_its_leader_refuses_forwarded_reads() -> None:
    group = led(1, 2, 3)
    group.cut = {1}
    group[2].read_index(7)
    group.settle()

    group.elect(3)

    assert group.hosts[2].reads_refused == [7]


def test_a_group_of_one_serves_reads_at_once() -> None:
    group = led(1)

    group[1].read_index(7)
    group.settle()

    assert reads(group, 1) == [ReadState(7, EntryIndex(1))]


def test_the_number_of_waiting_reads_is_limited() -> None:
    group = Group(1, 2, 3, settings=replace(SETTINGS, reads_max=2))
    group.elect(1)
    group[1].read_index(1)
    group[1].read_index(2)

    with pytest.raises(Unavailable):
        group[1].read_index(3)


def test_the_queue_confirms_in_order_of_rounds() -> None:
    queue = ReadQueue()
    queue.add(NodeId(1), 10, 5)
    queue.start_round()
    queue.add(NodeId(1), 11, 6)
    queue.start_round()

    assert [read.context for read in queue.confirm(1)] == [10]
    assert [read.context for read in queue.confirm(1)] == []
    assert [read.context for read in queue.confirm(2)] == [11]
    assert len(queue) == 0
