"""The classic protocol: join, sync, heartbeat, leave."""

import struct

import pytest

from penstock.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    PenstockError,
    RebalanceInProgress,
    UnknownMember,
)
from penstock.groups import (
    Alive,
    DescribeGroup,
    GroupDescribed,
    GroupLimits,
    GroupState,
    Joined,
    Leaver,
    Left,
    ListGroups,
    Synced,
)

from .driver import GROUP, Driver


def described(driver: Driver) -> GroupDescribed:
    answer = driver.ask(DescribeGroup(ticket=driver.ticket(), group_id=GROUP))
    assert isinstance(answer, GroupDescribed)
    return answer


def joined(driver: Driver, ticket: int) -> Joined:
    answer = driver.answers[ticket]
    assert isinstance(answer, Joined), answer
    return answer


def stable_pair(driver: Driver) -> tuple[Joined, Joined]:
    """Two members, the first of them leads, in a stable generation 2."""
    first = joined(driver, driver.join())
    second_join = driver.join()
    first = joined(driver, driver.join(first.member_id))
    second = joined(driver, second_join)
    driver.sync(second.member_id, 2)
    driver.sync(first.member_id, 2, {first.member_id: b"one", second.member_id: b"two"})
    return first, second


def test_a_single_member_leads_and_gets_what_it_assigns() -> None:
    driver = Driver()

    member = joined(driver, driver.join())
    sync = driver.sync(member.member_id, 1, {member.member_id: b"all"})

    assert (member.generation, member.leader, member.protocol) == (1, member.member_id, "range")
    assert [m.metadata for m in member.members] == [b"r"]
    assert driver.answers[sync] == Synced("consumer", "range", b"all")
    assert described(driver).state is GroupState.STABLE


def test_only_the_leader_learns_who_the_members_are() -> None:
    driver = Driver()

    leader, follower = stable_pair(driver)

    assert {m.member_id for m in leader.members} == {leader.member_id, follower.member_id}
    assert follower.members == ()
    assert follower.leader == leader.member_id


def test_sync_waits_for_the_leader_and_everyone_gets_their_own_share() -> None:
    driver = Driver()
    leader = joined(driver, driver.join())
    other_join = driver.join()
    driver.join(leader.member_id)
    other = joined(driver, other_join)

    other_sync = driver.sync(other.member_id, 2)
    assert other_sync not in driver.answers
    leader_sync = driver.sync(leader.member_id, 2, {other.member_id: b"b"})

    assert driver.answers[other_sync] == Synced("consumer", "range", b"b")
    assert driver.answers[leader_sync] == Synced("consumer", "range", b"")


def test_a_new_client_is_given_an_id_and_must_join_with_it() -> None:
    driver = Driver()

    refusal = driver.answers[driver.join(must_know_id=True)]
    assert isinstance(refusal, MemberIdRequired)
    member = joined(driver, driver.join(refusal.member_id, must_know_id=True))

    assert member.member_id == refusal.member_id


def test_an_invitation_that_nobody_follows_ends_and_leaves_no_group() -> None:
    driver = Driver()
    refusal = driver.answers[driver.join(must_know_id=True)]
    assert isinstance(refusal, MemberIdRequired)

    driver.advance(10_000)

    assert isinstance(driver.answers[driver.join(refusal.member_id)], UnknownMember)
    assert driver.ask(ListGroups(ticket=driver.ticket())).groups == ()


def test_a_rebalance_waits_for_invited_members() -> None:
    driver = Driver()
    leader, other = stable_pair(driver)
    invitation = driver.answers[driver.join(must_know_id=True)]
    assert isinstance(invitation, MemberIdRequired)

    rejoins = [driver.join(leader.member_id), driver.join(other.member_id)]
    assert not any(ticket in driver.answers for ticket in rejoins)
    driver.join(invitation.member_id)

    assert joined(driver, rejoins[0]).generation == 3
    assert len(joined(driver, rejoins[0]).members) == 3


def test_the_first_rebalance_waits_a_moment_for_others() -> None:
    driver = Driver(GroupLimits(initial_rebalance_ms=100))

    first = driver.join()
    driver.advance(60)
    second = driver.join()
    driver.advance(60)
    assert first not in driver.answers
    driver.advance(100)

    assert joined(driver, first).generation == joined(driver, second).generation == 1


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    driver = Driver(GroupLimits(initial_rebalance_ms=100))
    first = driver.join(rebalance_ms=250)

    for _ in range(5):
        driver.advance(50)
        driver.join(rebalance_ms=250)

    assert joined(driver, first).generation == 1


def test_a_member_that_does_not_rejoin_in_time_is_dropped() -> None:
    driver = Driver()
    leader, other = stable_pair(driver)
    rejoin = driver.join(other.member_id, protocols=(("range", b"new"),))

    for _ in range(4):
        answer = driver.heartbeat(leader.member_id, 2)
        assert isinstance(answer, RebalanceInProgress)
        driver.advance(7_500)

    assert joined(driver, rejoin).leader == other.member_id
    assert [m.member_id for m in joined(driver, rejoin).members] == [other.member_id]
    assert isinstance(driver.heartbeat(leader.member_id, 2), UnknownMember)


def test_a_member_that_joins_and_never_syncs_is_dropped() -> None:
    driver = Driver()
    leader = joined(driver, driver.join())
    driver.join(rebalance_ms=5_000)
    leader_join = driver.join(leader.member_id, rebalance_ms=5_000)
    driver.sync(leader.member_id, joined(driver, leader_join).generation)

    driver.advance(5_000)

    assert isinstance(driver.heartbeat(leader.member_id, 2), RebalanceInProgress)
    assert len(described(driver).members) == 1


def test_a_silent_member_loses_its_session_and_the_rest_rebalance() -> None:
    driver = Driver()
    leader, other = stable_pair(driver)

    driver.advance(6_000)
    assert driver.heartbeat(leader.member_id, 2) == Alive()
    driver.advance(4_000)

    assert isinstance(driver.heartbeat(other.member_id, 2), UnknownMember)
    assert isinstance(driver.heartbeat(leader.member_id, 2), RebalanceInProgress)


@pytest.mark.parametrize("set_ms", [3_600_000, -3_600_000])
def test_sessions_last_as_long_when_somebody_sets_the_clock(set_ms: int) -> None:
    driver = Driver()
    leader, other = stable_pair(driver)

    driver.advance(6_000)
    driver.clock_set_ms = set_ms
    assert driver.heartbeat(leader.member_id, 2) == Alive()
    driver.advance(3_000)
    assert driver.heartbeat(other.member_id, 2) == Alive()
    driver.advance(7_500)

    assert isinstance(driver.heartbeat(leader.member_id, 2), UnknownMember)
    assert isinstance(driver.heartbeat(other.member_id, 2), RebalanceInProgress)


def test_a_waiting_member_needs_no_heartbeat() -> None:
    driver = Driver()
    leader, other = stable_pair(driver)
    rejoin = driver.join(other.member_id, protocols=(("range", b"new"),), session_ms=6_000)

    driver.advance(9_000)
    driver.join(leader.member_id)

    assert joined(driver, rejoin).generation == 3


def test_a_follower_that_joins_again_unchanged_disturbs_nobody() -> None:
    driver = Driver()
    leader, other = stable_pair(driver)

    again = joined(driver, driver.join(other.member_id))

    assert again.generation == 2
    assert driver.heartbeat(leader.member_id, 2) == Alive()


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    driver = Driver()
    leader, other = stable_pair(driver)

    driver.join(leader.member_id)

    assert isinstance(driver.heartbeat(other.member_id, 2), RebalanceInProgress)


def test_those_who_wait_for_an_assignment_are_called_when_someone_joins() -> None:
    driver = Driver()
    leader = joined(driver, driver.join())
    other_join = driver.join()
    driver.join(leader.member_id)
    sync = driver.sync(joined(driver, other_join).member_id, 2)

    driver.join()

    assert isinstance(driver.answers[sync], RebalanceInProgress)
    assert isinstance(driver.answers[driver.sync(leader.member_id, 2)], RebalanceInProgress)


def test_the_last_member_leaves_an_empty_group_with_a_new_generation() -> None:
    driver = Driver()
    leader, other = stable_pair(driver)

    answer = driver.leave(Leaver(leader.member_id), Leaver("stranger"), Leaver(other.member_id))

    assert isinstance(answer, Left)
    assert [type(result) for result in answer.results] == [type(None), UnknownMember, type(None)]
    assert described(driver).state is GroupState.EMPTY
    assert joined(driver, driver.join()).generation == 4


def test_requests_of_another_generation_are_refused() -> None:
    driver = Driver()
    leader, _ = stable_pair(driver)

    assert isinstance(driver.heartbeat(leader.member_id, 1), IllegalGeneration)
    assert isinstance(driver.answers[driver.sync(leader.member_id, 3)], IllegalGeneration)


def test_a_group_has_members_of_one_type_with_a_common_protocol() -> None:
    driver = Driver()
    stable_pair(driver)

    for change in ({"protocol_type": "connect"}, {"protocols": (("sticky", b""),)}):
        assert isinstance(driver.answers[driver.join(**change)], InconsistentGroupProtocol)


def test_the_protocol_that_most_members_prefer_is_chosen() -> None:
    driver = Driver(GroupLimits(initial_rebalance_ms=100))
    tickets = [
        driver.join(protocols=(("range", b""), ("sticky", b""))),
        driver.join(protocols=(("sticky", b""), ("range", b""))),
        driver.join(protocols=(("new", b""), ("sticky", b""), ("range", b""))),
    ]

    driver.advance(200)

    assert {joined(driver, ticket).protocol for ticket in tickets} == {"sticky"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"group_id": ""}, InvalidGroupId),
        ({"session_ms": 5_999}, InvalidSessionTimeout),
        ({"session_ms": 1_800_001}, InvalidSessionTimeout),
        ({"protocols": ()}, InconsistentGroupProtocol),
        ({"member_id": "stranger"}, UnknownMember),
        ({"member_id": "stranger", "instance_id": "i"}, UnknownMember),
    ],
)
def test_a_join_that_cannot_be_accepted_leaves_no_group(
    change: dict[str, object], error: type[PenstockError]
) -> None:
    driver = Driver()

    assert isinstance(driver.answers[driver.join(**change)], error)
    assert driver.ask(ListGroups(ticket=driver.ticket())).groups == ()


def test_a_full_group_refuses_more_members_and_keeps_those_it_has() -> None:
    driver = Driver(GroupLimits(initial_rebalance_ms=0, members_max=2))
    leader, _ = stable_pair(driver)

    assert isinstance(driver.answers[driver.join()], GroupMaxSizeReached)
    assert driver.heartbeat(leader.member_id, 2) == Alive()


def static_pair(driver: Driver) -> tuple[Joined, Joined]:
    first = joined(driver, driver.join(instance_id="one"))
    second_join = driver.join(instance_id="two")
    first = joined(driver, driver.join(first.member_id, instance_id="one"))
    second = joined(driver, second_join)
    driver.sync(second.member_id, 2, instance_id="two")
    shares = {first.member_id: b"1", second.member_id: b"2"}
    driver.sync(first.member_id, 2, shares, instance_id="one")
    return first, second


def test_a_static_member_that_restarts_gets_its_assignment_back_without_a_rebalance() -> None:
    driver = Driver()
    first, second = static_pair(driver)

    back = joined(driver, driver.join(instance_id="two"))
    sync = driver.sync(back.member_id, 2, instance_id="two")

    assert (back.generation, back.leader) == (2, first.member_id)
    assert driver.answers[sync] == Synced("consumer", "range", b"2")
    assert driver.heartbeat(first.member_id, 2, "one") == Alive()
    assert isinstance(driver.heartbeat(second.member_id, 2, "two"), FencedInstanceId)


def test_a_static_leader_that_restarts_is_told_to_skip_the_assignment() -> None:
    driver = Driver()
    first, _ = static_pair(driver)

    old_client = joined(driver, driver.join(instance_id="one"))
    new_client = joined(driver, driver.join(instance_id="one", can_skip_assignment=True))

    assert (old_client.leader, old_client.members) == (first.member_id, ())
    assert new_client.leader == new_client.member_id
    assert new_client.skip_assignment
    assert len(new_client.members) == 2


def test_a_static_member_that_is_late_for_a_rebalance_stays_until_its_session_ends() -> None:
    driver = Driver()
    first, _ = static_pair(driver)
    rejoin = driver.join(first.member_id, instance_id="one", rebalance_ms=5_000)
    for _ in range(3):
        driver.heartbeat("m2", 2, "two")
        driver.advance(9_999)

    assert rejoin not in driver.answers
    driver.advance(9_999)
    assert [m.instance_id for m in joined(driver, rejoin).members] == ["one"]


def test_a_static_member_can_be_removed_by_its_instance_id_alone() -> None:
    driver = Driver()
    _, second = static_pair(driver)

    answer = driver.leave(Leaver("", "nobody"), Leaver("someone else", "two"), Leaver("", "two"))

    assert isinstance(answer, Left)
    kinds = [type(result) for result in answer.results]
    assert kinds == [UnknownMember, FencedInstanceId, type(None)]
    assert second.member_id not in {m.member_id for m in described(driver).members}


def test_a_member_whose_answer_was_lost_learns_its_generation_again() -> None:
    driver = Driver()
    leader = joined(driver, driver.join())

    again = joined(driver, driver.join(leader.member_id))

    assert again == leader


def test_subscriptions_of_classic_consumers_are_understood() -> None:
    driver = Driver()
    metadata = struct.pack(">hih2si", 1, 1, 2, b"t1", -1)

    member = joined(driver, driver.join(protocols=(("range", metadata),)))
    driver.sync(member.member_id, 1)

    group = driver.shard._coordinator.groups[GROUP]
    assert group.is_subscribed("t1", None)
    assert not group.is_subscribed("t2", None)
