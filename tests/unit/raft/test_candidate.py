"""Elections: section 5.2 and 5.4.1 of the paper; 3.10, 4.2.3, 6.2 and 9.6 of the thesis."""

import pytest

from penstock.errors import InvalidRequest, NotLeader
from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import (
    Append,
    EntryKind,
    Heartbeat,
    Role,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.candidate import DOUBT_TIMEOUTS

from .group import FIRST, SETTINGS, Group, Host, entry, member, seeded, voters


def ask(
    sender: int, term: int, *, last: tuple[int, int] = (0, 0), trial: bool = False
) -> VoteRequest:
    """A vote request to node 1; `last` is index and term of the candidate's last entry."""
    return VoteRequest(
        NodeId(sender), NodeId(1), Term(term), EntryIndex(last[0]), Term(last[1]), trial, False
    )


def answers(group: Group) -> list[VoteResponse]:
    return [message for message in group.wire if isinstance(message, VoteResponse)]


def test_replicas_start_as_followers_without_a_leader_5_2() -> None:
    group = Group(1, 2, 3)

    assert group[1].role is Role.FOLLOWER
    assert group[1].leader is None


def test_a_follower_that_hears_nothing_becomes_leader_with_a_majority_5_2() -> None:
    group = Group(1, 2, 3)

    group.tick(1, count=19)
    group.settle()

    assert group[1].role is Role.LEADER
    assert [group[node].leader for node in (1, 2, 3)] == [1, 1, 1]
    assert [group[node].term for node in (1, 2, 3)] == [1, 1, 1]


def test_timeouts_are_random_within_one_to_two_election_timeouts_5_2() -> None:
    timeouts = {
        Host(member(1), voters(1, 2, 3), randrange=seeded(seed)).node._timeout
        for seed in range(200)
    }

    assert timeouts == set(range(SETTINGS.election_ticks, 2 * SETTINGS.election_ticks))


def test_heartbeats_keep_followers_from_campaigning_5_2() -> None:
    group = Group(1, 2, 3)
    group.elect(1)

    for _ in range(100):
        group.tick(2, 3)
        group.beat(1)

    assert group[1].leads(Term(1))


def test_a_candidate_that_hears_of_a_leader_of_its_term_follows_5_2() -> None:
    group = Group(1, 2, 3)
    group[1].tick()
    group[1]._campaign(is_transfer=False)
    group.sync(1)

    group[1].step(Heartbeat(NodeId(2), NodeId(1), Term(1), EntryIndex(0), 0))

    assert group[1].role is Role.FOLLOWER
    assert group[1].leader == 2


def test_a_split_vote_ends_in_another_election_5_2() -> None:
    group = Group(1, 2, 3, 4)
    for node in (1, 2):
        group[node]._campaign(is_transfer=False)
    group.sync(1, 2)
    for message in list(group.wire):
        # 1 and 3 vote for 1, 2 and 4 vote for 2.
        if (message.sender, message.to) in {(1, 3), (2, 4)}:
            group[message.to].step(message)
    group.wire.clear()
    group.sync()
    group.deliver()
    assert Role.LEADER not in {group[node].role for node in (1, 2, 3, 4)}

    group.tick(1, count=19)
    group.settle()

    assert group[1].leads(Term(2))


def test_one_vote_per_term_first_come_first_served_5_2() -> None:
    group = Group(1, 2, 3)
    group[1].step(ask(2, term=5))
    group[1].step(ask(3, term=5))
    group[1].step(ask(2, term=5))

    group.sync(1)

    assert [(a.to, a.is_granted) for a in answers(group)] == [(2, True), (3, False), (2, True)]


def in_doubt(*nodes: int) -> Group:
    """A group whose node 1 holds entry (1, 1) and may once have held entries up to (3, 1)."""
    group = Group(*nodes)
    host = group.hosts[1]
    host.crash()
    host.stored.append(entry(1, term=1))
    host.doubt = (Term(1), EntryIndex(3))
    host.start()
    return group


@pytest.mark.parametrize(("last", "is_granted"), [((2, 1), False), ((3, 1), True), ((1, 2), True)])
def test_a_replica_in_doubt_votes_for_logs_that_reach_what_it_may_have_held(
    last: tuple[int, int], is_granted: bool
) -> None:
    group = in_doubt(1, 2, 3)

    group[1].step(ask(2, term=5, last=last))
    group.sync(1)

    assert [answer.is_granted for answer in answers(group)] == [is_granted]


def test_a_replica_in_doubt_does_not_campaign_until_its_log_has_got_there() -> None:
    group = in_doubt(1, 2, 3)
    group.tick(1, count=40)
    group[1].step(TimeoutNow(NodeId(2), NodeId(1), Term(1)))
    assert group[1].role is Role.FOLLOWER

    entries = [entry(index, term=1) for index in (2, 3)]
    group[1].step(
        Append(NodeId(2), NodeId(1), Term(1), EntryIndex(1), Term(1), EntryIndex(0), entries)
    )
    group.sync(1)
    group.tick(1, count=40)

    assert group[1].role is Role.TRIAL_CANDIDATE


def test_doubt_ends_when_nobody_has_led_for_long() -> None:
    group = in_doubt(1, 2, 3)

    group.tick(1, count=DOUBT_TIMEOUTS * SETTINGS.election_ticks)
    group.settle()

    assert group[1].role is Role.LEADER


def test_a_sole_voter_has_nobody_to_wait_for() -> None:
    group = in_doubt(1)

    group.tick(1, count=2 * SETTINGS.election_ticks)
    group.settle()

    assert group[1].role is Role.LEADER


def test_a_vote_survives_a_restart_5_2() -> None:
    group = Group(1, 2, 3)
    group[1].step(ask(2, term=5))
    group.sync(1)
    group.crash(1)
    group.restart(1)
    group.wire.clear()

    group[1].step(ask(3, term=5))
    group.sync(1)

    assert [a.is_granted for a in answers(group)] == [False]


def test_a_vote_is_revealed_only_after_it_is_persisted_5_1() -> None:
    group = Group(1, 2, 3)
    group[1].step(ask(2, term=5))

    group.flush(1)
    assert group.wire == []

    group.sync(1)
    assert [a.is_granted for a in answers(group)] == [True]


def test_a_candidate_asks_only_after_its_own_vote_is_persisted_5_1() -> None:
    group = Group(1, 2, 3)
    group[1]._campaign(is_transfer=False)

    group.flush(1)
    assert group.sent(VoteRequest) == []

    group.sync(1)
    assert len(group.sent(VoteRequest)) == 2


def test_a_crash_before_the_vote_is_persisted_leaves_no_trace_of_it_5_1() -> None:
    group = Group(1, 2, 3)
    group[1].step(ask(2, term=5))
    group.flush(1)
    group.crash(1)
    group.restart(1)

    group[1].step(ask(3, term=5))
    group.sync(1)

    assert [(a.to, a.is_granted) for a in answers(group)] == [(3, True)]


@pytest.mark.parametrize(
    ("last", "is_granted"),
    [
        ((2, 2), True),
        ((1, 2), False),
        ((9, 1), False),
        ((1, 3), True),
        ((3, 2), True),
    ],
)
def test_a_vote_goes_only_to_a_log_at_least_as_complete_5_4_1(
    last: tuple[int, int], *, is_granted: bool
) -> None:
    group = Group(1, 2, 3)
    group[1].step(
        Append(
            NodeId(3),
            NodeId(1),
            Term(2),
            EntryIndex(0),
            Term(0),
            EntryIndex(0),
            [entry(1, 1), entry(2, 2)],
        )
    )
    group.sync(1)
    group.expire_leases(1)
    group.wire.clear()

    group[1].step(ask(2, term=5, last=last))
    group.sync(1)

    assert [a.is_granted for a in answers(group)] == [is_granted]


def test_a_trial_changes_neither_term_nor_vote_9_6() -> None:
    group = Group(1, 2, 3)

    group[1].step(ask(2, term=5, trial=True))
    group.sync(1)

    assert [a.is_granted for a in answers(group)] == [True]
    assert (group[1].term, group[1].vote) == (0, None)
    assert group.hosts[1].hard_state.term == 0


def test_a_replica_without_contact_does_not_raise_its_term_9_6() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.cut = {3}

    group.tick(3, count=200)
    group.settle()

    assert group[3].role is Role.TRIAL_CANDIDATE
    assert group[3].term == 1


def test_a_replica_that_comes_back_does_not_disturb_the_leader_9_6() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.cut = {3}
    group.tick(3, count=50)
    group.beat(1)
    group.cut = set()

    group.tick(3, count=19)
    group.settle()
    group.beat(1)

    assert group[1].leads(Term(1))
    assert group[3].leader == 1


def test_a_trial_is_refused_by_replicas_with_a_longer_log_9_6() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.cut = {3}
    group.propose(1, b"x")
    group.settle()
    group.cut = {1}
    group.expire_leases(2)

    group.tick(3, count=19)
    group.settle()

    assert group[3].role is Role.TRIAL_CANDIDATE
    assert group[3].term == 1


def test_voters_that_hear_from_a_leader_ignore_higher_terms_4_2_3() -> None:
    group = Group(1, 2, 3)
    group.elect(2)
    group.beat(2)

    group[1].step(ask(3, term=9, last=(99, 9)))
    group.sync(1)

    assert answers(group) == []
    assert group[1].term == 1


def test_a_leader_that_loses_its_quorum_steps_down_6_2() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.cut = {1}

    group.tick(1, count=2 * SETTINGS.election_ticks)

    assert group[1].role is Role.FOLLOWER
    with pytest.raises(NotLeader):
        group.propose(1, b"x")


def test_a_leader_that_reaches_a_majority_stays_6_2() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.cut = {3}

    for _ in range(50):
        group.tick(2)
        group.beat(1)

    assert group[1].leads(Term(1))


def test_a_deposed_leader_learns_the_newer_term_from_an_answer_5_1() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.cut = {1}
    group.elect(2)
    group.cut = set()

    group.beat(1)

    assert group[1].role is Role.FOLLOWER
    assert group[1].term == 2


def test_messages_of_older_terms_change_nothing_5_1() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.cut = {1}
    group.elect(2)
    before = group.log(2)

    group[2].step(
        Append(
            NodeId(1),
            NodeId(2),
            Term(1),
            EntryIndex(1),
            Term(1),
            EntryIndex(0),
            [entry(2, 1, b"late")],
        )
    )
    group.settle()

    assert group.log(2) == before
    assert group[2].leads(Term(2))


def test_leadership_is_handed_to_a_caught_up_follower_at_once_3_10() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.beat(1)

    group[1].transfer_leader(NodeId(3))
    group.settle()

    assert group[3].leads(Term(2))
    assert group[1].leader == 3


def test_a_transfer_waits_until_the_follower_has_everything_3_10() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"x")
    group.flush(1)

    group[1].transfer_leader(NodeId(2))
    assert group.sent(TimeoutNow) == []

    group.settle()
    assert group[2].leads(Term(2))
    assert group.applied(2) == [b"x"]


def test_no_proposals_are_accepted_during_a_transfer_3_10() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.cut = {3}
    group[1].transfer_leader(NodeId(3))

    with pytest.raises(NotLeader):
        group[1].propose(EntryKind.RECORDS, b"x")


def test_a_transfer_is_given_up_after_an_election_timeout_3_10() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.cut = {3}
    group[1].transfer_leader(NodeId(3))

    for _ in range(SETTINGS.election_ticks):
        group.beat(1)

    group.propose(1, b"x")
    group.settle()
    assert group.applied(1) == [b"x"]


def test_leadership_goes_to_voters_only_3_10() -> None:
    group = Group(1, 2, 3)
    group.elect(1)

    with pytest.raises(InvalidRequest):
        group[1].transfer_leader(NodeId(9))


def test_answers_of_strangers_elect_nobody() -> None:
    group = Group(1, 2, 3)
    group[1]._campaign(is_transfer=False)
    group.sync(1)

    for stranger in (7, 8, 9):
        group[1].step(VoteResponse(NodeId(stranger), NodeId(1), Term(1), True, False, FIRST))

    assert group[1].role is Role.CANDIDATE
