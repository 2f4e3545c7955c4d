"""The three states of a follower, seen by its leader."""

from penstock.ids import EntryIndex
from penstock.raft import ProgressState, RaftSettings
from penstock.raft.progress import Progress

from .group import member

SETTINGS = RaftSettings(inflight_messages_max=2, inflight_bytes_max=100)


def probing(next_index: int = 10) -> Progress:
    return Progress(member(2), next_index, SETTINGS)


def replicating(match: int = 9) -> Progress:
    progress = probing(match + 1)
    progress.asked()
    progress.accepted(EntryIndex(match))
    return progress


def test_a_probe_waits_for_its_answer() -> None:
    progress = probing()
    assert progress.has_room

    progress.sent(12, 10)

    assert not progress.has_room
    assert progress.next == 10


def test_an_accepted_probe_opens_the_window() -> None:
    progress = probing()
    progress.sent(12, 10)

    assert progress.accepted(EntryIndex(11))

    assert progress.state is ProgressState.REPLICATE
    assert (progress.match, progress.next) == (11, 12)


def test_a_refused_probe_goes_back_to_the_hint() -> None:
    progress = probing()
    progress.sent(12, 10)

    assert progress.refused(9, next_index=4)

    assert progress.next == 4
    assert progress.has_room


def test_a_refusal_always_moves_back_and_never_below_what_is_known() -> None:
    progress = probing()
    progress.refused(9, next_index=50)
    assert progress.next == 9

    progress.match = EntryIndex(7)
    progress.refused(8, next_index=1)
    assert progress.next == 8


def test_an_old_refusal_of_a_probe_is_ignored() -> None:
    progress = probing()

    assert not progress.refused(5, next_index=2)
    assert progress.next == 10


def test_the_window_is_limited_in_messages_and_freed_by_answers() -> None:
    progress = replicating()
    progress.sent(11, 1)
    progress.sent(12, 1)
    assert not progress.has_room

    progress.accepted(EntryIndex(10))

    assert progress.has_room
    assert progress.next == 12


def test_the_window_is_limited_in_bytes() -> None:
    progress = replicating()

    progress.sent(11, 100)

    assert not progress.has_room


def test_a_refusal_while_replicating_leads_back_to_a_probe_after_the_match() -> None:
    progress = replicating()
    progress.sent(11, 1)
    progress.sent(12, 1)

    assert not progress.refused(9, next_index=1)
    assert progress.refused(10, next_index=1)

    assert progress.state is ProgressState.PROBE
    assert progress.next == 10


def test_a_follower_that_may_have_restarted_is_compared_from_its_match_on() -> None:
    progress = replicating()
    progress.sent(11, 1)

    progress.restarted()

    assert progress.state is ProgressState.PROBE
    assert (progress.match, progress.next) == (9, 10)
    assert progress.has_room
    assert not progress.accepted(EntryIndex(9))
    assert progress.state is ProgressState.REPLICATE


def test_a_follower_that_refuses_what_it_acknowledged_is_known_to_hold_nothing() -> None:
    progress = replicating()
    progress.restarted()

    assert progress.refused(9, next_index=7)

    assert (progress.match, progress.next) == (0, 7)
    assert progress.accepted(EntryIndex(8))
    assert (progress.match, progress.state) == (8, ProgressState.REPLICATE)


def test_a_snapshot_stops_everything_until_it_is_installed() -> None:
    progress = probing()
    progress.await_snapshot(20)
    assert not progress.has_room

    progress.accepted(EntryIndex(15))
    assert progress.state is ProgressState.SNAPSHOT
    progress.accepted(EntryIndex(20))

    assert progress.state is ProgressState.REPLICATE
    assert progress.next == 21


def test_a_refused_snapshot_is_not_offered_again_at_once() -> None:
    progress = probing()
    progress.await_snapshot(20)

    assert not progress.refused(9, next_index=1)
    assert progress.refused(20, next_index=1)

    assert progress.state is ProgressState.PROBE
    assert not progress.has_room
