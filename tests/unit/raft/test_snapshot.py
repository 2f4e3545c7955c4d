"""Snapshots for followers whose entries are gone: section 7 of the paper."""

from penstock.ids import EntryIndex, NodeId, Term
from penstock.raft import InstallSnapshot, Membership, ProgressState, Role, Snapshot

from .group import SETTINGS, Group, led, member, voters


def behind() -> Group:
    """Node 3 has missed entries that nodes 1 and 2 have compacted away."""
    group = led(1, 2, 3)
    group.cut = {3}
    for payload in (b"a", b"b", b"c"):
        group.propose(1, payload)
        group.settle()
    group.beat(1)
    for node in (1, 2):
        group.hosts[node].stored.compact(3)
    group.cut = set()
    return group


def state_of(group: Group, node: int) -> ProgressState:
    return next(s.state for s in group[1].followers() if s.node == node)


def offered(group: Group) -> InstallSnapshot:
    offer = group.hosts[3].fetching
    assert offer is not None
    return offer


def test_a_follower_whose_entries_are_gone_is_offered_a_snapshot_7() -> None:
    group = behind()

    group.beat(1)

    assert offered(group).snapshot == Snapshot(EntryIndex(3), Term(1), voters(1, 2, 3))
    assert state_of(group, 3) is ProgressState.SNAPSHOT


def test_an_installed_snapshot_is_acknowledged_and_entries_follow_7() -> None:
    group = behind()
    group.beat(1)

    assert group[3].snapshot_fetched(offered(group))
    group.settle()
    group.beat(1)

    assert group[3].commit_index == 4
    assert group.log(3) == [(4, 1)]
    assert state_of(group, 3) is ProgressState.REPLICATE


def test_a_snapshot_is_acknowledged_only_when_persisted_7() -> None:
    group = behind()
    group.beat(1)
    group[3].snapshot_fetched(offered(group))
    group.flush(3)
    assert group.wire == []

    group.tick(1)
    group.flush(1)
    group.deliver()
    group.flush(3)
    group.deliver()

    assert state_of(group, 3) is ProgressState.SNAPSHOT


def test_a_crash_before_the_snapshot_is_persisted_leaves_the_old_log_7() -> None:
    group = behind()
    group.beat(1)
    group[3].snapshot_fetched(offered(group))
    group.flush(3)

    group.crash(3)
    group.restart(3)

    assert group.log(3) == [(1, 1)]


def test_an_offer_that_was_lost_with_a_crash_is_repeated_7() -> None:
    group = behind()
    group.beat(1)
    group.crash(3)
    group.restart(3)

    for _ in range(SETTINGS.election_ticks + 1):
        group.beat(1)

    assert offered(group).snapshot.index == 3


def test_a_repeated_offer_does_not_start_a_second_fetch_7() -> None:
    group = behind()
    group.beat(1)
    first = offered(group)
    group.hosts[3].fetching = None

    for _ in range(SETTINGS.election_ticks + 1):
        group.beat(1)

    assert group.hosts[3].fetching is None
    assert group[3].snapshot_fetched(first)


def test_a_failed_fetch_lets_the_leader_offer_again_7() -> None:
    group = behind()
    group.beat(1)
    offer = offered(group)
    group.hosts[3].fetching = None
    group[3].snapshot_failed(offer)
    group.settle()
    assert state_of(group, 3) is ProgressState.PROBE

    group.beat(1)

    assert offered(group).snapshot.index == 3


def test_a_snapshot_that_arrives_too_late_is_thrown_away_7() -> None:
    group = behind()
    group.beat(1)
    offer = offered(group)
    # A leader of a newer term offers its own snapshot, and that one is fetched first.
    group[3].step(InstallSnapshot(NodeId(2), NodeId(3), Term(2), offer.snapshot))
    group.sync(3)
    assert group[3].snapshot_fetched(offered(group))
    group.sync(3)

    assert not group[3].snapshot_fetched(offer)
    assert group[3].commit_index == 3


def test_a_snapshot_of_entries_that_are_present_only_commits_them_7() -> None:
    group = led(1, 2, 3)
    group.propose(1, b"a")
    group.settle()
    assert group[3].commit_index == 1

    group[3].step(
        InstallSnapshot(
            NodeId(1), NodeId(3), Term(1), Snapshot(EntryIndex(2), Term(1), voters(1, 2, 3))
        )
    )
    group.settle()

    assert group.hosts[3].fetching is None
    assert group.applied(3) == [b"a"]
    assert group.log(3) == [(1, 1), (2, 1)]


def test_a_snapshot_brings_its_membership_7() -> None:
    group = behind()
    group.add(member(4), Membership())
    group[1].propose_membership(voters(1, 2, 3).with_learner(member(4)))
    group.settle()
    group.beat(1)

    offer = group.hosts[4].fetching
    assert offer is not None
    assert group[4].snapshot_fetched(offer)
    assert group[4].membership == voters(1, 2, 3)

    group.settle()
    assert group[4].membership == voters(1, 2, 3).with_learner(member(4))


def test_a_replica_with_an_unfinished_snapshot_does_not_read_its_old_log_7() -> None:
    group = behind()
    group.beat(1)
    group[3].snapshot_fetched(offered(group))
    group.flush(3)

    assert group[3]._log.term_at(1) is None
    assert group[3]._log.term_at(3) == 1

    group.sync(3)
    assert group[3].role is Role.FOLLOWER
    assert group[3].persisted_index == 3
