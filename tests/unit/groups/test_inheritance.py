"""Groups whose topic gets another number of partitions under its name."""

import struct
from uuid import UUID

from penstock.errors import PenstockError, UnknownMember
from penstock.groups import (
    FetchOffsets,
    Joined,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetToCommit,
    Reconciled,
    TopicInfo,
)

from .driver import GROUP, Driver, topic_id, topics

SUBSCRIPTION = struct.pack(">hih2si", 1, 1, 2, b"t1", -1)
OTHERS = struct.pack(">hih2si", 1, 1, 2, b"t2", -1)
BEFORE = topics(2, 1)


def switched(era: int = 1, positions: dict[str, tuple[int, ...]] | None = None) -> object:
    """The topics when the copy of t1, with three partitions, has its name."""
    copy = TopicInfo(UUID(int=100 + era), 3, era, positions or {})
    return {**BEFORE, "t1": copy, "t1.before": TopicInfo(topic_id(1), 2)}


def found(driver: Driver) -> dict[str, int]:
    """Where the group goes on."""
    answer = driver.ask(FetchOffsets(ticket=driver.ticket(), group_id=GROUP, partitions=None))
    assert isinstance(answer, OffsetsFetched), answer
    return {str(key): row.offset for key, row in answer.offsets.items()}


def stable_member(driver: Driver, subscription: bytes = SUBSCRIPTION) -> Joined:
    joined = driver.answers[driver.join(protocols=(("range", subscription),))]
    assert isinstance(joined, Joined)
    driver.sync(joined.member_id, joined.generation)
    return joined


def commit(driver: Driver, offset: int, member: Joined | None = None) -> object:
    said = {"member_id": member.member_id, "generation": member.generation} if member else {}
    return driver.commit(OffsetToCommit("t1", 0, offset), **said)  # type: ignore[arg-type]


def test_offsets_of_the_former_topic_give_way_to_those_that_the_switch_gave() -> None:
    driver = Driver(catalog=BEFORE)
    driver.commit(OffsetToCommit("t1", 0, 70), OffsetToCommit("t1", 1, 80))
    driver.commit(OffsetToCommit("t2", 0, 5))

    driver.change_topics(switched(positions={GROUP: (4, 5, 6)}))  # type: ignore[arg-type]

    assert found(driver) == {"t1-0": 4, "t1-1": 5, "t1-2": 6, "t2-0": 5}
    commit(driver, 9)
    assert found(driver) == {"t1-0": 9, "t1-1": 5, "t1-2": 6, "t2-0": 5}
    driver.fail_over()
    assert found(driver) == {"t1-0": 9, "t1-1": 5, "t1-2": 6, "t2-0": 5}


def test_a_group_that_the_switch_did_not_know_begins_at_the_start() -> None:
    driver = Driver(catalog=BEFORE)
    commit(driver, 70)

    driver.change_topics(switched())  # type: ignore[arg-type]

    assert found(driver) == {"t1-0": 0, "t1-1": 0, "t1-2": 0}


def test_a_group_that_never_read_the_topic_inherits_nothing() -> None:
    driver = Driver(catalog=BEFORE)
    driver.commit(OffsetToCommit("t2", 0, 5))

    driver.change_topics(switched(positions={GROUP: (4, 5, 6)}))  # type: ignore[arg-type]

    assert found(driver) == {"t2-0": 5}


def test_the_second_switch_counts_for_those_who_committed_after_the_first() -> None:
    driver = Driver(catalog=BEFORE)
    commit(driver, 70)
    driver.change_topics(switched(1, {GROUP: (4, 5, 6)}))  # type: ignore[arg-type]
    commit(driver, 9)

    driver.change_topics(switched(2, {GROUP: (1, 2, 3)}))  # type: ignore[arg-type]

    assert found(driver) == {"t1-0": 1, "t1-1": 2, "t1-2": 3}


def test_members_of_the_classic_protocol_join_again_and_commit_nothing_before() -> None:
    driver = Driver(catalog=BEFORE)
    member = stable_member(driver)
    assert commit(driver, 70, member) == OffsetsCommitted({})

    driver.change_topics(switched(positions={GROUP: (4, 5, 6)}))  # type: ignore[arg-type]

    assert isinstance(commit(driver, 71, member), UnknownMember)
    assert isinstance(driver.heartbeat(member.member_id, member.generation), UnknownMember)
    again = stable_member(driver)
    assert found(driver)["t1-0"] == 4
    assert commit(driver, 10, again) == OffsetsCommitted({})
    assert found(driver)["t1-0"] == 10
    driver.change_topics({**driver.catalog, "t3": TopicInfo(topic_id(3), 1)})
    assert not isinstance(driver.heartbeat(again.member_id, again.generation), PenstockError)


def test_members_who_wait_for_a_rebalance_are_expelled_too() -> None:
    driver = Driver(catalog=BEFORE)
    member = stable_member(driver)
    ticket = driver.join(protocols=(("range", SUBSCRIPTION),))
    assert ticket not in driver.answers

    driver.change_topics(switched())  # type: ignore[arg-type]

    assert isinstance(driver.answers[ticket], UnknownMember)
    assert isinstance(driver.heartbeat(member.member_id, member.generation), UnknownMember)


def test_members_of_the_incremental_protocol_join_again() -> None:
    driver = Driver(catalog=BEFORE)
    joined = driver.answers[driver.beat("m1", 0)]
    assert isinstance(joined, Reconciled)

    driver.change_topics(switched())  # type: ignore[arg-type]

    assert isinstance(driver.answers[driver.beat("m1", joined.member_epoch)], UnknownMember)
    again = driver.answers[driver.beat("m1", 0)]
    assert isinstance(again, Reconciled)
    assert again.assignment == {UUID(int=101): frozenset({0, 1, 2})}


def test_members_of_other_topics_notice_nothing() -> None:
    driver = Driver(catalog=BEFORE)
    member = stable_member(driver, OTHERS)

    driver.change_topics(switched())  # type: ignore[arg-type]

    assert not isinstance(driver.heartbeat(member.member_id, member.generation), PenstockError)


def test_a_coordinator_that_knows_more_than_the_one_before_expels_members() -> None:
    driver = Driver(catalog=BEFORE)
    classic = stable_member(driver)
    commit(driver, 70, classic)
    driver.catalog = switched(positions={GROUP: (4, 5, 6)})  # type: ignore[assignment]

    driver.fail_over()

    assert isinstance(commit(driver, 71, classic), PenstockError)
    again = stable_member(driver)
    assert found(driver)["t1-0"] == 4
    driver.fail_over()
    assert commit(driver, 8, again) == OffsetsCommitted({})


def test_a_coordinator_that_learns_late_lets_positions_be_read_again() -> None:
    driver = Driver(catalog=BEFORE)
    commit(driver, 70)
    driver.change_topics(switched(positions={GROUP: (4, 5, 6)}))  # type: ignore[arg-type]
    commit(driver, 9)

    # Another node leads, and has not heard of the switch yet.
    driver.catalog = dict(BEFORE)
    driver.fail_over()
    commit(driver, 12)
    driver.change_topics(switched(positions={GROUP: (4, 5, 6)}))  # type: ignore[arg-type]

    assert found(driver)["t1-0"] == 4
