from uuid import UUID

import pytest

from penstock.errors import FencedMemberEpoch, UnknownMember
from penstock.groups import JOIN_EPOCH, LEAVE_EPOCH, ShareBeat, ShareGroup, TopicInfo

ORDERS = UUID(int=1)
TOPICS = {"orders": TopicInfo(ORDERS, 3)}
SESSION_MS = 1_000


def beat(member: str, epoch: int, topics: tuple[str, ...] | None = None) -> ShareBeat:
    return ShareBeat(member, epoch, topics, "client", "host")


def join(group: ShareGroup, member: str, now_ms: int = 0) -> int:
    return group.heartbeat(beat(member, JOIN_EPOCH, ("orders",)), TOPICS, now_ms)[0]


def partitions(group: ShareGroup, member: str) -> set[int]:
    return set(group.members[member].assignment.get(ORDERS, ()))


def test_members_are_spread_over_the_partitions() -> None:
    group = ShareGroup(SESSION_MS)
    join(group, "a")
    join(group, "b")

    assert partitions(group, "a") | partitions(group, "b") == {0, 1, 2}
    assert not partitions(group, "a") & partitions(group, "b")


def test_more_members_than_partitions_share_them() -> None:
    group = ShareGroup(SESSION_MS)
    for number in range(7):
        join(group, f"member{number}")

    assert all(len(partitions(group, f"member{number}")) == 1 for number in range(7))


def test_an_assignment_is_told_once() -> None:
    group = ShareGroup(SESSION_MS)
    epoch = join(group, "a")

    assert group.heartbeat(beat("a", epoch), TOPICS, 0) == (epoch, None)
    join(group, "b")
    epoch, assignment = group.heartbeat(beat("a", epoch), TOPICS, 0)

    assert assignment == group.members["a"].assignment


def test_a_member_that_leaves_or_falls_silent_makes_room() -> None:
    group = ShareGroup(SESSION_MS)
    epoch = join(group, "a")
    join(group, "b")
    join(group, "c", now_ms=500)
    group.heartbeat(beat("c", LEAVE_EPOCH), TOPICS, 500)
    assert set(group.members) == {"a", "b"}

    group.heartbeat(beat("a", epoch), TOPICS, 900)
    epoch, _ = group.heartbeat(beat("a", group.members["a"].epoch), TOPICS, 1_500)

    assert set(group.members) == {"a"}
    assert partitions(group, "a") == {0, 1, 2}


def test_strangers_and_old_epochs_are_refused() -> None:
    group = ShareGroup(SESSION_MS)
    join(group, "a")

    with pytest.raises(UnknownMember):
        group.heartbeat(beat("b", 3), TOPICS, 0)
    with pytest.raises(FencedMemberEpoch):
        group.heartbeat(beat("a", 99), TOPICS, 0)
