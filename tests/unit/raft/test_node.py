"""The front door: bundles, restarts, and a group of one."""

import pytest

from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import EntryKind, Heartbeat, Leadership, Membership, Role
from penstock.raft.replica import HELD_MAX

from .group import Group, led, member, voters


def test_a_group_of_one_leads_itself_once_its_vote_is_persisted() -> None:
    group = Group(1)
    group.tick(1, count=19)
    group.flush(1)
    assert group[1].role is Role.CANDIDATE

    group.sync(1)

    assert group[1].leads(Term(1))


def test_a_group_of_one_commits_when_its_copy_is_persisted() -> None:
    group = led(1)
    index = group.propose(1, b"x")
    group.flush(1)
    assert group[1].commit_index < index

    group.sync(1)

    assert group[1].commit_index == index
    assert group.applied(1) == [b"x"]


def test_a_group_of_one_grows_to_three() -> None:
    group = led(1)
    group.propose(1, b"x")
    group.settle()
    for node in (2, 3):
        group.add(member(node), Membership())
        group[1].propose_membership(group[1].membership.with_learner(member(node)))
        group.settle()
        group[1].propose_membership(group[1].membership.with_voter(member(node)))
        group.settle()
    group.beat(1)

    assert group[3].membership == voters(1, 2, 3)
    assert group.applied(3) == [b"x"]


def test_nothing_to_do_gives_no_bundle() -> None:
    group = led(1, 2, 3)

    assert group[1].ready() is None
    group[2].tick()
    assert group[2].ready() is None


def test_a_change_of_leader_is_told_once() -> None:
    group = led(1, 2, 3)
    group[2].step(Heartbeat(NodeId(3), NodeId(2), Term(4), EntryIndex(0), 0))

    effects = group[2].ready()

    assert effects is not None
    assert effects.leadership == Leadership(Role.FOLLOWER, Term(4), NodeId(3))
    assert group[2].ready() is None


def test_a_newer_term_is_revealed_only_after_it_is_persisted_5_1() -> None:
    group = led(1, 2, 3)
    group[2].step(Heartbeat(NodeId(3), NodeId(2), Term(4), EntryIndex(0), 0))
    group.flush(2)
    assert group.wire == []

    group.sync(2)

    assert [message.term for message in group.wire] == [4]


def test_a_replica_restarts_with_term_vote_and_log() -> None:
    group = led(1, 2, 3)
    group.propose(1, b"x")
    group.settle()
    before = (group[2].term, group[2].vote, group[2].last_index, group[2].membership)

    group.crash(2)
    group.restart(2)

    assert (group[2].term, group[2].vote, group[2].last_index, group[2].membership) == before
    assert group[2].role is Role.FOLLOWER


def test_entries_of_a_term_whose_hard_state_was_lost_still_raise_the_term() -> None:
    group = led(1, 2, 3)
    host = group.hosts[2]
    host.crash()
    host.hard_state = type(host.hard_state)(Term(0), None, EntryIndex(0))

    host.start()

    assert (host.node.term, host.node.vote) == (1, None)


def test_entries_are_applied_in_order_and_once() -> None:
    group = led(1, 2, 3)
    for count in range(20):
        group.propose(1, b"%d" % count)
        if count % 3 == 0:
            group.settle()
    group.settle()

    indexes = [entry.index for entry in group.hosts[1].applied]
    assert indexes == list(range(1, 22))


def test_applying_what_was_not_given_out_is_an_impossible_state() -> None:
    group = led(1)

    with pytest.raises(AssertionError):
        group[1].applied(EntryIndex(99))


def test_payloads_are_passed_by_reference() -> None:
    group = led(1, 2, 3)
    payload = bytearray(b"x" * 100)
    group[1].propose(EntryKind.STATE, payload)
    effects = group[1].ready()

    assert effects is not None
    assert effects.write is not None
    assert effects.write.entries[0].payload is payload
    for message in effects.messages:
        assert message.entries[0].payload is payload  # type: ignore[union-attr]


def test_messages_that_wait_for_a_stalled_disk_are_limited() -> None:
    group = Group(1, 2, 3)
    for number in range(HELD_MAX + 10):
        group[1].step(Heartbeat(NodeId(2), NodeId(1), Term(1), EntryIndex(0), number))

    group.sync(1)

    assert len(group.wire) == HELD_MAX
