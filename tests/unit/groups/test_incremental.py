"""The incremental protocol: one heartbeat, assignments from the server."""

import pytest

from penstock.errors import (
    CoordinatorLoading,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    GroupNotFound,
    InconsistentGroupProtocol,
    InvalidRequest,
    InvalidSubscription,
    PenstockError,
    UnknownMember,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from penstock.groups import (
    Assignment,
    ConsumerGroupDescribed,
    DescribeConsumerGroup,
    GroupLimits,
    GroupState,
    Leaver,
    Reconciled,
)

from .driver import GROUP, LIMITS, Driver, topic_id, topics

T1, T2 = topic_id(1), topic_id(2)


def reconciled(driver: Driver, ticket: int) -> Reconciled:
    answer = driver.answers[ticket]
    assert isinstance(answer, Reconciled), answer
    return answer


def described(driver: Driver) -> ConsumerGroupDescribed:
    answer = driver.ask(DescribeConsumerGroup(ticket=driver.ticket(), group_id=GROUP))
    assert isinstance(answer, ConsumerGroupDescribed)
    return answer


def t1(*partitions: int) -> Assignment:
    return {T1: frozenset(partitions)}


def test_the_first_member_gets_everything_at_once() -> None:
    driver = Driver(catalog=topics(3))

    answer = reconciled(driver, driver.beat("a", 0))

    assert answer == Reconciled("a", 1, LIMITS.consumer_heartbeat_ms_min, t1(0, 1, 2))
    assert described(driver).state is GroupState.STABLE


def test_a_member_without_an_id_is_given_one() -> None:
    driver = Driver(catalog=topics(1))

    assert reconciled(driver, driver.beat("", 0, candidate_id="fresh")).member_id == "fresh"


def test_an_assignment_is_only_sent_when_it_changes_or_is_asked_for() -> None:
    driver = Driver(catalog=topics(3))
    driver.beat("a", 0)

    plain = reconciled(driver, driver.beat("a", 1))
    full = reconciled(
        driver, driver.beat("a", 1, rebalance_ms=30_000, topics=("t1",), owned=t1(0, 1, 2))
    )

    assert plain.assignment is None
    assert full.assignment == t1(0, 1, 2)


def test_a_partition_moves_only_after_its_owner_let_go() -> None:
    driver = Driver(catalog=topics(3))
    driver.beat("a", 0)

    waiting = reconciled(driver, driver.beat("b", 0))
    assert (waiting.member_epoch, waiting.assignment) == (2, {})
    assert waiting.heartbeat_ms == LIMITS.consumer_heartbeat_waiting_ms

    told = reconciled(driver, driver.beat("a", 1))
    assert told.member_epoch == 1
    assert told.assignment == t1(0, 1)
    assert reconciled(driver, driver.beat("b", 2)).assignment is None
    assert described(driver).state is GroupState.RECONCILING

    done = reconciled(driver, driver.beat("a", 1, owned=t1(0, 1)))
    assert (done.member_epoch, done.assignment) == (2, None)
    moved = reconciled(driver, driver.beat("b", 2))
    assert moved.assignment == t1(2)
    assert moved.heartbeat_ms == LIMITS.consumer_heartbeat_ms_min
    assert described(driver).state is GroupState.STABLE


def test_a_member_that_still_owns_what_it_must_revoke_stays_where_it_is() -> None:
    driver = Driver(catalog=topics(2))
    driver.beat("a", 0)
    driver.beat("b", 0)
    driver.beat("a", 1)

    assert reconciled(driver, driver.beat("a", 1, owned=t1(0, 1))).member_epoch == 1
    assert reconciled(driver, driver.beat("a", 1)).member_epoch == 1
    assert reconciled(driver, driver.beat("b", 2)).assignment is None


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    driver = Driver(catalog=topics(2))
    driver.beat("a", 0, rebalance_ms=10_000)
    driver.beat("b", 0)
    driver.beat("a", 1)

    driver.advance(10_000)

    assert isinstance(driver.answers[driver.beat("a", 1)], UnknownMember)
    assert reconciled(driver, driver.beat("b", 2)).assignment == t1(0, 1)


def test_a_silent_member_is_fenced_and_its_partitions_are_free() -> None:
    driver = Driver(catalog=topics(2))
    driver.beat("a", 0)
    driver.beat("b", 0)

    driver.advance(44_000)
    driver.beat("b", 2)
    driver.advance(1_000)

    assert isinstance(driver.answers[driver.beat("a", 1)], UnknownMember)
    assert reconciled(driver, driver.beat("b", 2)).assignment == t1(0, 1)


def test_a_member_that_leaves_frees_its_partitions_at_once() -> None:
    driver = Driver(catalog=topics(2))
    driver.beat("a", 0)
    driver.beat("b", 0)

    left = reconciled(driver, driver.beat("a", -1))

    assert (left.member_id, left.member_epoch, left.assignment) == ("a", -1, None)
    assert reconciled(driver, driver.beat("b", 2)).assignment == t1(0, 1)
    driver.beat("b", -1)
    assert described(driver).state is GroupState.EMPTY


def test_members_whose_partitions_stay_are_not_told_a_new_assignment() -> None:
    driver = Driver(catalog=topics(4))
    driver.beat("a", 0)
    driver.beat("b", 0)
    driver.beat("a", 1)
    driver.beat("a", 1, owned=t1(0, 1))
    driver.beat("b", 2)

    driver.beat("b", -1)
    driver.beat("c", 0)
    answer = reconciled(driver, driver.beat("a", 2))

    assert answer.member_epoch > 2
    assert answer.assignment is None


def test_a_heartbeat_with_the_previous_epoch_is_accepted_once_the_answer_was_lost() -> None:
    driver = Driver(catalog=topics(2))
    driver.beat("a", 0)
    driver.beat("b", 0)
    driver.beat("a", 1)
    driver.beat("a", 1, owned=t1(0))

    repeated = reconciled(driver, driver.beat("a", 1, owned=t1(0)))

    assert (repeated.member_epoch, repeated.assignment) == (2, t1(0))
    assert isinstance(driver.answers[driver.beat("a", 1, owned=t1(0, 1))], FencedMemberEpoch)
    assert isinstance(driver.answers[driver.beat("a", 1)], FencedMemberEpoch)
    assert isinstance(driver.answers[driver.beat("a", 3)], FencedMemberEpoch)


def test_a_member_that_joins_again_keeps_its_place() -> None:
    driver = Driver(catalog=topics(2))
    driver.beat("a", 0)

    again = reconciled(driver, driver.beat("a", 0))

    assert (again.member_epoch, again.assignment) == (1, t1(0, 1))


def test_new_topics_and_partitions_are_assigned_with_the_next_heartbeat() -> None:
    driver = Driver(catalog=topics(1))
    driver.beat("a", 0, topics=("t1", "t2"))

    driver.change_topics(topics(2, 1))
    answer = reconciled(driver, driver.beat("a", 1))

    assert answer.member_epoch == 2
    assert answer.assignment == {T1: frozenset({0, 1}), T2: frozenset({0})}


def test_topics_that_nobody_reads_change_nothing() -> None:
    driver = Driver(catalog=topics(1))
    driver.beat("a", 0)

    driver.change_topics(topics(1, 5))

    assert reconciled(driver, driver.beat("a", 1)).member_epoch == 1


def test_a_deleted_topic_is_taken_away() -> None:
    driver = Driver(catalog=topics(1, 1))
    driver.beat("a", 0, topics=("t1", "t2"))

    driver.change_topics(topics(1))
    told = reconciled(driver, driver.beat("a", 1))

    assert told.assignment == t1(0)
    assert reconciled(driver, driver.beat("a", 1, owned=t1(0))).member_epoch == 2


def test_a_regular_expression_follows_the_topics() -> None:
    driver = Driver(catalog=topics(1))
    driver.beat("a", 0, topics=(), regex="t[12]")

    driver.change_topics(topics(1, 1, 1))
    matched = reconciled(driver, driver.beat("a", 1))
    dropped = reconciled(driver, driver.beat("a", 2, topics=("t1",), regex=""))

    assert matched.assignment == {T1: frozenset({0}), T2: frozenset({0})}
    assert dropped.assignment == t1(0)


def test_topics_deleted_while_nobody_led_are_noticed_by_the_next_leader() -> None:
    driver = Driver(catalog=topics(1, 1))
    driver.beat("a", 0, topics=("t1", "t2"))

    driver.catalog = topics(1)
    driver.fail_over()

    assert reconciled(driver, driver.beat("a", 1)).assignment == t1(0)


def test_a_failover_is_not_noticed_by_members() -> None:
    driver = Driver(catalog=topics(2))
    driver.beat("a", 0)
    driver.beat("b", 0)
    driver.beat("a", 1)
    driver.beat("a", 1, owned=t1(0))
    driver.beat("b", 2)
    driver.advance(40_000)

    driver.fail_over()
    driver.advance(44_000)

    assert reconciled(driver, driver.beat("a", 2)).assignment is None
    assert reconciled(driver, driver.beat("b", 2)).member_epoch == 2


def test_a_new_leader_that_knows_no_topics_yet_takes_nothing_away() -> None:
    driver = Driver(catalog=topics(2))
    driver.beat("a", 0)

    driver.catalog = {}
    driver.fail_over()

    assert isinstance(driver.answers[driver.beat("a", 1)], CoordinatorLoading)


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
    driver = Driver(catalog=topics(2, 2))
    driver.beat("a", 0, topics=("t1", "t2"), assignor="range")
    driver.beat("b", 0, topics=("t1", "t2"), assignor="range")

    assert described(driver).assignor == "range"
    targets = {member.member_id: member.target for member in described(driver).members}
    assert targets["a"] == {T1: frozenset({0}), T2: frozenset({0})}


def test_a_static_member_that_is_away_keeps_its_partitions_for_its_return() -> None:
    driver = Driver(catalog=topics(2))
    driver.beat("a", 0, instance_id="one")
    driver.beat("b", 0)
    driver.beat("a", 1, instance_id="one")
    driver.beat("a", 1, instance_id="one", owned=t1(0))
    driver.beat("b", 2)

    assert reconciled(driver, driver.beat("a", -2, instance_id="one")).member_epoch == -2
    assert reconciled(driver, driver.beat("b", 2)).assignment is None
    back = reconciled(driver, driver.beat("a2", 0, instance_id="one"))

    assert (back.member_epoch, back.assignment) == (2, t1(0))
    assert isinstance(driver.answers[driver.beat("a", 2, instance_id="one")], FencedInstanceId)
    assert reconciled(driver, driver.beat("b", 2)).member_epoch == 2


def test_a_static_member_that_stays_away_loses_its_place() -> None:
    driver = Driver(catalog=topics(2))
    driver.beat("a", 0, instance_id="one")
    driver.beat("b", 0)
    driver.beat("a", -2, instance_id="one")

    driver.advance(40_000)
    driver.beat("b", 2)
    driver.advance(5_000)

    assert reconciled(driver, driver.beat("b", 2)).assignment == t1(0, 1)


def test_an_instance_id_in_use_cannot_be_taken() -> None:
    driver = Driver(catalog=topics(1))
    driver.beat("a", 0, instance_id="one")

    taken = driver.answers[driver.beat("b", 0, instance_id="one")]

    assert isinstance(taken, UnreleasedInstanceId)


@pytest.mark.parametrize(
    ("epoch", "said", "error"),
    [
        (0, {"rebalance_ms": None}, InvalidRequest),
        (0, {"topics": None}, InvalidRequest),
        (0, {"owned": t1(0)}, InvalidRequest),
        (0, {"instance_id": ""}, InvalidRequest),
        (0, {"assignor": "random"}, UnsupportedAssignor),
        (0, {"regex": "t["}, InvalidSubscription),
        (0, {"regex": "t(?=1)"}, InvalidSubscription),
        (0, {"regex": "t" * 257}, InvalidSubscription),
        (-2, {}, InvalidRequest),
        (-3, {}, InvalidRequest),
        (1, {}, UnknownMember),
        (-1, {}, UnknownMember),
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_refused(
    epoch: int, said: dict[str, object], error: type[PenstockError]
) -> None:
    driver = Driver(catalog=topics(1))

    answer = driver.answers[driver.beat("a", epoch, **said)]

    assert isinstance(answer, error)
    assert driver.log == []


def test_members_of_small_groups_come_back_soon_and_those_of_large_ones_spread_out() -> None:
    driver = Driver(catalog=topics(0))

    pauses_ms = [reconciled(driver, driver.beat(f"m{n}", 0)).heartbeat_ms for n in range(150)]

    assert pauses_ms[0] == pauses_ms[9] == LIMITS.consumer_heartbeat_ms_min
    assert pauses_ms[49] == 50 * LIMITS.consumer_heartbeat_spacing_ms
    assert pauses_ms[149] == LIMITS.consumer_heartbeat_ms


def test_a_full_group_refuses_more_members() -> None:
    driver = Driver(GroupLimits(members_max=1), topics(1))
    driver.beat("a", 0)

    assert isinstance(driver.answers[driver.beat("b", 0)], GroupMaxSizeReached)
    assert reconciled(driver, driver.beat("a", 0)).member_epoch == 1


def test_an_empty_group_may_change_its_protocol_and_one_with_members_may_not() -> None:
    driver = Driver(catalog=topics(1))
    driver.join()

    assert isinstance(driver.answers[driver.beat("a", 0)], GroupNotFound)
    driver.leave(Leaver("m1"))
    assert reconciled(driver, driver.beat("a", 0)).member_epoch == 1
    assert isinstance(driver.answers[driver.join()], InconsistentGroupProtocol)
    driver.beat("a", -1)
    assert not isinstance(driver.answers[driver.join()], PenstockError)
