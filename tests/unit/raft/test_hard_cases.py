"""Known hard cases, step by step. Random search may need long to meet them."""

import pytest

from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import Append, AppendResponse, Entry, Mark, RaftNode, Role

from .group import FIRST, Group, entry, led


class CommitsOldTerms(RaftNode):
    """A planted fault: copies of older terms are counted."""

    def _may_commit_by_counting(self, index: int) -> bool:
        return True


@pytest.mark.parametrize("node_class", [RaftNode, CommitsOldTerms])
def test_a_majority_of_copies_of_an_old_term_may_still_be_overwritten_figure_8(
    node_class: type[RaftNode],
) -> None:
    """Figure 8 of the paper, section 5.4.2, with the entry that opens each term.

    (a) S1 leads and gives its entry only to S2. (b) S5 is elected by S3 and S4 and writes
    another entry at that index. (c) S1 is elected again and copies its old entry to S3: it
    is on a majority and still not committed. (d) S5 is elected once more and overwrites it.
    """
    group = Group(1, 2, 3, 4, 5, node_class=node_class)
    group.elect(1)
    group.beat(1)
    group.cut = {3, 4, 5}
    old = group.propose(1, b"old")
    group.settle()
    group.crash(1)
    group.crash(2)
    group.cut = set()
    win(group, 5, term=2)
    group.sync(5)
    group.wire.clear()
    group.crash(5)
    assert group.log(5) == [(1, 1), (2, 2)]

    group.restart(1)
    group.restart(2)
    win(group, 1, term=4)
    # The old entry reaches a majority, the entry that opens the term stays with its leader.
    group[2].step(append_from(1, 4, (2, 1), to=2))
    group[3].step(append_from(1, 4, (1, 1), entry(old, 1, b"old"), to=3))
    group.sync(2, 3)
    group.deliver()
    assert [(old, 1) in group.log(node) for node in (1, 2, 3)] == [True, True, True]
    is_committed = group[1].commit_index >= old
    assert is_committed is (node_class is CommitsOldTerms)

    group.crash(1)
    group.restart(5)
    win(group, 5, term=5)
    group.settle()
    for node in (2, 3, 4, 5):
        assert group.log(node) == [(1, 1), (2, 2), (3, 5)]


def win(group: Group, node: int, *, term: int) -> None:
    """Carry an election through, and nothing after it."""
    group.expire_leases(*(n for n, host in group.hosts.items() if host.is_up and n != node))
    group[node].step(word_of_term(term - 1, to=node))
    group[node]._campaign(is_transfer=False)
    for _ in range(2):
        group.sync()
        group.deliver()
    assert group[node].leads(Term(term))


def word_of_term(term: int, *, to: int) -> AppendResponse:
    """Any message that makes a replica hear of a newer term."""
    return AppendResponse(
        NodeId(9), NodeId(to), Term(term), EntryIndex(0), True, EntryIndex(0), Term(0), FIRST
    )


def append_from(
    sender: int, term: int, prev: tuple[int, int], *entries: Entry, to: int = 1
) -> Append:
    return Append(
        NodeId(sender),
        NodeId(to),
        Term(term),
        EntryIndex(prev[0]),
        Term(prev[1]),
        EntryIndex(0),
        entries,
    )


class TrustsOldMarks(RaftNode):
    """A planted fault: a sync vouches for whatever has its index now."""

    def persisted(self, mark: Mark) -> None:
        self._log._valid_sequence = 0
        super().persisted(mark)


@pytest.mark.parametrize(("node_class", "is_told"), [(RaftNode, False), (TrustsOldMarks, True)])
def test_a_sync_of_the_first_a_does_not_acknowledge_the_last_a(
    node_class: type[RaftNode], *, is_told: bool
) -> None:
    """ABA appends: entry 1 of term 1, replaced by one of term 2, replaced by that of term 1."""
    group = Group(1, 2, 3, node_class=node_class)
    first = entry(1, 1, b"A")
    group[1].step(append_from(2, 1, (0, 0), first))
    group.flush(1)
    group[1].step(append_from(3, 2, (0, 0), entry(1, 2, b"B")))
    group.flush(1)
    group[1].step(append_from(2, 3, (0, 0), first))
    group.flush(1)
    assert len(group.hosts[1].writes) == 3

    # The hard states of all three writes are saved; of the entries only the first is synced.
    [write, later, last] = group.hosts[1].writes
    group[1].persisted(Mark(last.mark.sequence, EntryIndex(0)))
    group.flush(1)
    group.wire.clear()
    group[1].persisted(write.mark)
    group.flush(1)
    assert bool(group.wire) is is_told

    group.hosts[1].carry_out(write, entries=1)
    group.hosts[1].carry_out(later, entries=1)
    assert group.log(1) == [(1, 2)], "a crash here would leave B on the disk"


def test_a_refusal_after_truncation_finds_the_new_end_of_the_log() -> None:
    """The follower's log shrinks after its first refusal; the leader must follow it down."""
    group = Group(1, 2, 3)
    for node in (1, 2):
        group.hosts[node].crash()
        for index in range(1, 9):
            group.hosts[node].stored.append(entry(index, 1 if index < 3 else 2))
        group.restart(node)
    long_log = [entry(index, 1) for index in range(1, 9)]
    group[3].step(append_from(9, 1, (0, 0), *long_log, to=3))
    group.sync(3)
    group.wire.clear()
    win(group, 1, term=3)
    group.flush(1)
    group.deliver()
    group.flush(3)
    assert any(isinstance(m, AppendResponse) and m.is_refused for m in group.wire)

    # The refusal is on its way when an append of the same term cuts the log at entry 2.
    group[3].step(append_from(1, 3, (1, 1), entry(2, 1), entry(3, 2), to=3))
    group.settle()
    group.beat(1)

    assert group.log(3) == group.log(1)
    assert group[3].commit_index == group[1].commit_index


def test_an_old_refusal_does_not_move_a_follower_back_that_has_advanced() -> None:
    group = led(1, 2, 3)
    group.propose(1, b"x")
    group.settle()

    group[1].step(
        AppendResponse(
            NodeId(2), NodeId(1), Term(1), EntryIndex(1), True, EntryIndex(0), Term(0), FIRST
        )
    )
    group.propose(1, b"y")
    group.flush(1)

    [message] = [m for m in group.sent(Append) if m.to == 2]
    assert isinstance(message, Append)
    assert message.prev_index == 2


@pytest.mark.parametrize("lost", [1, 3])
def test_a_follower_that_lost_what_it_acknowledged_is_filled_again_by_the_same_leader(
    lost: int,
) -> None:
    """Rot in the last flush is cut like a torn write; the leader counts on what was cut."""
    group = led(1, 2, 3)
    for value in (b"a", b"b", b"c"):
        group.propose(1, value)
    group.settle()
    whole = group.log(2)
    assert group[1].followers()[0].match == len(whole)
    group.crash(2)
    claim = (Term(whole[-1][1]), EntryIndex(whole[-1][0]))
    group.hosts[2].doubt = claim
    group.hosts[2].stored.truncate(len(whole) - lost + 1)
    group.restart(2)

    for _ in range(3):
        group.beat(1)

    assert group.log(2) == whole, "nothing was proposed meanwhile"
    assert [follower.match for follower in group[1].followers()] == [len(whole)] * 2
    assert group[2].leader == 1, "no election was needed"


def test_every_message_twice_and_in_reverse_order_leads_to_the_same_log() -> None:
    group = led(1, 2, 3)
    for count in range(10):
        group.propose(1, b"%d" % count)
        group.flush(1)
    for _ in range(30):
        group.wire = list(reversed(group.wire + group.wire))
        group.deliver()
        group.sync()
        if not group.wire:
            group.tick(1)
            group.sync()

    assert group.log(1) == group.log(2) == group.log(3)
    assert group.applied(2) == [b"%d" % count for count in range(10)]


def test_a_vote_request_delayed_from_an_older_election_elects_nobody() -> None:
    group = Group(1, 2, 3)
    group[1]._campaign(is_transfer=False)
    group.sync(1)
    old, group.wire = group.wire, []
    group.tick(2, count=19)
    group.settle()
    group.elect(2)

    group.wire = old
    group.settle()

    assert group[2].role is Role.LEADER
    assert group[1].role is not Role.LEADER


def test_an_acknowledgement_delayed_from_an_older_term_is_not_counted() -> None:
    """Node 2 acknowledged index 2 of term 1; it now means another entry."""
    group = led(1, 2, 3)
    group.cut = {3}
    group.propose(1, b"old")
    group.flush(1)
    group.deliver()
    group.sync(2)
    late = [m for m in group.wire if isinstance(m, AppendResponse)]
    group.wire.clear()
    group.crash(1)
    group.restart(1)
    group.cut = {2}
    group.elect(3)
    group.beat(3)
    group.cut = set()

    for message in late:
        group[1].step(message)
    group.beat(3)

    assert group.log(1) == group.log(2) == group.log(3)
    assert b"old" not in group.applied(1)
