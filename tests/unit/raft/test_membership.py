"""Members and incarnations: section 6 of the paper, chapter 4 of the thesis."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Conflict, InvalidRequest
from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import Member, Membership, Role, VoteRequest, VoteResponse
from penstock.raft.membership import MembershipHistory

from .group import Group, Host, led, member, voters


def grow(group: Group, own: Member) -> Host:
    """Start an empty replica that belongs to no group yet."""
    return group.add(own, Membership())


@given(
    st.dictionaries(
        st.integers(0, 2**32 - 1), st.tuples(st.integers(0, 2**64 - 1), st.booleans()), max_size=9
    )
)
def test_a_membership_is_read_back_as_it_was_written(
    nodes: dict[int, tuple[int, bool]],
) -> None:
    membership = Membership.of(
        [member(node, number) for node, (number, is_voter) in nodes.items() if is_voter],
        [member(node, number) for node, (number, is_voter) in nodes.items() if not is_voter],
    )

    assert Membership.decode(membership.encode()) == membership


@pytest.mark.parametrize("cut", range(len(voters(1, 2).encode())))
def test_a_torn_membership_is_refused(cut: int) -> None:
    with pytest.raises(InvalidRequest):
        Membership.decode(voters(1, 2).encode()[:cut])


def test_a_node_is_a_member_once() -> None:
    with pytest.raises(InvalidRequest):
        Membership.of([member(1)], [member(1, 2)])


def test_a_learner_replaces_another_incarnation_of_its_node() -> None:
    changed = voters(1, 2, 3).with_learner(member(3, 2))

    assert changed.voters == (member(1), member(2))
    assert changed.learners == (member(3, 2),)
    assert changed.voters_changed(voters(1, 2, 3)) == 1


def test_cutting_the_log_brings_back_the_membership_before() -> None:
    history = MembershipHistory([(EntryIndex(0), voters(1, 2, 3))])
    history.append(EntryIndex(5), voters(1, 2))
    history.append(EntryIndex(8), voters(1))

    assert not history.truncate(EntryIndex(9))
    assert history.truncate(EntryIndex(6))
    assert history.current == voters(1, 2)
    assert history.truncate(EntryIndex(1))
    assert history.current == voters(1, 2, 3)


def test_a_committed_membership_is_never_cut() -> None:
    history = MembershipHistory([(EntryIndex(0), voters(1, 2, 3))])
    history.append(EntryIndex(5), voters(1, 2))
    history.commit(EntryIndex(5))

    history.truncate(EntryIndex(1))

    assert history.current == voters(1, 2)


def test_a_membership_is_in_force_when_appended_4_1() -> None:
    group = led(1, 2, 3)

    group[1].propose_membership(voters(1, 2))

    assert group[1].membership == voters(1, 2)
    assert [status.node for status in group[1].followers()] == [2]


def test_only_one_voter_changes_at_a_time_4_1() -> None:
    group = led(1, 2, 3)

    with pytest.raises(InvalidRequest):
        group[1].propose_membership(voters(1))
    with pytest.raises(InvalidRequest):
        group[1].propose_membership(voters(1, 2, 4))


def test_a_group_keeps_at_least_one_voter() -> None:
    group = led(1)

    with pytest.raises(InvalidRequest):
        group[1].propose_membership(Membership.of([], [member(1)]))


def test_a_second_change_waits_until_the_first_is_committed_4_1() -> None:
    group = led(1, 2, 3)
    group[1].propose_membership(voters(1, 2))

    with pytest.raises(Conflict):
        group[1].propose_membership(voters(1))

    group.settle()
    group[1].propose_membership(voters(1))


def test_a_change_waits_for_an_entry_of_the_current_term_4_1_corrected() -> None:
    group = Group(1, 2, 3)
    group[1]._campaign(is_transfer=False)
    group.sync()
    group.deliver()
    group.sync()
    group.deliver()
    assert group[1].role is Role.LEADER

    with pytest.raises(Conflict):
        group[1].propose_membership(voters(1, 2))

    group.settle()
    group[1].propose_membership(voters(1, 2))


def test_a_change_that_is_never_committed_is_rolled_back_4_1() -> None:
    """A membership change during a partition: the old majority goes on without it."""
    group = led(1, 2, 3)
    group.cut = {1}
    group[1].propose_membership(voters(1, 2))
    group.sync(1)
    assert group[1].membership == voters(1, 2)
    group.elect(2)
    group.propose(2, b"x")
    group.settle()
    group.cut = set()

    group.beat(2)
    group.beat(2)

    assert group[1].membership == voters(1, 2, 3)
    assert group.applied(1) == [b"x"]


def test_leaders_on_both_sides_of_a_change_cannot_both_commit_4_1() -> None:
    """The fault that joint majorities prevent: adding voters on one side of a cut."""
    group = led(1, 2, 3)
    for node in (4, 5):
        grow(group, member(node))
    group.cut = {2, 3}
    group[1].propose_membership(voters(1, 2, 3, 4))
    group.settle()

    with pytest.raises(Conflict):
        group[1].propose_membership(voters(1, 2, 3, 4, 5))
    assert group[1].commit_index == 1

    group.cut = {1, 4, 5}
    group.elect(2)
    group.propose(2, b"x")
    group.settle()
    assert group[2].commit_index == 3
    assert group.applied(2) == [b"x"]


def test_a_new_member_catches_up_as_a_learner_before_it_votes_4_2_1() -> None:
    group = led(1, 2, 3)
    for payload in (b"a", b"b"):
        group.propose(1, payload)
    group.settle()
    grow(group, member(4))

    group[1].propose_membership(voters(1, 2, 3).with_learner(member(4)))
    group.settle()
    group.beat(1)
    assert group.applied(4) == [b"a", b"b"]

    group[1].propose_membership(voters(1, 2, 3, 4))
    group.settle()
    group.beat(1)
    assert group[4].membership == voters(1, 2, 3, 4)


def test_a_learner_becomes_a_voter_only_when_it_knows_that_it_is_a_member() -> None:
    group = led(1, 2, 3)
    grow(group, member(4))
    group.cut = {4}
    group[1].propose_membership(voters(1, 2, 3).with_learner(member(4)))
    group.settle()
    group.beat(1)

    with pytest.raises(Conflict, match="has not stored its own admission"):
        group[1].propose_membership(voters(1, 2, 3, 4))


def test_learners_are_not_counted_4_2_1() -> None:
    group = led(1, 2, 3)
    grow(group, member(4))
    group[1].propose_membership(voters(1, 2, 3).with_learner(member(4)))
    group.settle()
    before = group[1].commit_index
    group.cut = {2, 3}

    group.propose(1, b"x")
    group.settle()

    assert group.log(4) == group.log(1)
    assert group[1].commit_index == before


def test_learners_do_not_campaign_4_2_1() -> None:
    group = led(1, 2, 3)
    grow(group, member(4))
    group[1].propose_membership(voters(1, 2, 3).with_learner(member(4)))
    group.settle()

    group.tick(4, count=200)

    assert group[4].role is Role.FOLLOWER
    assert group[4].leader is None


def test_a_learner_lends_its_vote_to_a_candidate_that_knows_it_as_a_voter_4_1() -> None:
    """Voter 4 has not received the entry that makes it one, and its vote is needed."""
    group = led(1, 2, 3)
    grow(group, member(4))
    group[1].propose_membership(voters(1, 2, 3).with_learner(member(4)))
    group.settle()
    group.cut = {3, 4}
    group[1].propose_membership(voters(1, 2, 3, 4))
    group.settle()
    group.crash(1)
    group.cut = set()

    group.elect(2)

    assert group[2].membership == voters(1, 2, 3, 4)


def test_a_leader_that_removes_itself_leads_until_that_is_committed_4_2_2() -> None:
    group = led(1, 2, 3)
    group.propose(1, b"x")
    group[1].propose_membership(voters(2, 3))
    group.sync(1)
    assert group[1].role is Role.LEADER
    assert group[1].commit_index == 1

    group.settle()

    assert group[1].role is Role.FOLLOWER
    assert {group[2].role, group[3].role} == {Role.LEADER, Role.FOLLOWER}
    assert group.applied(2) == [b"x"]


def test_a_leader_does_not_count_itself_while_it_removes_itself_4_2_2() -> None:
    group = led(1, 2, 3)
    group.cut = {3}

    group[1].propose_membership(voters(2, 3))
    group.settle()

    assert group[1].commit_index == 1


def test_a_voter_whose_removal_is_not_committed_still_campaigns_4_2_2() -> None:
    """Only node 1 holds its own removal; node 2 cannot win against its longer log."""
    group = led(1, 2)
    group[1].propose_membership(voters(2))
    group.sync(1)
    group.wire.clear()
    group.crash(1)
    group.restart(1)
    group.expire_leases(2)

    group.tick(1, count=19)
    group.settle()

    assert group[2].membership == voters(2)
    group.tick(2, count=19)
    group.settle()
    assert group[2].role is Role.LEADER


def test_a_removed_member_cannot_disturb_the_others_4_2_3() -> None:
    group = led(1, 2, 3)
    group[1].propose_membership(voters(1, 2))
    group.settle()

    for _ in range(60):
        group.tick(2, 3)
        group.beat(1)

    assert group[1].leads(Term(1))


def test_a_replica_without_a_group_neither_votes_nor_campaigns() -> None:
    group = Group(1, 2, 3)
    grow(group, member(4))

    group[4].step(
        VoteRequest(
            NodeId(1), NodeId(4), Term(1), EntryIndex(9), Term(1), is_trial=False, is_transfer=False
        )
    )
    group.tick(4, count=100)
    group.sync(4)

    [answer] = group.wire
    assert isinstance(answer, VoteResponse)
    assert not answer.is_granted
    assert group[4].role is Role.FOLLOWER


def wipe(group: Group, node: int) -> None:
    """The node comes back under its old name with an empty disk."""
    group.crash(node)
    grow(group, member(node, 2))


def test_a_wiped_node_does_not_vote_from_lost_memory() -> None:
    """Node 3 voted in term 1; with its memory lost it must not vote there again."""
    group = Group(1, 2, 3)
    group.cut = {2}
    group[1]._campaign(is_transfer=False)
    group.settle()
    assert group[1].leads(Term(1))
    wipe(group, 3)
    group.cut = {1}

    group[2]._campaign(is_transfer=False)
    assert group[2].term == 1
    group.settle()

    assert group[2].role is not Role.LEADER


def test_acknowledgements_of_a_wiped_node_do_not_count() -> None:
    """A new leader may have been elected and have committed with the lost memory."""
    group = led(1, 2, 3)
    group.cut = {2}
    wipe(group, 3)

    group.propose(1, b"x")
    for _ in range(3):
        group.beat(1)

    assert group[1].commit_index == 1


def test_a_wiped_node_does_not_keep_a_leader_in_office() -> None:
    group = led(1, 2, 3)
    group.cut = {2}
    wipe(group, 3)

    for _ in range(25):
        group.beat(1)

    assert group[1].role is Role.FOLLOWER


def test_a_wiped_node_is_admitted_again_under_its_new_incarnation() -> None:
    group = led(1, 2, 3)
    group.propose(1, b"x")
    group.settle()
    wipe(group, 3)

    group[1].propose_membership(group[1].membership.with_learner(member(3, 2)))
    group.settle()
    group.beat(1)
    assert group.applied(3) == [b"x"]
    group[1].propose_membership(group[1].membership.with_voter(member(3, 2)))
    group.settle()
    group.cut = {2}
    group.propose(1, b"y")
    group.settle()

    assert group.applied(1) == [b"x", b"y"]
