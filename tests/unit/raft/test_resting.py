"""Groups that have nothing to say: when they rest, what wakes them, and what follows from it."""

from collections.abc import Callable

import pytest

from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import EntryKind, HeartbeatResponse, RaftNode, Rest, Role, VoteRequest

from .group import FIRST, SETTINGS, Group, led, voters

WINDOW = SETTINGS.election_ticks


def pass_time(group: Group, ticks: int) -> None:
    for _ in range(ticks):
        for node, host in group.hosts.items():
            if host.is_up and node not in group.cut:
                group.tick(node)
        group.settle()


def quiet_group(*nodes: int) -> Group:
    """A group that node 1 leads, in which nothing has happened for a while."""
    group = led(*nodes)
    pass_time(group, 3 * WINDOW)
    return group


def resting_group(*nodes: int) -> Group:
    group = quiet_group(*nodes)
    assert group[1].try_rest()
    rest = group[1].rest
    assert rest is not None
    for node in nodes:
        assert node == 1 or group[node].follow_rest(NodeId(1), rest)
    group.settle()
    return group


def test_a_group_in_which_nothing_happens_may_rest_and_is_silent_then() -> None:
    group = resting_group(1, 2, 3)

    for node in (1, 2, 3):
        group.tick(node, count=10 * WINDOW)
    group.sync()

    assert group.wire == []
    assert [group[node].leader for node in (1, 2, 3)] == [1, 1, 1]
    assert group[1].leads(Term(1))


def test_a_group_of_one_rests() -> None:
    assert quiet_group(1)[1].try_rest()


def test_a_leader_that_was_busy_a_moment_ago_does_not_rest() -> None:
    group = quiet_group(1, 2, 3)
    group.propose(1, b"news")
    group.settle()

    assert not group[1].is_quiet
    assert not group[1].try_rest()
    pass_time(group, 2 * WINDOW)

    assert group[1].try_rest()


def test_a_leader_does_not_rest_while_a_member_is_away() -> None:
    group = quiet_group(1, 2, 3)
    group.cut = {3}
    pass_time(group, 3 * WINDOW)

    assert group[1].role is Role.LEADER
    assert not group[1].try_rest()


def test_a_leader_with_work_under_way_does_not_rest() -> None:
    for begin in (
        lambda node: node.propose(EntryKind.RECORDS, b"news"),
        lambda node: node.transfer_leader(NodeId(2)),
        lambda node: node.read_index(1),
    ):
        group = quiet_group(1, 2, 3)
        assert group[1].is_quiet
        begin(group[1])

        assert not group[1].try_rest()


def test_a_follower_does_not_try_to_let_the_group_rest() -> None:
    assert not quiet_group(1, 2, 3)[2].try_rest()


@pytest.mark.parametrize(
    ("leader", "rest"),
    [
        (NodeId(3), Rest(Term(1), EntryIndex(1))),
        (NodeId(1), Rest(Term(2), EntryIndex(1))),
        (NodeId(1), Rest(Term(0), EntryIndex(1))),
        (NodeId(1), Rest(Term(1), EntryIndex(2))),
        (NodeId(1), Rest(Term(1), EntryIndex(0))),
    ],
)
def test_a_follower_rests_only_when_it_is_in_step_with_its_leader(
    leader: NodeId, rest: Rest
) -> None:
    group = quiet_group(1, 2, 3)

    assert not group[2].follow_rest(leader, rest)
    assert group[2].rest is None


def test_a_follower_that_has_not_persisted_everything_does_not_rest() -> None:
    group = quiet_group(1, 2, 3)
    group.propose(1, b"news")
    group.flush(1)
    group.deliver()
    group.flush(2)

    assert not group[2].follow_rest(NodeId(1), Rest(Term(1), EntryIndex(2)))


def test_a_follower_that_restarted_does_not_rest_before_its_log_is_compared() -> None:
    group = quiet_group(1, 2, 3)
    group.crash(2)
    group.restart(2)

    assert not group[2].follow_rest(NodeId(1), Rest(Term(1), EntryIndex(1)))


def test_a_follower_commits_what_its_resting_leader_has_committed() -> None:
    group = quiet_group(1, 2, 3)
    group.propose(1, b"news")
    group.sync(1)
    group.deliver()
    group.sync()
    group.deliver()
    assert group[2].commit_index < group[1].commit_index == 2

    assert group[2].follow_rest(NodeId(1), Rest(Term(1), EntryIndex(2)))

    assert group[2].commit_index == 2


WAKERS: list[Callable[[RaftNode], object]] = [
    lambda node: node.propose(EntryKind.RECORDS, b"news"),
    lambda node: node.propose_membership(voters(1, 2)),
    lambda node: node.transfer_leader(NodeId(2)),
    lambda node: node.read_index(1),
    lambda node: node.announce_commit(),
    lambda node: node.unreachable(NodeId(2)),
    lambda node: node.wake(),
]


@pytest.mark.parametrize("stir", WAKERS)
def test_whatever_happens_wakes_a_leader_and_through_it_its_followers(
    stir: Callable[[RaftNode], object],
) -> None:
    group = resting_group(1, 2, 3)

    stir(group[1])
    assert group[1].rest is None
    group.tick(1)
    group.settle()

    assert all(group[member.node].rest is None for member in group[1].membership.members)


def test_a_late_answer_to_the_last_heartbeat_wakes_nobody() -> None:
    group = resting_group(1, 2, 3)
    last = EntryIndex(group[1].last_index)
    group[1].step(HeartbeatResponse(NodeId(2), NodeId(1), Term(1), 0, last, FIRST))
    assert group[1].rest is not None

    group[1].step(HeartbeatResponse(NodeId(2), NodeId(1), Term(1), 0, EntryIndex(0), FIRST))

    assert group[1].rest is None


def test_resting_replicas_protect_their_leader_like_others_4_2_3() -> None:
    group = resting_group(1, 2, 3)
    ask = VoteRequest(NodeId(3), NodeId(2), Term(9), EntryIndex(9), Term(9), False, False)

    group[2].step(ask)

    assert (group[2].term, group[2].leader) == (1, 1)


def test_a_woken_follower_campaigns_when_it_would_have_without_resting() -> None:
    group = resting_group(1, 2, 3)
    group.crash(1)

    group[2].wake(silent_ticks=7)
    group[3].wake(silent_ticks=WINDOW)
    group.tick(2, count=2 * WINDOW - 1 - 7)
    group.settle()

    assert group[2].role is Role.LEADER


def test_a_woken_leader_has_to_hear_from_a_majority_within_a_timeout_6_2() -> None:
    group = resting_group(1, 2, 3)
    group.cut = {1}

    group[1].wake()
    group.tick(1, count=WINDOW - 1)
    assert group[1].role is Role.LEADER
    group.tick(1)

    assert group[1].role is Role.FOLLOWER


def test_a_read_of_a_resting_leader_asks_the_members_6_4() -> None:
    group = resting_group(1, 2, 3)
    group.cut = {2, 3}
    group[1].read_index(7)
    group.settle()
    assert group.hosts[1].reads == []

    group.cut = set()
    group.beat(1)

    assert [read.context for read in group.hosts[1].reads] == [7]


# A link that breaks.


def test_a_broken_link_to_the_leader_hastens_the_election() -> None:
    group = led(1, 2, 3)
    group.crash(1)
    for node in (2, 3):
        group[node].unreachable(NodeId(1))

    group.tick(2, count=WINDOW // 2)
    group.settle()

    assert group[2].role is Role.LEADER


def test_a_broken_link_of_one_follower_deposes_nobody_9_6() -> None:
    group = led(1, 2, 3)
    group[2].unreachable(NodeId(1))
    group.tick(2, count=WINDOW // 2)
    assert group[2].role is Role.TRIAL_CANDIDATE
    group.settle()

    group.beat(1)

    assert group[1].leads(Term(1))
    assert group[2].leader == 1


def test_a_broken_link_to_another_follower_changes_nothing() -> None:
    group = resting_group(1, 2, 3)

    group[2].unreachable(NodeId(3))

    assert group[2].rest is not None
