"""Committed positions: commit, fetch, delete, expire."""

import struct

from penstock.errors import (
    GroupNotEmpty,
    GroupNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    MetadataTooLarge,
    PenstockError,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMember,
)
from penstock.groups import (
    Answer,
    DeleteGroup,
    DeleteOffsets,
    FetchOffsets,
    GroupDeleted,
    GroupLimits,
    Joined,
    Leaver,
    ListGroups,
    OffsetRow,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    OffsetToCommit,
)
from penstock.ids import TopicPartition

from .driver import GROUP, Driver, topics

DAY_MS = 24 * 3_600_000
SUBSCRIPTION = struct.pack(">hih2si", 1, 1, 2, b"t1", -1)


def fetched(driver: Driver, **said: object) -> dict[TopicPartition, OffsetRow]:
    fields = {"ticket": driver.ticket(), "group_id": GROUP, "partitions": None}
    answer = driver.ask(FetchOffsets(**(fields | said)))  # type: ignore[arg-type]
    assert isinstance(answer, OffsetsFetched), answer
    return dict(answer.offsets)


def positions(driver: Driver) -> dict[str, int]:
    return {str(key): row.offset for key, row in fetched(driver).items()}


def delete_offsets(driver: Driver, *partitions: TopicPartition) -> Answer | PenstockError:
    return driver.ask(DeleteOffsets(ticket=driver.ticket(), group_id=GROUP, partitions=partitions))


def delete_group(driver: Driver) -> Answer | PenstockError:
    return driver.ask(DeleteGroup(ticket=driver.ticket(), group_id=GROUP))


def stable_member(driver: Driver) -> str:
    member = driver.answers[driver.join(protocols=(("range", SUBSCRIPTION),))]
    assert isinstance(member, Joined)
    driver.sync(member.member_id, member.generation)
    return member.member_id


def test_one_event_holds_a_commit_of_many_partitions() -> None:
    driver = Driver()
    driver.commit(OffsetToCommit("t0", 0, 1))
    events = len(driver.log)

    driver.commit(*(OffsetToCommit("t1", partition, partition) for partition in range(100)))

    assert len(driver.log) == events + 1
    assert len(fetched(driver)) == 101


def test_a_consumer_without_a_group_protocol_can_keep_its_offsets_here() -> None:
    driver = Driver()

    answer = driver.commit(OffsetToCommit("t1", 0, 7, 3, "note"))

    assert answer == OffsetsCommitted({})
    row = OffsetRow("t1", 0, 7, 3, "note", driver.now_ms)
    assert fetched(driver) == {TopicPartition("t1", 0): row}
    wanted = (TopicPartition("t1", 0), TopicPartition("t1", 9))
    assert fetched(driver, partitions=wanted) == {TopicPartition("t1", 0): row}


def test_a_group_that_does_not_exist_has_no_offsets_and_no_generations() -> None:
    driver = Driver()

    assert fetched(driver) == {}
    refused = driver.commit(OffsetToCommit("t1", 0, 7), member_id="m", generation=1)
    assert isinstance(refused, GroupNotFound)


def test_only_members_of_the_generation_commit_to_a_group_with_members() -> None:
    driver = Driver()
    member_id = stable_member(driver)
    entry = OffsetToCommit("t1", 0, 7)

    assert isinstance(driver.commit(entry), UnknownMember)
    assert isinstance(driver.commit(entry, member_id="m", generation=1), UnknownMember)
    refused = driver.commit(entry, member_id=member_id, generation=2)
    assert isinstance(refused, IllegalGeneration)
    accepted = driver.commit(entry, member_id=member_id, generation=1)
    assert accepted == OffsetsCommitted({})


def test_a_generation_without_an_assignment_has_nothing_to_commit() -> None:
    driver = Driver()
    member = driver.answers[driver.join()]
    assert isinstance(member, Joined)

    refused = driver.commit(OffsetToCommit("t1", 0, 7), member_id=member.member_id, generation=1)

    assert isinstance(refused, RebalanceInProgress)


def test_a_commit_keeps_a_classic_member_alive() -> None:
    driver = Driver()
    member_id = stable_member(driver)

    for offset in range(5):
        driver.advance(9_000)
        entry = OffsetToCommit("t1", 0, offset)
        assert driver.commit(entry, member_id=member_id, generation=1) == OffsetsCommitted({})


def test_members_of_the_incremental_protocol_commit_and_read_under_their_epoch() -> None:
    driver = Driver(catalog=topics(1))
    driver.beat("a", 0)
    entry = OffsetToCommit("t1", 0, 7)

    stale = driver.commit(entry, member_id="a", generation=0)
    assert isinstance(stale, StaleMemberEpoch)
    assert isinstance(driver.commit(entry), UnknownMember)
    assert driver.commit(entry, member_id="a", generation=1) == OffsetsCommitted({})
    assert fetched(driver, member_id="a", member_epoch=1)
    for member_id, epoch, error in (("a", 2, StaleMemberEpoch), ("b", 1, UnknownMember)):
        command = FetchOffsets(
            ticket=driver.ticket(),
            group_id=GROUP,
            partitions=None,
            member_id=member_id,
            member_epoch=epoch,
        )
        assert isinstance(driver.ask(command), error)


def test_a_note_that_is_too_long_is_refused_and_the_rest_is_stored() -> None:
    driver = Driver()

    answer = driver.commit(
        OffsetToCommit("t1", 0, 1, note="x" * 4_096),
        OffsetToCommit("t1", 1, 1, note="ü" * 2_049),
    )

    assert isinstance(answer, OffsetsCommitted)
    assert isinstance(answer.refused[TopicPartition("t1", 1)], MetadataTooLarge)
    assert positions(driver) == {"t1-0": 1}


def test_offsets_of_topics_that_the_group_reads_cannot_be_deleted() -> None:
    driver = Driver()
    member_id = stable_member(driver)
    entries = OffsetToCommit("t1", 0, 1), OffsetToCommit("t2", 0, 2)
    driver.commit(*entries, member_id=member_id, generation=1)

    answer = delete_offsets(driver, TopicPartition("t1", 0), TopicPartition("t2", 0))

    assert isinstance(answer, OffsetsDeleted)
    refusal = answer.refused[TopicPartition("t1", 0)]
    assert isinstance(refusal, GroupSubscribedToTopic)
    assert positions(driver) == {"t1-0": 1}


def test_a_group_with_a_protocol_of_its_own_must_be_empty_to_delete_offsets() -> None:
    driver = Driver()
    driver.join(protocol_type="connect")

    assert isinstance(delete_offsets(driver, TopicPartition("t1", 0)), GroupNotEmpty)


def test_the_offsets_of_a_deleted_topic_are_gone_even_if_it_comes_back() -> None:
    driver = Driver(catalog=topics(1, 1))
    driver.commit(OffsetToCommit("t1", 0, 1), OffsetToCommit("t2", 0, 2))

    driver.change_topics(topics(1))
    assert positions(driver) == {"t1-0": 1}
    anew = {"t1": topics(1, 1)["t2"]}
    driver.change_topics(anew)

    assert positions(driver) == {}


def test_a_coordinator_that_saw_no_deletion_gives_no_offset_to_the_new_topic() -> None:
    driver = Driver(catalog=topics(1, 1))
    driver.commit(OffsetToCommit("t1", 0, 1), OffsetToCommit("t2", 0, 2))

    driver.catalog = {"t1": topics(1, 1)["t2"]}
    driver.fail_over()
    assert positions(driver) == {"t2-0": 2}
    driver.commit(OffsetToCommit("t1", 0, 5))

    assert positions(driver) == {"t1-0": 5, "t2-0": 2}


def test_offsets_expire_when_the_group_has_been_empty_for_long() -> None:
    driver = Driver(catalog=topics(1))
    member_id = stable_member(driver)
    driver.commit(OffsetToCommit("t1", 0, 1), member_id=member_id, generation=1)
    driver.advance(1_000)
    driver.leave(Leaver(member_id))

    driver.advance(7 * DAY_MS - 1)
    assert positions(driver) == {"t1-0": 1}
    driver.advance(GroupLimits().offsets_sweep_ms)

    assert positions(driver) == {}
    assert driver.ask(ListGroups(ticket=driver.ticket())).groups == ()


def test_a_group_in_use_keeps_the_offsets_of_topics_it_reads() -> None:
    driver = Driver(GroupLimits(offsets_retention_ms=60_000, offsets_sweep_ms=1_000), topics(1, 1))
    driver.beat("a", 0)
    entries = OffsetToCommit("t1", 0, 1), OffsetToCommit("t2", 0, 2)
    driver.commit(*entries, member_id="a", generation=1)

    for _ in range(3):
        driver.advance(30_000)
        driver.beat("a", 1)

    assert positions(driver) == {"t1-0": 1}


def test_a_commit_in_flight_keeps_retention_away() -> None:
    driver = Driver(GroupLimits(offsets_retention_ms=60_000, offsets_sweep_ms=1_000), topics(1))
    driver.commit(OffsetToCommit("t1", 0, 1))
    driver.advance(59_500)
    driver.is_holding = True
    driver.send(driver.commit_command(OffsetToCommit("t1", 0, 2)))

    driver.advance(2_000)
    driver.commit_all()

    assert positions(driver) == {"t1-0": 2}


def test_an_empty_group_can_be_deleted_with_its_offsets() -> None:
    driver = Driver()
    assert isinstance(delete_group(driver), GroupNotFound)
    member_id = stable_member(driver)
    driver.commit(OffsetToCommit("t1", 0, 1), member_id=member_id, generation=1)

    assert isinstance(delete_group(driver), GroupNotEmpty)
    driver.leave(Leaver(member_id))
    assert delete_group(driver) == GroupDeleted()

    assert positions(driver) == {}
    assert isinstance(delete_group(driver), GroupNotFound)
