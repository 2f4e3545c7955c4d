"""The commands that change the metadata; each is an entry of its log."""

import uuid

import msgspec

from penstock.cluster.described import Node
from penstock.cluster.resharding import (
    BeginReshard,
    CancelReshard,
    FenceTopic,
    LiftFence,
    SwitchTopics,
)
from penstock.errors import InvalidRequest


class RegisterNode(msgspec.Struct, frozen=True, tag="register_node"):
    """Add a node, or note its new address or incarnation."""

    node: Node
    is_repeated: bool = False
    """Whether the node has said so before since it started: one that was removed stays away."""


class RemoveNode(msgspec.Struct, frozen=True, tag="remove_node"):
    """Forget a node that replicates nothing any more."""

    node_id: int


class PlaceShards(msgspec.Struct, frozen=True, tag="place_shards"):
    """Say who replicates the consumer groups; done once, when the cluster is formed."""

    placement: list[tuple[tuple[int, int], ...]]


class ChangeReplicas(msgspec.Struct, frozen=True, tag="change_replicas"):
    """Say who is to replicate a log; its leader carries it out."""

    group: int
    members: tuple[tuple[int, int], ...]


class SettleReplicas(msgspec.Struct, frozen=True, tag="settle_replicas"):
    """Note that a change is carried out; those who left may remove their replica."""

    group: int
    members: tuple[tuple[int, int], ...]


class DrainNode(msgspec.Struct, frozen=True, tag="drain_node"):
    """Place nothing new on a node, or do so again."""

    node_id: int
    is_draining: bool


class FormCluster(msgspec.Struct, frozen=True, tag="form_cluster"):
    """Name the cluster; a second name is ignored."""

    cluster_id: uuid.UUID


class CreateTopic(msgspec.Struct, frozen=True, tag="create_topic"):
    """Add a topic."""

    name: str
    topic_id: uuid.UUID
    placement: list[tuple[tuple[int, int], ...]]
    settings: dict[str, str]


class DeleteTopic(msgspec.Struct, frozen=True, tag="delete_topic"):
    """Remove a topic and its records."""

    topic_id: uuid.UUID


class AddPartitions(msgspec.Struct, frozen=True, tag="add_partitions"):
    """Let a topic grow to `partitions`."""

    topic_id: uuid.UUID
    partitions: int
    placement: list[tuple[tuple[int, int], ...]]
    request_id: uuid.UUID | None = None
    """Names the request, so that the same one is recognised when it comes again."""


class ChangeSettings(msgspec.Struct, frozen=True, tag="change_settings"):
    """Set some settings and return others to their default."""

    topic_id: uuid.UUID
    changed: dict[str, str]
    removed: list[str]
    expected: dict[str, str | None] = {}
    """What some settings are, or that they are not given; else the change is refused."""


class ConfigureGroup(msgspec.Struct, frozen=True, tag="configure_group"):
    """Let a topic have a queue group; set some of its settings and leave others to the topic."""

    topic_id: uuid.UUID
    group: str
    changed: dict[str, str] = {}
    removed: list[str] = []


class ConfigureShareGroup(msgspec.Struct, frozen=True, tag="configure_share_group"):
    """Set what a share group is told whatever topics it reads, and leave the rest to defaults."""

    group: str
    changed: dict[str, str] = {}
    removed: list[str] = []
    has_joined: bool = False
    """A member is there; a group that is only told something may become one of any kind."""


class ForgetShareGroup(msgspec.Struct, frozen=True, tag="forget_share_group"):
    """There is a share group no longer; the queue groups behind it are forgotten one by one."""

    group: str


class ForgetGroup(msgspec.Struct, frozen=True, tag="forget_group"):
    """A topic has a queue group no longer."""

    topic_id: uuid.UUID
    group: str


class AllocateProducerIds(msgspec.Struct, frozen=True, tag="allocate_producer_ids"):
    """Reserve a block of producer ids, so that none is ever given twice."""

    count: int


Command = (
    FormCluster
    | RegisterNode
    | RemoveNode
    | PlaceShards
    | ChangeReplicas
    | SettleReplicas
    | DrainNode
    | CreateTopic
    | DeleteTopic
    | AddPartitions
    | ChangeSettings
    | ConfigureGroup
    | ConfigureShareGroup
    | ForgetShareGroup
    | ForgetGroup
    | AllocateProducerIds
    | BeginReshard
    | FenceTopic
    | LiftFence
    | SwitchTopics
    | CancelReshard
)

_encode = msgspec.msgpack.Encoder().encode
# For entries that are committed: a node that cannot read one must not go on without it.
decode_committed = msgspec.msgpack.Decoder(Command).decode


def encode_command(command: Command) -> bytes:
    """Return the state entry of a command."""
    return _encode(command)


def decode_command(payload: bytes) -> Command:
    """Return the command of a state entry, or raise `InvalidRequest`."""
    try:
        command: Command = decode_committed(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the command cannot be read by this node: {error}") from error
    return command
