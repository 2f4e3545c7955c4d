"""How the metadata lets the copy of a topic take its place."""

import uuid
from typing import Any

import msgspec
import pytest

from penstock.cluster import ClusterMetadata, Topic
from penstock.cluster.commands import (
    AddPartitions,
    ChangeSettings,
    Command,
    ConfigureGroup,
    CreateTopic,
    DeleteTopic,
    decode_command,
    encode_command,
)
from penstock.cluster.fence_expiry import FENCE_LEASE_S, FenceExpiry
from penstock.cluster.resharding import (
    BeginReshard,
    CancelReshard,
    FenceTopic,
    LiftFence,
    SwitchTopics,
)
from penstock.errors import Conflict, InvalidRequest, TopicExists, TopicNotFound
from penstock.ids import EntryIndex
from penstock.log import StateEntry

NODE = (1, 10)
SOURCE, COPY, RESHARD = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
FORMER = "orders.before-1"


class Scene:
    """The metadata of a cluster, and every command that it was given."""

    def __init__(self) -> None:
        self.metadata = ClusterMetadata()
        self.commands: list[Command] = []
        self.give(CreateTopic("orders", SOURCE, [(NODE,), (NODE,)], {}))
        self.give(CreateTopic("orders.reshard-1", COPY, [(NODE,), (NODE,), (NODE,)], {}))
        self.give(BeginReshard(SOURCE, RESHARD, COPY))

    def give(self, command: Command) -> Any:
        """Apply a command as it is read from the log."""
        self.commands.append(command)
        payload = encode_command(decode_command(encode_command(command)))
        return self.metadata.apply_state(StateEntry(1, 1, 0, payload))

    def fence(self) -> int:
        """Raise the fence, or renew it."""
        topic: Topic = self.give(FenceTopic(SOURCE, RESHARD))
        assert topic.resharding is not None
        return topic.resharding.fence

    def switch(self, fence: int, positions: dict[str, tuple[int, ...]] | None = None) -> Topic:
        """Let the copy have the name."""
        topic: Topic = self.give(SwitchTopics(SOURCE, RESHARD, fence, FORMER, positions or {}))
        return topic


def test_a_switch_swaps_the_names_and_leaves_everything_else_where_it_is() -> None:
    scene = Scene()
    source, copy = (scene.metadata.topic_by_id(each) for each in (SOURCE, COPY))
    fence = scene.fence()
    scene.give(ChangeSettings(SOURCE, {"retention.ms": "5000"}, []))
    scene.give(ConfigureGroup(SOURCE, "workers"))

    switched = scene.switch(fence, {"billing": (1, 2, 3)})

    former = scene.metadata.topic(FORMER)
    assert scene.metadata.topic("orders") == switched == scene.metadata.topic_by_id(COPY)
    assert (switched.topic_id, switched.replicas) == (COPY, copy.replicas)
    assert (former.topic_id, former.replicas) == (SOURCE, source.replicas)
    assert (former.files, switched.files) == ("orders", "orders.reshard-1")
    assert (switched.era, switched.positions) == (fence, {"billing": (1, 2, 3)})
    assert (switched.settings, switched.groups) == ({"retention.ms": "5000"}, {"workers": {}})
    assert sorted(scene.metadata.topics) == ["orders", FORMER]
    assert scene.metadata.is_in_force(fence), "the former topic takes no writes any more"


def test_clients_find_the_former_topic_by_another_id_than_they_knew() -> None:
    scene = Scene()
    scene.switch(scene.fence())
    metadata, former = scene.metadata, scene.metadata.topic(FORMER)

    assert metadata.topic_by_public_id(COPY).name == "orders"
    assert metadata.topic_by_public_id(former.public_id) == former
    with pytest.raises(TopicNotFound):
        metadata.topic_by_public_id(SOURCE)


def test_a_switch_that_is_sent_again_finds_itself_done() -> None:
    scene = Scene()
    fence = scene.fence()

    assert scene.switch(fence) == scene.switch(fence)
    scene.give(LiftFence(SOURCE, fence))
    assert scene.metadata.is_in_force(fence)
    with pytest.raises(Conflict, match="cannot be undone"):
        scene.give(CancelReshard(SOURCE, RESHARD))


def test_nothing_is_switched_behind_a_fence_that_was_lifted() -> None:
    scene = Scene()
    first = scene.fence()
    scene.give(LiftFence(SOURCE, first))
    assert not scene.metadata.is_in_force(first)

    with pytest.raises(Conflict, match="none is in force"):
        scene.switch(first)
    second = scene.fence()
    assert second > first
    assert not scene.metadata.is_in_force(first)
    with pytest.raises(Conflict, match=f"fence {second} is in force"):
        scene.switch(first)

    assert scene.switch(second).name == "orders"


def test_a_fence_that_is_asked_for_again_is_the_same_one_renewed() -> None:
    scene = Scene()
    first = scene.fence()
    renewals = scene.metadata.topic("orders").resharding.renewals  # type: ignore[union-attr]

    assert scene.fence() == first
    scene.give(LiftFence(SOURCE, first, renewals))
    assert scene.metadata.is_in_force(first), "it was renewed since"
    scene.give(LiftFence(SOURCE, first, renewals + 1))
    assert not scene.metadata.is_in_force(first)


def test_a_fence_that_this_node_has_not_heard_of_is_in_force() -> None:
    scene = Scene()

    assert scene.metadata.is_in_force(scene.metadata.last_fence + 1)


def test_only_the_leader_that_sees_no_renewal_for_a_whole_lease_lifts_a_fence() -> None:
    scene = Scene()
    fence = scene.fence()
    expiry = FenceExpiry(scene.metadata)
    now_s = 1_000.0
    assert expiry.overdue(now_s) == []
    for _ in range(5):
        now_s += FENCE_LEASE_S / 4
        scene.fence()
        assert expiry.overdue(now_s) == []

    for _ in range(4):
        now_s += FENCE_LEASE_S / 4
        assert expiry.overdue(now_s) == []
    # Whoever was held up, or did not lead meanwhile, begins to count anew.
    now_s += FENCE_LEASE_S
    assert expiry.overdue(now_s) == []
    for _ in range(4):
        now_s += FENCE_LEASE_S / 4
        assert expiry.overdue(now_s) == []
    (lift,) = expiry.overdue(now_s + 1)
    scene.give(lift)

    assert not scene.metadata.is_in_force(fence)
    assert expiry.overdue(now_s + 2) == []


def test_a_cancelled_reshard_leaves_the_topic_as_it_was_and_deletes_the_copy() -> None:
    scene = Scene()
    fence = scene.fence()

    scene.give(CancelReshard(SOURCE, RESHARD))
    scene.give(CancelReshard(SOURCE, RESHARD))

    assert sorted(scene.metadata.topics) == ["orders"]
    assert scene.metadata.topic("orders").resharding is None
    assert scene.metadata.was_deleted(COPY)
    assert not scene.metadata.is_in_force(fence)
    with pytest.raises(Conflict, match="cancelled"):
        scene.fence()
    with pytest.raises(Conflict, match="cancelled"):
        scene.switch(fence)


def test_a_topic_has_one_reshard_at_a_time() -> None:
    scene = Scene()

    scene.give(BeginReshard(SOURCE, RESHARD, COPY))
    with pytest.raises(Conflict, match="cancel that first"):
        scene.give(BeginReshard(SOURCE, uuid.uuid4(), COPY))
    with pytest.raises(Conflict, match="replaced by"):
        scene.give(FenceTopic(SOURCE, uuid.uuid4()))


def test_topics_of_a_reshard_do_not_grow_before_it_is_over() -> None:
    scene = Scene()

    for topic_id in (SOURCE, COPY):
        with pytest.raises(Conflict, match="takes part in a reshard"):
            scene.give(AddPartitions(topic_id, 9, [(NODE,)] * 7))
    scene.switch(scene.fence())

    assert scene.give(AddPartitions(COPY, 4, [(NODE,)])).partitions == 4


def test_a_switch_that_would_lose_something_is_refused() -> None:
    scene = Scene()
    fence = scene.fence()

    with pytest.raises(InvalidRequest, match="3 offsets from 0 on are needed"):
        scene.switch(fence, {"billing": (1, 2)})
    scene.give(CreateTopic(FORMER, uuid.uuid4(), [(NODE,)], {}))
    with pytest.raises(TopicExists):
        scene.switch(fence)
    scene.give(DeleteTopic(COPY))
    with pytest.raises(TopicNotFound):
        scene.switch(fence)


def test_a_topic_never_gets_the_files_of_one_that_had_its_name() -> None:
    scene = Scene()
    scene.switch(scene.fence())
    scene.give(DeleteTopic(COPY))

    again = scene.give(CreateTopic("orders", uuid.uuid4(), [(NODE,)], {}))

    assert again.files == f"@{again.topic_id}"
    assert scene.metadata.topic(FORMER).files == "orders"


def test_the_log_and_a_snapshot_lead_to_the_same_state() -> None:
    scene = Scene()
    scene.switch(scene.fence(), {"billing": (1, 2, 3)})
    replayed, restored = ClusterMetadata(), ClusterMetadata()
    for command in scene.commands:
        replayed.apply_state(StateEntry(1, 1, 0, encode_command(command)))

    restored.restore(scene.metadata.snapshot(), EntryIndex(9))

    assert replayed.snapshot() == restored.snapshot() == scene.metadata.snapshot()
    assert restored.topic_by_id(SOURCE).name == FORMER
    assert restored.is_in_force(1)
    assert not restored.is_in_force(0)


def test_a_snapshot_of_an_older_version_is_read() -> None:
    metadata = ClusterMetadata()
    payload = encode_command(CreateTopic("orders", SOURCE, [(NODE,)], {}))
    metadata.apply_state(StateEntry(1, 1, 0, payload))
    tree = msgspec.msgpack.decode(metadata.snapshot())
    del tree["last_fence"]
    for topic in tree["topics"]:
        for name in ("directory", "resharding", "era", "positions"):
            del topic[name]
    again = ClusterMetadata()

    again.restore(msgspec.msgpack.encode(tree), EntryIndex(1))

    assert again.topic("orders") == metadata.topic("orders")
    assert again.topic("orders").files == "orders"
