"""Accepting entries: section 5.3 of the paper."""

import pytest

from penstock.errors import Corruption
from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import (
    Append,
    AppendResponse,
    Entry,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    Snapshot,
)

from .group import Group, entry, voters


def append(
    *entries: Entry, term: int = 1, prev: tuple[int, int] = (0, 0), commit: int = 0
) -> Append:
    """An append of node 2 to node 1; `prev` is the index and term before the entries."""
    return Append(
        NodeId(2),
        NodeId(1),
        Term(term),
        EntryIndex(prev[0]),
        Term(prev[1]),
        EntryIndex(commit),
        entries,
    )


def answers(group: Group) -> list[AppendResponse]:
    wire, group.wire = group.wire, []
    return [message for message in wire if isinstance(message, AppendResponse)]


def follower(*entries: Entry, term: int = 1) -> Group:
    """A group whose node 1 holds these entries on disk."""
    group = Group(1, 2, 3)
    group[1].step(append(*entries, term=term))
    group.sync(1)
    group.wire.clear()
    return group


def test_entries_are_acknowledged_only_when_persisted_5_3() -> None:
    group = follower()

    group[1].step(append(entry(1, 1), entry(2, 1)))
    group.flush(1)
    assert answers(group) == []

    group.sync(1)
    assert [(a.index, a.is_refused) for a in answers(group)] == [(2, False)]


def test_appends_that_arrive_during_one_sync_share_one_answer() -> None:
    group = follower()
    group[1].step(append(entry(1, 1)))
    group.flush(1)
    group[1].step(append(entry(2, 1), prev=(1, 1)))
    group[1].step(append(entry(3, 1), prev=(2, 1)))
    group.flush(1)
    assert len(group.hosts[1].writes) == 2

    group.sync(1)

    assert [a.index for a in answers(group)] == [1, 3]


def test_an_append_without_its_predecessor_is_refused_with_the_end_of_the_log_5_3() -> None:
    group = follower(entry(1, 1), entry(2, 1))

    group[1].step(append(entry(6, 1), prev=(5, 1)))
    group.sync(1)

    [answer] = answers(group)
    assert answer.is_refused
    assert (answer.index, answer.hint_index, answer.hint_term) == (5, 2, 1)


def test_a_refusal_skips_the_whole_conflicting_term_5_3() -> None:
    group = follower(entry(1, 1), *(entry(index, 2) for index in range(2, 9)), term=2)

    group[1].step(append(entry(9, 3), term=3, prev=(8, 1)))
    group.sync(1)

    [answer] = answers(group)
    assert (answer.hint_index, answer.hint_term) == (1, 1)


def test_a_conflicting_entry_is_cut_with_all_after_it_5_3() -> None:
    group = follower(entry(1, 1), entry(2, 1), entry(3, 1))

    group[1].step(append(entry(2, 2), term=2, prev=(1, 1)))
    group.sync(1)

    assert group.log(1) == [(1, 1), (2, 2)]
    assert [a.index for a in answers(group)] == [2]


def test_a_late_append_does_not_cut_entries_after_it_5_3() -> None:
    group = follower(entry(1, 1), entry(2, 1), entry(3, 1))

    group[1].step(append(entry(1, 1), entry(2, 1)))
    group.sync(1)

    assert group.log(1) == [(1, 1), (2, 1), (3, 1)]


def test_a_repeated_append_writes_nothing_and_is_answered_again_5_3() -> None:
    group = follower(entry(1, 1), entry(2, 1))

    group[1].step(append(entry(1, 1), entry(2, 1)))
    group.flush(1)

    assert not group.hosts[1].writes
    assert [a.index for a in answers(group)] == [2]


def test_reordered_appends_lead_to_the_same_log_5_3() -> None:
    group = follower()
    first, second = append(entry(1, 1)), append(entry(2, 1), prev=(1, 1))

    group[1].step(second)
    group[1].step(first)
    group[1].step(second)
    group.sync(1)

    assert group.log(1) == [(1, 1), (2, 1)]


def test_an_append_that_overlaps_committed_entries_is_taken_from_there_on() -> None:
    group = follower(entry(1, 1), entry(2, 1))
    group[1].step(append(prev=(2, 1), commit=2))

    group[1].step(append(entry(1, 1), entry(2, 1), entry(3, 1)))
    group.sync(1)

    assert group.log(1) == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.parametrize(
    "late",
    [
        append(term=3, prev=(2, 2)),
        append(entry(3, 3), term=3, prev=(2, 2)),
        append(entry(1, 1), entry(2, 2), term=3),
        append(entry(2, 2), entry(3, 2), entry(4, 3), term=3, prev=(1, 1)),
        InstallSnapshot(
            NodeId(2), NodeId(1), Term(3), Snapshot(EntryIndex(2), Term(2), voters(1, 2, 3))
        ),
    ],
)
def test_a_replica_does_not_follow_a_leader_without_what_is_committed_here_5_4(
    late: Message,
) -> None:
    group = follower(entry(1, 1), entry(2, 1), entry(3, 1))
    group[1].step(append(prev=(3, 1), commit=3))

    with pytest.raises(Corruption, match="is committed here with term 1"):
        group[1].step(late)

    group.sync(1)
    assert group.log(1) == [(1, 1), (2, 1), (3, 1)]
    assert all(answer.index == 0 for answer in answers(group) if answer.term == 3)


def test_commit_follows_the_leader_only_as_far_as_the_logs_are_known_to_agree_5_3() -> None:
    group = follower(entry(1, 1), entry(2, 1), entry(3, 1))

    # The leader of term 2 has committed up to 3, but has compared only entry 1 so far.
    group[1].step(append(term=2, prev=(1, 1), commit=3))

    assert group[1].commit_index == 1


def test_a_heartbeat_commits_only_what_was_compared_with_this_leader() -> None:
    group = follower(entry(1, 1), entry(2, 1))

    group[1].step(Heartbeat(NodeId(3), NodeId(1), Term(2), EntryIndex(2), 0))

    assert group[1].commit_index == 0


def test_a_heartbeat_answer_repeats_what_is_acknowledged() -> None:
    group = follower(entry(1, 1), entry(2, 1))
    group[1].step(append(entry(3, 1), prev=(2, 1)))
    group.flush(1)

    group[1].step(Heartbeat(NodeId(2), NodeId(1), Term(1), EntryIndex(0), 7))
    group.flush(1)

    [answer] = [message for message in group.wire if isinstance(message, HeartbeatResponse)]
    assert (answer.round, answer.index) == (7, 2)


def test_entries_are_applied_only_when_persisted_here_too() -> None:
    group = follower()
    group[1].step(append(entry(1, 1, b"a"), commit=1))
    group.flush(1)
    assert group[1].commit_index == 1
    assert group.applied(1) == []

    group.sync(1)

    assert group.applied(1) == [b"a"]


def test_a_leader_of_a_newer_term_makes_an_old_acknowledgement_void() -> None:
    group = follower()
    group[1].step(append(entry(1, 1), entry(2, 1)))
    group.flush(1)

    # The new leader has compared nothing yet, so the sync of old entries is nothing to report.
    group[1].step(Heartbeat(NodeId(3), NodeId(1), Term(2), EntryIndex(0), 0))
    group.sync(1)

    assert answers(group) == []
