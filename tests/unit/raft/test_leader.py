"""Replication and commit: sections 5.3 and 5.4.2 of the paper, 10.2 of the thesis."""

from dataclasses import replace

import pytest
from msgspec import structs

from penstock.errors import NotLeader, Unavailable
from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import (
    Append,
    AppendResponse,
    EntryKind,
    Heartbeat,
    ProgressState,
    RaftNode,
    Role,
)

from .group import FIRST, SETTINGS, Group, entry, led


def appends(group: Group, to: int) -> list[Append]:
    return [m for m in group.wire if isinstance(m, Append) and m.to == to]


def states(group: Group) -> dict[int, ProgressState]:
    return {status.node: status.state for status in group[1].followers()}


def test_a_term_opens_with_an_empty_entry_8() -> None:
    group = led(1, 2, 3)

    opening = group.hosts[1].stored.entry(1)
    assert (opening.kind, opening.term, opening.size_bytes) == (EntryKind.NOOP, 1, 0)
    assert group[1].commit_index == 1


def test_a_proposal_is_committed_on_a_majority_and_applied_everywhere_5_3() -> None:
    group = led(1, 2, 3)

    index = group.propose(1, b"x")
    group.settle()
    group.beat(1)

    assert index == 2
    assert [group.applied(node) for node in (1, 2, 3)] == [[b"x"]] * 3


def test_only_the_leader_takes_proposals_5_3() -> None:
    group = led(1, 2, 3)

    with pytest.raises(NotLeader):
        group.propose(2, b"x")


def test_the_leader_sends_while_it_writes_10_2_1() -> None:
    group = led(1, 2, 3)
    group.propose(1, b"x")

    group.flush(1)

    assert len(group.hosts[1].writes) == 1
    assert [len(appends(group, to)) for to in (2, 3)] == [1, 1]


def test_the_leader_counts_itself_only_once_persisted_10_2_1() -> None:
    group = led(1, 2, 3)
    group.cut = {3}
    group.propose(1, b"x")
    group.flush(1)
    group.deliver()
    group.sync(2)
    group.deliver()
    assert group[1].commit_index == 1

    group.sync(1)

    assert group[1].commit_index == 2


def test_followers_may_commit_an_entry_that_the_leader_has_not_persisted_10_2_1() -> None:
    group = led(1, 2, 3)
    group.propose(1, b"x")
    group.flush(1)
    group.deliver()
    group.sync(2, 3)
    group.deliver()
    group.flush(1)

    assert group[1].commit_index == 2
    assert group.applied(1) == []


def test_proposals_between_two_bundles_travel_together_10_2_2() -> None:
    group = led(1, 2, 3)
    for payload in (b"a", b"b", b"c"):
        group.propose(1, payload)

    group.flush(1)

    assert [len(message.entries) for message in appends(group, 2)] == [3]


def test_appends_are_pipelined_without_waiting_for_answers_10_2_2() -> None:
    group = led(1, 2, 3)

    for payload in (b"a", b"b", b"c"):
        group.propose(1, payload)
        group.flush(1)

    assert [message.prev_index for message in appends(group, 2)] == [1, 2, 3]


def test_an_append_holds_at_most_its_limit_of_bytes_and_at_least_one_entry() -> None:
    group = led(1, 2, 3, settings=replace(SETTINGS, append_bytes_max=10))
    for size_bytes in (4, 4, 4, 30, 1):
        group.propose(1, bytes(size_bytes))

    group.flush(1)

    assert [len(message.entries) for message in appends(group, 2)] == [2, 1, 1, 1]


def test_a_follower_that_does_not_answer_gets_a_window_of_appends_and_no_more() -> None:
    group = led(1, 2, 3, settings=replace(SETTINGS, inflight_messages_max=3))
    for _ in range(10):
        group.propose(1, b"x")
        group.flush(1)

    assert len(appends(group, 2)) == 3

    group.settle()
    assert group[1].commit_index == 11


def test_the_window_is_limited_in_bytes_too() -> None:
    group = led(1, 2, 3, settings=replace(SETTINGS, inflight_bytes_max=100))
    for _ in range(10):
        group.propose(1, bytes(60))
        group.flush(1)

    assert len(appends(group, 2)) == 2


def test_proposals_are_refused_when_too_much_waits_for_the_disk() -> None:
    group = led(1, 2, 3, settings=replace(SETTINGS, tail_bytes_max=100))
    group.propose(1, bytes(300))

    with pytest.raises(Unavailable):
        group.propose(1, b"x")

    group.settle()
    assert group.propose(1, b"x") == 3


def test_a_follower_that_is_behind_gets_entries_from_the_stored_log() -> None:
    group = led(1, 2, 3)
    group.cut = {3}
    for payload in (b"a", b"b", b"c"):
        group.propose(1, payload)
        group.settle()
    group.cut = set()

    group.beat(1)
    group.beat(1)

    assert group.log(3) == group.log(1)
    assert group.applied(3) == [b"a", b"b", b"c"]


def test_a_range_from_the_stored_log_is_void_after_the_term_10_2() -> None:
    group = led(1, 2, 3)
    group.cut = {3}
    group.propose(1, b"a")
    group.settle()
    group.cut = set()
    group[1].unreachable(NodeId(3))
    effects = group[1].ready()
    assert effects is not None
    [order] = effects.replications

    group[1].step(Heartbeat(NodeId(2), NodeId(1), Term(9), EntryIndex(0), 0))

    assert not group[1].leads(order.term)


def test_a_lost_append_comes_to_light_with_the_next_heartbeat_5_3() -> None:
    group = led(1, 2, 3)
    group.propose(1, b"x")
    group.flush(1)
    group.wire = [message for message in group.wire if message.to != 3]
    group.settle()
    assert group.log(3) == [(1, 1)]

    group.beat(1)

    assert group.log(3) == [(1, 1), (2, 1)]


def test_a_lost_answer_is_made_good_by_a_heartbeat() -> None:
    group = led(1, 2, 3)
    group.cut = {3}
    group.propose(1, b"x")
    group.flush(1)
    group.deliver()
    group.sync(2, 1)
    group.wire.clear()
    assert group[1].commit_index == 1

    group.beat(1)

    assert group[1].commit_index == 2


def test_followers_with_conflicting_logs_are_brought_in_line_figure_7() -> None:
    """Logs of the paper's figure 7: missing entries, extra entries, and both."""
    leader_terms = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
    others = {
        2: [1, 1, 1, 4, 4, 5, 5, 6, 6],
        3: [1, 1, 1, 4],
        4: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
        5: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
        6: [1, 1, 1, 4, 4, 4, 4],
        7: [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
    }
    group = Group(1, 2, 3, 4, 5, 6, 7)
    for node, terms in ({1: leader_terms} | others).items():
        fill(group, node, terms)

    group[1]._campaign(is_transfer=False)
    group.settle()
    group.beat(1)

    assert group[1].leads(Term(8))
    for node in others:
        assert group.log(node) == group.log(1)


def fill(group: Group, node: int, terms: list[int]) -> None:
    """Give a node a log of these terms, as if it had been received long ago."""
    host = group.hosts[node]
    host.crash()
    for index, term in enumerate(terms, start=1):
        host.stored.append(entry(index, term, b"%d" % term))
    host.hard_state = structs.replace(host.hard_state, term=Term(7))
    host.start()


def test_refusals_skip_a_term_at_a_time_5_3() -> None:
    group = Group(1, 2, 3)
    fill(group, 1, [1] * 2 + [3] * 50)
    fill(group, 2, [1] * 2 + [2] * 50)
    fill(group, 3, [1] * 2)

    group[1]._campaign(is_transfer=False)
    group.settle()

    refusals = [m for m in group.delivered if isinstance(m, AppendResponse) and m.is_refused]
    assert sum(message.sender == 2 for message in refusals) == 1
    assert group.log(2) == group.log(3) == group.log(1)


def test_an_old_term_is_not_committed_by_counting_5_4_2() -> None:
    group = Group(1, 2, 3)
    fill(group, 1, [1, 2])
    fill(group, 2, [1, 2])
    group.cut = {3}
    group[1]._campaign(is_transfer=False)
    group.sync()
    group.deliver()
    group.sync()
    group.deliver()
    assert group[1].role is Role.LEADER

    # Node 2 confirms the old entries only.
    group[1].step(
        AppendResponse(
            NodeId(2), NodeId(1), Term(8), EntryIndex(2), False, EntryIndex(0), Term(0), FIRST
        )
    )
    assert group[1].commit_index == 0

    group.settle()
    assert group[1].commit_index == 3


def test_a_five_member_group_commits_with_three_5_3() -> None:
    group = led(1, 2, 3, 4, 5)
    group.cut = {4, 5}

    group.propose(1, b"x")
    group.settle()
    assert group.applied(1) == [b"x"]

    group.cut = {3, 4, 5}
    group.propose(1, b"y")
    group.settle()
    assert group.applied(1) == [b"x"]


def test_a_broken_link_makes_the_leader_probe_from_what_is_known() -> None:
    group = led(1, 2, 3)
    group.propose(1, b"x")
    group.flush(1)
    group.wire.clear()
    assert states(group)[2] is ProgressState.REPLICATE

    group[1].unreachable(NodeId(2))
    assert states(group)[2] is ProgressState.PROBE

    group.settle()
    assert group.log(2) == group.log(1)


def test_an_idle_leader_sends_nothing_but_heartbeats() -> None:
    group = led(1, 2, 3)

    for _ in range(5):
        group.tick(1)
        group.flush(1)
        assert {type(message) for message in group.wire} == {Heartbeat}
        group.settle()


def test_a_leader_that_crashes_before_persisting_loses_only_what_nobody_holds() -> None:
    group = led(1, 2, 3)
    group.propose(1, b"lost")
    group.flush(1)
    group.wire.clear()
    group.crash(1)
    group.elect(2)
    group.propose(2, b"kept")
    group.settle()

    group.restart(1)
    group.beat(2)
    group.beat(2)

    assert group.applied(1) == group.applied(2) == [b"kept"]


def test_an_entry_that_only_followers_persisted_survives_the_leader_10_2_1() -> None:
    group = led(1, 2, 3)
    group.propose(1, b"kept")
    group.flush(1)
    group.deliver()
    group.sync(2, 3)
    group.wire.clear()
    group.crash(1)

    group.elect(2)
    group.restart(1)
    group.beat(2)
    group.beat(2)

    assert [group.applied(node) for node in (1, 2, 3)] == [[b"kept"]] * 3


def test_two_leaders_in_one_term_are_an_impossible_state() -> None:
    group = led(1, 2, 3)

    with pytest.raises(AssertionError, match="two leaders"):
        group[1].step(Heartbeat(NodeId(2), NodeId(1), Term(1), EntryIndex(0), 0))


def test_equal_inputs_give_equal_outputs() -> None:
    def history() -> list[object]:
        group = led(1, 2, 3)
        for payload in (b"a", b"b"):
            group.propose(1, payload)
            group.flush(1)
        return [group.wire, group.log(1), [node.last_index for node in nodes(group)]]

    assert history() == history()


def nodes(group: Group) -> list[RaftNode]:
    return [host.node for host in group.hosts.values()]
