"""What the leader of the metadata refuses before it becomes an entry.

Applying a command refuses what the state does not allow. Here is refused what no state would allow
and what applying takes on trust: logs without replicas, nodes that nobody knows, nonsense numbers.

So are changes after which a topic could take no records, because it asks for more replicas in step
than it has. Whether that is so depends on the changes before; those that matter to each other take
turns, so that each is looked at when all before it are applied. Applying does not look: what was
accepted once, every node goes on accepting.
"""

from collections.abc import Iterable

from penstock.cluster.commands import (
    AddPartitions,
    AllocateProducerIds,
    ChangeReplicas,
    ChangeSettings,
    Command,
    CreateTopic,
    PlaceShards,
    RegisterNode,
    RemoveNode,
)
from penstock.cluster.described import Node, Topic
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.resharding import BeginReshard, SwitchTopics
from penstock.cluster.topic_checks import (
    Members,
    check_in_sync_change,
    check_in_sync_left,
    check_in_sync_min,
)
from penstock.cluster.topic_settings import IN_SYNC_MIN, check_settings
from penstock.errors import (
    Conflict,
    InvalidAssignment,
    InvalidReplication,
    InvalidRequest,
    NotFound,
)
from penstock.raft import Membership

_PRODUCER_IDS_MAX = 1_000_000
_PORT_MAX = 65_535


def takes_turns(command: Command) -> bool:
    """Whether a command may be refused or not by what another one does that is on its way."""
    match command:
        case ChangeReplicas() | AddPartitions() | BeginReshard() | SwitchTopics():
            return True
        case ChangeSettings(changed=changed):
            return IN_SYNC_MIN in changed
        case _:
            return False


def check_command(command: Command, metadata: ClusterMetadata, voters: Membership) -> None:
    """Raise when a command must not be proposed; `voters` are those of the metadata."""
    match command:
        case RemoveNode(node_id):
            _check_majority_without(node_id, voters)
        case RegisterNode(node):
            _check_node(node)
        case PlaceShards(placement):
            _check_placement(placement, metadata)
        case CreateTopic(placement=placement, settings=settings):
            _check_placement(placement, metadata)
            check_settings(settings)
            check_in_sync_min(settings, placement)
        case ChangeSettings(topic_id, changed):
            check_settings(changed)
            check_in_sync_change(metadata.topic_by_id(topic_id), changed)
        case AddPartitions():
            _check_growth(command, metadata)
        case ChangeReplicas():
            _check_move(command, metadata)
        case BeginReshard(topic_id, _, target):
            _check_copy(metadata.topic_by_id(topic_id), metadata.topic_by_id(target))
        case SwitchTopics(topic_id):
            _check_switch(metadata.topic_by_id(topic_id), metadata)
        case AllocateProducerIds(count):
            if not 1 <= count <= _PRODUCER_IDS_MAX:
                raise InvalidRequest(
                    f"{count} producer ids were asked for, not 1 to {_PRODUCER_IDS_MAX}"
                )
        case _:
            pass


def _check_node(node: Node) -> None:
    if node.node_id < 0:
        raise InvalidRequest(f"{node.node_id} is no number of a node")
    for port in (node.peer_port, node.kafka_port, node.http_port):
        if not 0 <= port <= _PORT_MAX:
            raise InvalidRequest(f"node {node.node_id} names port {port}, not 0 to {_PORT_MAX}")


def _check_majority_without(node_id: int, membership: Membership) -> None:
    """A node that was removed may be switched off at once.

    Until its vote is taken, the others must be able to do without it what they could do alone: with
    one of four voters gone, the loss of another would leave no majority, and with three it does.
    """
    others = [voter for voter in membership.voters if voter.node != node_id]
    if not others or membership.quorum > Membership.of(others).quorum:
        raise Conflict(
            f"node {node_id} is one of {len(membership.voters)} that vote on the metadata, and the"
            " others need its vote; drain it, which takes its vote, and try again"
        )


def _check_growth(command: AddPartitions, metadata: ClusterMetadata) -> None:
    topic = metadata.topic_by_id(command.topic_id)
    _check_placement(command.placement, metadata)
    missing = command.partitions - topic.partitions - len(command.placement)
    if missing > 0:
        raise InvalidRequest(f"nobody is named to replicate {missing} partitions of {topic.name!r}")
    before = min(len(each.members) for each in topic.replicas)
    for members in command.placement:
        check_in_sync_left(topic, before, len(members))


def _check_move(command: ChangeReplicas, metadata: ClusterMetadata) -> None:
    found = [each for each in metadata.all_replicas() if each.group == command.group]
    if not found:
        raise NotFound(f"there is no log of group {command.group}")
    _check_placement([command.members], metadata)
    before = len(found[0].former or found[0].members)
    for topic in metadata.topics.values():
        if found[0] in topic.replicas:
            check_in_sync_left(topic, before, len(command.members))


def _check_switch(topic: Topic, metadata: ClusterMetadata) -> None:
    # Without a reshard, or after the switch, applying says what is to be said.
    if topic.resharding is not None and not topic.resharding.is_switched:
        _check_copy(topic, metadata.topic_by_id(topic.resharding.target))


def _check_copy(topic: Topic, copy: Topic) -> None:
    """A copy takes over the settings of its topic, and must be able to take records under them."""
    before, after = (min(len(each.members) for each in one.replicas) for one in (topic, copy))
    try:
        check_in_sync_left(topic, before, after)
    except InvalidReplication as error:
        raise InvalidReplication(
            f"{copy.name!r} cannot take the place of {topic.name!r}: {error}, or move the copy to"
            " more nodes"
        ) from error


def _check_placement(placement: Iterable[Members], metadata: ClusterMetadata) -> None:
    for members in placement:
        nodes = [node for node, _ in members]
        unknown = [node for node in nodes if node not in metadata.nodes]
        if not nodes or len(set(nodes)) < len(nodes) or unknown:
            raise InvalidAssignment(
                f"replicas {nodes} were asked for, the cluster has nodes {sorted(metadata.nodes)}"
            )
