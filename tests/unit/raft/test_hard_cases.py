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
    group[5]._campaign(is_transfer=False)
    exchange_votes(group)
    group.sync(5)
    group.wire.clear()
    group.crash(5)

    group.restart(1)
    group.restart(2)
    group[1].step(heartbeat_of_term(3))
    group[1]._campaign(is_transfer=False)
    exchange_votes(group)
    assert group[1].role is Role.LEADER
    # The copy of the old entry reaches a majority, the entry that opens the term nobody.
    for node in (2, 3):
        group[1].step(accepted(node, term=4, index=old))

    is_committed = group[1].commit_index >= old
    assert is_committed is (node_class is CommitsOldTerms)

    group.crash(1)
    group.wire.clear()
    group.restart(5)
    for node in (2, 3, 4):
        group[node].leader = None
    group[5].step(heartbeat_of_term(4, to=5))
    group[5].leader = None
    group[5]._campaign(is_transfer=False)
    group.settle()
    assert group[5].role is Role.LEADER
    # What had been on a majority is gone everywhere.
    for node in (3, 4, 5):
        assert (old, 1) not in group.log(node)


def exchange_votes(group: Group) -> None:
    """Carry an election through, and nothing after it."""
    group.sync()
    group.deliver()
    group.sync()
    group.deliver()


def heartbeat_of_term(term: int, to: int = 1) -> AppendResponse:
    """Any message that makes a replica hear of a newer term."""
    return AppendResponse(
        NodeId(9), NodeId(to), Term(term), EntryIndex(0), True, EntryIndex(0), Term(0), FIRST
    )


def accepted(sender: int, *, term: int, index: int) -> AppendResponse:
    return AppendResponse(
        NodeId(sender),
        NodeId(1),
        Term(term),
        EntryIndex(index),
        False,
        EntryIndex(0),
        Term(0),
        FIRST,
    )


def append_from(sender: int, term: int, prev: tuple[int, int], *entries: Entry) -> Append:
    return Append(
        NodeId(sender),
        NodeId(1),
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
    """The follower's log shrinks between two refusals; the leader must follow it down."""
    group = led(1, 2, 3)
    group.cut = {3}
    for payload in (b"a", b"b", b"c"):
        group.propose(1, payload)
    group.settle()
    group.cut = {1}
    # Node 3 holds entries of an old leader that conflict from index 2 on.
    conflicting = [entry(index, 2, b"z") for index in range(2, 9)]
    group[3].step(
        Append(NodeId(9), NodeId(3), Term(2), EntryIndex(1), Term(1), EntryIndex(0), conflicting)
    )
    group.sync(3)
    group.wire.clear()
    group[3].step(
        Append(
            NodeId(8),
            NodeId(3),
            Term(3),
            EntryIndex(1),
            Term(1),
            EntryIndex(0),
            [entry(2, 3, b"y")],
        )
    )
    group.sync(3)
    assert group.log(3) == [(1, 1), (2, 3)]
    group.wire.clear()
    group.cut = set()
    group[3].leader = None

    group.crash(2)
    group.hosts[2].hard_state = group.hosts[3].hard_state
    group.restart(2)
    group.hosts[3].crash()
    group.hosts[3].stored.truncate(2)
    group.hosts[3].start()
    group.elect(2)
    group.beat(2)

    assert group.log(3) == group.log(2)


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
