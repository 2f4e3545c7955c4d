"""What the leader of the metadata refuses before it becomes an entry."""

import uuid

import msgspec
import pytest

from penstock.cluster import ClusterMetadata, Node
from penstock.cluster.command_checks import check_command, takes_turns
from penstock.cluster.commands import (
    AddPartitions,
    AllocateProducerIds,
    ChangeReplicas,
    ChangeSettings,
    Command,
    CreateTopic,
    DrainNode,
    RegisterNode,
    RemoveNode,
    decode_command,
    encode_command,
)
from penstock.cluster.resharding import BeginReshard, FenceTopic, SwitchTopics
from penstock.errors import Conflict, InvalidReplication, InvalidRequest, PenstockError
from penstock.ids import NodeId
from penstock.log import StateEntry
from penstock.raft import Incarnation, Member, Membership

ONE, TWO, STRANGER = (1, 10), (2, 20), (9, 90)
TOPIC, SAFE = uuid.uuid4(), uuid.uuid4()
FIRST_GROUP = 10_000


def node(node_id: int, port: int = 9092) -> Node:
    return Node(node_id, 10 * node_id, "host", 9191, "host", port, 8080)


@pytest.fixture
def metadata() -> ClusterMetadata:
    """Two nodes, and two topics with one partition."""
    metadata = ClusterMetadata()
    for command in (
        RegisterNode(node(1)),
        RegisterNode(node(2)),
        CreateTopic("orders", TOPIC, [(ONE, TWO)], {}),
        CreateTopic("safe", SAFE, [(ONE, TWO)], {"min.insync.replicas": "2"}),
    ):
        metadata.apply_state(StateEntry(1, 1, 0, encode_command(command)))
    return metadata


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (ChangeReplicas(FIRST_GROUP, ()), r"replicas \[\]"),
        (ChangeReplicas(FIRST_GROUP, (ONE, ONE)), r"replicas \[1, 1\]"),
        (ChangeReplicas(FIRST_GROUP, (ONE, STRANGER)), "9"),
        (ChangeReplicas(77, (ONE,)), "77"),
        (ChangeReplicas(FIRST_GROUP + 1, (ONE,)), "'safe' would have 1 replicas"),
        (AddPartitions(SAFE, 2, [(ONE,)]), "'safe' would have 1 replicas"),
        (ChangeSettings(TOPIC, {"min.insync.replicas": "3"}, []), "more than the 2 replicas"),
        (ChangeSettings(TOPIC, {"min.insync.replicas": "all"}, []), "not a whole number"),
        (ChangeSettings(uuid.UUID(int=5), {}, []), "0005"),
        (
            CreateTopic("more", uuid.uuid4(), [(ONE,)], {"min.insync.replicas": "2"}),
            "more than the 1 replicas",
        ),
        (CreateTopic("more", uuid.uuid4(), [()], {}), r"replicas \[\]"),
        (AddPartitions(TOPIC, 4, [(ONE,)]), "2 partitions"),
        (AddPartitions(uuid.UUID(int=5), 4, [(ONE,)]), "0005"),
        (RegisterNode(node(-3)), "-3"),
        (RegisterNode(node(3, port=70_000)), "70000"),
        (AllocateProducerIds(0), "0 producer ids"),
    ],
)
def test_a_command_that_no_node_could_carry_out_is_refused(
    metadata: ClusterMetadata, command: Command, named: str
) -> None:
    with pytest.raises(PenstockError, match=named):
        check_command(command, metadata, Membership())


def test_a_copy_with_too_few_replicas_does_not_take_over_the_settings_of_its_topic(
    metadata: ClusterMetadata,
) -> None:
    copy, reshard = uuid.uuid4(), uuid.uuid4()

    def give(command: Command) -> None:
        metadata.apply_state(StateEntry(1, 1, 0, encode_command(command)))

    give(CreateTopic("safe.reshard", copy, [(ONE, TWO), (ONE,)], {}))
    begin = BeginReshard(SAFE, reshard, copy)
    switch = SwitchTopics(SAFE, reshard, 1, "safe.before", {})
    refusal = "'safe.reshard' cannot take the place of 'safe': .* would have 1 replicas"
    with pytest.raises(InvalidReplication, match=refusal):
        check_command(begin, metadata, Membership())

    # The copy, or the setting, may change after the reshard has begun.
    give(begin)
    give(FenceTopic(SAFE, reshard))
    with pytest.raises(InvalidReplication, match=refusal):
        check_command(switch, metadata, Membership())
    give(ChangeSettings(SAFE, {"min.insync.replicas": "1"}, []))
    check_command(begin, metadata, Membership())
    check_command(switch, metadata, Membership())
    give(ChangeSettings(SAFE, {"min.insync.replicas": "2"}, []))
    give(ChangeReplicas(metadata.topic_by_id(copy).replicas[1].group, (ONE, TWO)))
    check_command(switch, metadata, Membership())

    give(switch)
    check_command(switch, metadata, Membership())


def test_changes_that_decide_whether_a_topic_can_take_records_take_turns() -> None:
    nobody = uuid.UUID(int=5)

    assert takes_turns(ChangeReplicas(FIRST_GROUP, (ONE,)))
    assert takes_turns(ChangeSettings(TOPIC, {"min.insync.replicas": "2"}, []))
    assert takes_turns(SwitchTopics(TOPIC, nobody, 1, "orders.before", {}))
    assert not takes_turns(ChangeSettings(TOPIC, {"retention.ms": "5000"}, []))


def test_sound_commands_pass(metadata: ClusterMetadata) -> None:
    for command in (
        ChangeReplicas(FIRST_GROUP, (TWO,)),
        ChangeReplicas(FIRST_GROUP + 1, (TWO, ONE)),
        ChangeSettings(SAFE, {"min.insync.replicas": "1"}, []),
        AddPartitions(TOPIC, 3, [(ONE,), (TWO,)]),
        DrainNode(2, True),
        AllocateProducerIds(1_000),
    ):
        check_command(command, metadata, Membership())


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\x00nonsense",
        msgspec.msgpack.encode({"type": "forget_everything"}),
        msgspec.msgpack.encode({"type": "remove_node", "node_id": "all"}),
    ],
)
def test_bytes_that_are_no_known_command_are_refused(payload: bytes) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read by this node"):
        decode_command(payload)


def test_a_node_that_the_metadata_cannot_do_without_is_not_removed(
    metadata: ClusterMetadata,
) -> None:
    one, two, three, four = (Member(NodeId(each), Incarnation(1)) for each in (1, 2, 3, 4))

    with pytest.raises(Conflict, match="node 2 is one of 1 that vote"):
        check_command(RemoveNode(2), metadata, Membership.of([two], [one]))
    with pytest.raises(Conflict, match="node 2 is one of 2 that vote"):
        check_command(RemoveNode(2), metadata, Membership.of([one, two]))
    with pytest.raises(Conflict, match="node 2 is one of 4 that vote"):
        check_command(RemoveNode(2), metadata, Membership.of([one, two, three, four]))

    check_command(RemoveNode(2), metadata, Membership.of([one], [two]))
    check_command(RemoveNode(2), metadata, Membership.of([one, two, three]))
